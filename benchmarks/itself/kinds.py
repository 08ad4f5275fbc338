"""Kinds of data: what is made of normal numbers, and then stored in the dtype under test."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def _wide(x: Tensor) -> Tensor:
    """Exponents from -12 to 12, in an order without a pattern."""
    return torch.ldexp(x, (torch.arange(x.numel()).reshape(x.shape) * 7919) % 25 - 12)


#: Kind -> numbers of that kind, of the shape of the normal numbers.
KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda x: x,
    "offset": lambda x: x + 100.0,
    "wide": _wide,
    "large": lambda x: x * 20.0,
    "small": lambda x: x * 2.0**-12,
    "ties": torch.round,
    "zeros": lambda x: torch.where(x > 0.5, 0.0, x),
    "unit": torch.special.ndtr,
    "positive": torch.abs,
}
#: The numbers at the ends of what a dtype has; it takes the place of the numbers, so that it is no function of them.
ENDS = "ends"


def of_kind(kind: str, x: Tensor, dtype: torch.dtype) -> Tensor:
    """Normal numbers made numbers of a kind, in a dtype; all are finite."""
    if kind == ENDS:
        ends = _ends(dtype)
        return ends[(torch.arange(x.numel()) * 31) % ends.numel()].reshape(x.shape)
    largest = torch.finfo(dtype).max
    return KINDS[kind](x.float()).clamp(-largest, largest).to(dtype)


def _ends(dtype: torch.dtype) -> Tensor:
    """Zeros, the smallest and the largest numbers, and those around 1; 31 does not divide their count."""
    info = torch.finfo(dtype)
    sizes = [
        0.0, info.smallest_normal * info.eps, info.smallest_normal, info.smallest_normal * 1.5, info.eps**2,
        info.eps, 1.0 - info.eps / 2, 1.0, 1.0 + info.eps, 2.0, 0.5, info.max**0.5, info.max / 4, info.max,
    ]  # fmt: skip
    positive = torch.tensor(sizes, dtype=torch.float64).to(dtype)
    return torch.cat([positive, -positive])
