"""A program that interprets `impl/gpu/arithmetic.py` and log-sigmoid, where a GPU's functions are as bad as may be.

It prints one line of JSON: by name, for each end of the documented errors, the largest error of a function, in units
that the tests say. What has no documented error, sums, products, quotients and roots, is rounded correctly everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from opassay.properties.places.interpreting import install

MACHINE = install()

import numpy as np  # noqa: E402 (Triton must not be imported before this process is told to interpret)
import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.runtime import interpreter  # noqa: E402

from opassay import impl  # noqa: E402
from opassay.impl.gpu import arithmetic, launching  # noqa: E402
from opassay.oracles.bound.contract import contract  # noqa: E402
from opassay.oracles.bound.rounding import balls  # noqa: E402
from opassay.reference import activations  # noqa: E402
from opassay.reference.formats import BINARY32  # noqa: E402

BLOCK = 1 << 14
#: Errors in ulps of what a GPU takes from hardware and from CUDA: the PTX ISA of ex2.approx.ftz.f32 and the CUDA C++
#: Programming Guide of log and log2.
DOCUMENTED = {"exp2": 2.0, "log": 1.0, "log2": 1.0}


def bend(name: str, share: Callable[[Any], Any]) -> None:
    """Have the interpreter's function of a name err by a share, -1 to 1, of what is documented."""

    def bent(x: Any) -> Any:
        with np.errstate(all="ignore"):
            exact = getattr(np, name)(x.astype(np.float64))
            moved = exact + share(x) * DOCUMENTED[name] * np.spacing(np.abs(exact).astype(x.dtype)).astype(np.float64)
        # What is rounded must lie within the error, so it is rounded towards the exact value.
        rounded = moved.astype(x.dtype)
        beyond = np.abs(rounded.astype(np.float64) - exact) > np.abs(moved - exact)
        return np.where(beyond, np.nextafter(rounded, exact.astype(x.dtype)), rounded)

    setattr(interpreter.InterpreterBuilder, f"create_{name}", lambda self, arg: self.unary_op(arg, bent))


@triton.jit  # type: ignore[untyped-decorator]
def exp_of(X, Y, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    tl.store(Y + at, arithmetic.exp(tl.load(X + at)))


@triton.jit  # type: ignore[untyped-decorator]
def log1p_of(X, Y, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    tl.store(Y + at, arithmetic.log1p(tl.load(X + at)))


def interpreted(kernel: Any, x: Any) -> Any:
    """A kernel's results at an array of `BLOCK` numbers."""
    y = torch.empty(BLOCK)
    launching.launch(kernel, (1,), (torch.from_numpy(x), y), {"BLOCK": BLOCK}, 4)
    return y.numpy().astype(np.float64)


def error_of_exp(rng: Any) -> float:
    """In ulps, of arguments in all binades and of those of the largest result and the smallest."""
    small = rng.choice((-1, 1), 4096) * 2.0 ** rng.uniform(-30, 6, 4096)
    x = np.concatenate((rng.uniform(-104, 88.72, BLOCK - 4096), small))
    x = x.astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    return float((np.abs(interpreted(exp_of, x) - exact) / np.spacing(exact.astype(np.float32))).max())


def error_of_log1p(rng: Any) -> float:
    """In units of the roundoff 2^-24, relative."""
    x = np.concatenate((rng.uniform(0, 1, BLOCK // 2), 2.0 ** rng.uniform(-40, 0, BLOCK // 2))).astype(np.float32)
    exact = np.log1p(x.astype(np.float64))
    return float((np.abs(interpreted(log1p_of, x) / exact - 1) * 2.0**24).max())


def error_of_log_sigmoid(rng: Any) -> float:
    """In half-widths of the accept set."""
    x = rng.uniform(-4, 20, BLOCK).astype(np.float32)
    (ball,) = balls(activations.log_sigmoid, [x.astype(np.float64)], contract("float32", "cuda"))
    computed = impl.log_sigmoid(torch.from_numpy(x)).numpy().astype(np.float64)
    exact = np.where(x < 0, x, 0.0) - np.log1p(np.exp(-np.abs(x.astype(np.float64))))
    return float((np.abs(computed - exact) / ball.half_widths(BINARY32)).max())


def main() -> None:
    rng, result = np.random.default_rng(5), {}
    ends: dict[str, Callable[[Any], Any]] = {
        "upper": lambda x: 1.0,
        "lower": lambda x: -1.0,
        "both": lambda x: np.where(x.view(np.uint32) & 1, 1.0, -1.0),
    }
    for end, share in ends.items():
        for name in DOCUMENTED:
            bend(name, share)
        result[end] = [error_of_exp(rng), error_of_log1p(rng), error_of_log_sigmoid(rng)]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
