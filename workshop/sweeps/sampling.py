"""`python -m workshop.sweeps.sampling`: torch's functions on a sample of arguments, as a table.

What this is for: the contract needs a bound for every function, and a sweep of all float32 numbers takes minutes for
each function, which is too long for a test. A sample gives a lower limit of the largest error, which shows a contract
that is too tight and does not prove one. The exact values are approximated by NumPy in the next wider format.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from opassay.oracles.bound.contract import CPU_FUNCTIONS
from opassay.oracles.bound.rounding.functions import erf_centre, erfc_centre
from opassay.reference.formats import FORMATS, Format, ulp_array

from .functions import FUNCTIONS
from .measure import layouts_of
from .reading import promised

#: The distance of the bit patterns of float32, and the number of arguments of float64, which are drawn with the seed.
EVERY, DRAWS, SEED = 1021, 200_000, 0
_CENTRES: dict[str, Callable[[Any], Any]] = {"erf": erf_centre, "erfc": erfc_centre}
#: Functions that torch does not have; and functions of two arguments, or without a counterpart in NumPy.
_NUMPY_ALONE = frozenset({"cbrt"})
_OTHERS = frozenset({"power", "sigmoid", "arctan2", "hypot"})
SAMPLED = tuple(sorted(set(CPU_FUNCTIONS) - _OTHERS))


def sample_arguments(dtype: str, every: int = EVERY) -> Any:
    """Finite arguments, as float64: every bit pattern of a half format, a sample of the others."""
    import torch

    if dtype == "float64":
        rng = np.random.default_rng(SEED)
        return np.concatenate(
            [rng.uniform(-s, s, DRAWS) for s in (1.0, 30.0)] + [np.exp2(rng.uniform(-1022, 1023, DRAWS))]
        )
    bits = FORMATS[dtype].bits
    patterns = np.arange(0, 2**bits, every if bits == 32 else 1).astype(f"u{bits // 8}").view(f"i{bits // 8}")
    values = torch.from_numpy(patterns).view(getattr(torch, dtype)).double().numpy()
    return values[np.isfinite(values)]


def worst_of(name: str, dtype: str, arguments: Any) -> tuple[float, float]:
    """The largest error in ulps among the results in the normal range of the dtype, and its argument."""
    wide = arguments.astype(np.longdouble) if dtype == "float64" else arguments
    fmt = FORMATS[dtype]
    with np.errstate(all="ignore"):
        true = _CENTRES.get(name, getattr(np, name, None))(wide)  # type: ignore[misc]
        size = np.abs(true).astype(np.float64)
        judged = np.isfinite(true) & (size >= fmt.smallest_normal) & (size <= fmt.max / 2)
        worst = (-1.0, math.nan)
        for results in _compute(name, fmt, arguments):
            errors = np.where(judged, np.abs(results - true) / ulp_array(fmt, size), -1.0).astype(np.float64)
            place = int(np.argmax(errors))
            worst = max(worst, (float(errors[place]), float(arguments[place])))
    return worst


def _compute(name: str, fmt: Format, arguments: Any) -> Iterator[Any]:
    import torch

    for each in layouts_of(torch.from_numpy(arguments).to(getattr(torch, fmt.name))).values():
        yield FUNCTIONS[name].computed(each).double().numpy()


def table() -> Iterator[str]:
    """The rows of the sampled table of docs/tables/functions.txt."""
    yield "| function | dtype | arguments | worst (ulp) | at | contract (ulp) |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for dtype in sorted(FORMATS, key=lambda name: FORMATS[name].precision):
        arguments = sample_arguments(dtype)
        for name in SAMPLED:
            if name in _NUMPY_ALONE and FORMATS[dtype].bits < 32:
                continue
            worst, place = worst_of(name, dtype, arguments)
            allowed = promised(name, dtype, CPU_FUNCTIONS)
            yield f"| {name} | {dtype} | {arguments.size:,} | {worst:.6g} | {place.hex()} | {allowed:.6g} |"


if __name__ == "__main__":
    for line in table():
        print(line, flush=True)
