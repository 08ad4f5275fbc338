"""How far elementary functions of NumPy and of XLA on CPUs are off in float32, on a sample of all magnitudes.

    python benchmarks/library_functions.py [numpy] [xla]

Prints a line per function: the largest error in ulps, and the argument that showed it. The truth is float64's, which
is off by less than 2^-28 ulp of float32. Arguments and results below the normal range are left out, because libraries
flush them (a contract says so by `flush`). The tables `NUMPY_FUNCTIONS` and `XLA_FUNCTIONS` of
`oracles/bound/contract.py` are these figures rounded up; `xla` needs jax.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

SEED = 20_26
ARGUMENTS = 1 << 22
#: name -> float64's function, and the interval of arguments in which it is asked.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    "sqrt": (np.sqrt, 0.0, np.inf),
    "exp": (np.exp, -104.0, 89.0),
    "expm1": (np.expm1, -20.0, 89.0),
    "log": (np.log, 0.0, np.inf),
    "log1p": (np.log1p, -1.0, np.inf),
    "tanh": (np.tanh, -np.inf, np.inf),
    "sin": (np.sin, -1e5, 1e5),
    "cos": (np.cos, -1e5, 1e5),
    "exp2": (np.exp2, -150.0, 128.0),
    "log2": (np.log2, 0.0, np.inf),
    "log10": (np.log10, 0.0, np.inf),
    "sinh": (np.sinh, -89.0, 89.0),
    "cosh": (np.cosh, -89.0, 89.0),
    "arctan": (np.arctan, -np.inf, np.inf),
    "erf": (lambda x: torch.special.erf(torch.from_numpy(x)).numpy(), -np.inf, np.inf),
    "sigmoid": (lambda x: 1.0 / (1.0 + np.exp(-x)), -88.0, np.inf),
}


def arguments(low: float, high: float) -> Any:
    """float32 numbers of random bits, as many near zero and where functions are lively, inside an interval."""
    rng = np.random.default_rng(SEED)
    bits = rng.integers(0, 1 << 32, ARGUMENTS, dtype=np.uint32).view(np.float32)
    near = rng.uniform(max(low, -100.0), min(high, 100.0), ARGUMENTS).astype(np.float32)
    ones = (1.0 + rng.standard_normal(ARGUMENTS) / 8).astype(np.float32)
    draws = np.concatenate([bits, near, ones])
    with np.errstate(invalid="ignore"):
        normal = np.isfinite(draws) & (np.abs(draws) >= np.finfo(np.float32).smallest_normal)
        return draws[(draws > low) & (draws < high) & normal]


def largest_error(computed: Any, exact: Any, operands: Any) -> tuple[float, float]:
    """The largest error in ulps of the exact value, and the argument of it; normal finite results count alone."""
    size = np.abs(exact)
    counts = (size >= np.finfo(np.float32).smallest_normal) & (size < np.finfo(np.float32).max)
    # The ulp of the exact value: its exponent is that of the largest power of two that it reaches.
    ulp = np.exp2(np.floor(np.log2(size[counts])) - 23)
    errors = np.abs(computed[counts].astype(np.float64) - exact[counts]) / ulp
    worst = int(np.argmax(errors))
    return float(errors[worst]), float(operands[counts][worst])


def functions_of(library: str) -> dict[str, Callable[[Any], Any]]:
    """The functions of a library by name, as functions of NumPy's arrays."""
    if library == "numpy":
        return {name: getattr(np, name) for name in FUNCTIONS if hasattr(np, name)}
    import jax

    jax.config.update("jax_platforms", "cpu")
    named = {name: getattr(jax.numpy, name) for name in FUNCTIONS if hasattr(jax.numpy, name)}
    named |= {"erf": jax.scipy.special.erf, "sigmoid": jax.nn.sigmoid}
    compiled = {name: jax.jit(function) for name, function in named.items()}
    return {name: lambda x, f=f: np.asarray(f(x)) for name, f in compiled.items()}


def main(libraries: list[str]) -> None:
    print(f"seed {SEED}, numpy {np.__version__}")
    for library in libraries:
        known = functions_of(library)
        for name in (n for n in FUNCTIONS if n in known):
            exactly, low, high = FUNCTIONS[name]
            operands = arguments(low, high)
            with np.errstate(all="ignore"):
                result = largest_error(known[name](operands), exactly(operands.astype(np.float64)), operands)
            print(f"{library:6} {name:8} {result[0]:8.3f} ulp at {result[1]!r}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["numpy"])
