"""Operations on complex numbers that have several algorithms, on their parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ....reference.algorithms import Algorithm
from ....reference.array import Array, among, constant
from ....reference.whole import unbounded
from .table import LIBRARY, RULES


def _divide(a: Any, b: Any, c: Any, d: Any) -> Any:
    """(a + i b) / (c + i d), its parts along a last axis.

    By the formula of school, or by R. L. Smith's (Algorithm 116, Communications of the ACM 5, 1962), as torch has it,
    which divides by the larger part first. Where the divisor may be zero, or a part is infinite, these differ.
    """
    ways = [Algorithm(_by_square, ""), Algorithm(_by_larger_part, "")]
    quotient: Any = among(ways, a, b, c, d)
    if not isinstance(quotient, Array):
        return quotient
    low, high = zip(*(constant(x).ends() if isinstance(x, Array) else (x, x) for x in (a, b, c, d)), strict=True)
    known = np.logical_and.reduce([np.isfinite(np.asarray(x, dtype=np.float64)) for x in (*low, *high)])
    is_zero = (low[2] <= 0) & (high[2] >= 0) & (low[3] <= 0) & (high[3] >= 0)
    shape: Any = np.shape(quotient)
    is_open = np.broadcast_to((is_zero.astype(bool) | ~known)[..., None], shape)
    if not is_open.any():
        return quotient
    anything: Any = unbounded(constant(quotient), shape)
    either: Any = quotient
    return np.where(is_open, anything, either)


def _by_square(a: Any, b: Any, c: Any, d: Any) -> Any:
    size = c * c + d * d
    return np.stack([(a * c + b * d) / size, (b * c - a * d) / size], axis=-1)


def _by_larger_part(a: Any, b: Any, c: Any, d: Any) -> Any:
    """With d the larger part, the quotient is that of (b − i a) and (d − i c)."""
    swaps = np.abs(c) < np.abs(d)
    a, b = np.where(swaps, b, a), np.where(swaps, -a, b)
    c, d = np.where(swaps, d, c), np.where(swaps, -c, d)
    ratio = d / c
    scale = 1.0 / (c + d * ratio)
    return np.stack([(a + b * ratio) * scale, (b - a * ratio) * scale], axis=-1)


def _divided(a: Any, b: Any, c: Any, d: Any) -> Any:
    return torch.view_as_real(torch.complex(a, b) / torch.complex(c, d))


LIBRARY.define("divide_parts(Tensor a, Tensor b, Tensor c, Tensor d) -> Tensor")
for _key in ("CPU", "Meta"):
    LIBRARY.impl("divide_parts", _divided, _key)
RULES[torch.ops.opassay_specs.divide_parts.default] = _divide
