"""The elementary functions of torch and of Triton on the GPU, over all arguments of float32: `functions.py SECONDS`.

A row for each: the largest error, and how many results are farther off than the contract allows CUDA or Triton.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import errors
import torch
import triton
import triton.language as tl
from telling import DEVICE, Time, guarded, require_gpu, tell

from opassay.oracles.bound.contract import CUDA_FUNCTIONS, TRITON_FUNCTIONS

_TORCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sqrt": torch.sqrt, "exp": torch.exp, "expm1": torch.expm1, "log": torch.log, "log1p": torch.log1p,
    "tanh": torch.tanh, "sigmoid": torch.sigmoid, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan,
    "arcsin": torch.asin, "arccos": torch.acos, "arctan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh,
    "arcsinh": torch.asinh, "arccosh": torch.acosh, "arctanh": torch.atanh, "exp2": torch.exp2, "log2": torch.log2,
    "log10": torch.log10, "erf": torch.erf, "erfc": torch.erfc,
}  # fmt: skip
#: Of torch and of nothing else: the contract has their parts.
_OF_TRITON = ("exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "sqrt_rn", "rsqrt", "erf", "sigmoid")


@triton.jit
def _apply(X, Y, NAME: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at)
    if NAME == "exp":
        y = tl.exp(x)
    elif NAME == "exp2":
        y = tl.exp2(x)
    elif NAME == "log":
        y = tl.log(x)
    elif NAME == "log2":
        y = tl.log2(x)
    elif NAME == "sin":
        y = tl.sin(x)
    elif NAME == "cos":
        y = tl.cos(x)
    elif NAME == "sqrt":
        y = tl.sqrt(x)
    elif NAME == "sqrt_rn":
        y = tl.sqrt_rn(x)
    elif NAME == "rsqrt":
        y = tl.rsqrt(x)
    elif NAME == "erf":
        y = tl.erf(x)
    else:
        y = tl.sigmoid(x)
    tl.store(Y + at, y)


def by_triton(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function of Triton's language, on bits of float32."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        _apply[(x.numel() // 1024,)](x.view(torch.float32), y.view(torch.float32), name, 1024)
        return y

    return function


def measure(library: str, name: str, function: Any, exact: Any, ulps: float, clock: Time) -> None:
    """The row of a function."""
    with guarded(f"{library} {name}"):
        row = errors.over_all_arguments(function, exact, lambda size, spacing: ulps * spacing, clock)
        tell(library=library, function=name, **row, contract=ulps)


def main() -> None:
    """Rows of all functions."""
    require_gpu()
    clock = Time()
    torch.zeros(1, device=DEVICE)
    for name in _OF_TRITON:
        exact = _TORCH.get(name.removesuffix("_rn"), torch.rsqrt)
        ulps = TRITON_FUNCTIONS.get(name.removesuffix("_rn"), TRITON_FUNCTIONS["sqrt"])
        measure("triton", name, by_triton(name), exact, ulps, clock)
    for name, function in _TORCH.items():

        def of_bits(x: torch.Tensor, function: Any = function) -> torch.Tensor:
            result: torch.Tensor = function(x.view(torch.float32)).view(torch.int32)
            return result

        measure("torch", name, of_bits, function, CUDA_FUNCTIONS[name], clock)


if __name__ == "__main__":
    main()
