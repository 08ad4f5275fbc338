"""The same step in float64, with which the loss of a program is compared."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from .program import Program

NARROW = (torch.float32, torch.bfloat16, torch.float16)


class Widening(TorchDispatchMode):
    """What a program casts to float32 or less, or makes in it, is float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") in NARROW:
            kwargs["dtype"] = torch.float64
        # The one product that has no kernel for float64.
        return multiply_groups(*args) if "_grouped_mm" in str(func) else func(*args, **kwargs)


def multiply_groups(a: Tensor, b: Tensor, ends: Tensor, *_: Any) -> Tensor:
    """Products of groups of rows with a matrix each, or of groups of columns."""
    parts, start = [], 0
    for number, end in enumerate(ends.tolist()):
        parts.append(a[start:end] @ b[number] if b.dim() == 3 else a[:, start:end] @ b[start:end])
        start = end
    return torch.cat(parts) if b.dim() == 3 else torch.stack(parts)


def exact_loss(program: Program, seed: int) -> float:
    """The loss of a program's next step in float64."""
    exact = program.exact()
    torch.manual_seed(seed)
    torch.set_default_dtype(torch.float64)
    try:
        with Widening():
            return exact.step()
    finally:
        torch.set_default_dtype(torch.float32)
