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
    ways = [Algorithm(divide_by_square, ""), Algorithm(divide_by_larger_part, "")]
    return open_at_zero((c, d), among(ways, a, b, c, d), a, b, c, d)


def open_at_zero(number: tuple[Any, Any], result: Any, *parts: Any) -> Any:
    """A result of parts, which may be anything where a number of two of them may be zero, or a part is infinite."""
    if not isinstance(result, Array):
        return result
    ends = [end for x in parts for end in _ends_of(x)]
    known = np.logical_and.reduce([np.isfinite(np.asarray(x, dtype=np.float64)) for x in ends])
    shape: Any = np.shape(result)
    is_open = np.broadcast_to((holds_zero(number) | ~known)[..., None], shape)
    if not is_open.any():
        return result
    anything: Any = unbounded(constant(result), shape)
    either: Any = result
    return np.where(is_open, anything, either)


def holds_zero(number: tuple[Any, Any]) -> Any:
    """Where a number of two parts may be zero."""
    (low, high), (lowest, highest) = map(_ends_of, number)
    return np.asarray((low <= 0) & (high >= 0) & (lowest <= 0) & (highest >= 0), dtype=bool)


def _ends_of(x: Any) -> tuple[Any, Any]:
    return constant(x).ends() if isinstance(x, Array) else (x, x)


def divide_by_square(a: Any, b: Any, c: Any, d: Any) -> Any:
    size = c * c + d * d
    return np.stack([(a * c + b * d) / size, (b * c - a * d) / size], axis=-1)


def divide_by_larger_part(a: Any, b: Any, c: Any, d: Any) -> Any:
    """With d the larger part, the quotient is that of (b − i a) and (d − i c)."""
    swaps = np.abs(c) < np.abs(d)
    a, b = np.where(swaps, b, a), np.where(swaps, -a, b)
    c, d = np.where(swaps, d, c), np.where(swaps, -c, d)
    ratio = d / c
    scale = 1.0 / (c + d * ratio)
    return np.stack([(a + b * ratio) * scale, (b - a * ratio) * scale], axis=-1)


LIBRARY.define("divide_parts(Tensor a, Tensor b, Tensor c, Tensor d) -> Tensor")
for _key in ("CPU", "Meta"):
    LIBRARY.impl("divide_parts", lambda a, b, c, d: torch.view_as_real(torch.complex(a, b) / torch.complex(c, d)), _key)
RULES[torch.ops.opassay_specs.divide_parts.default] = _divide
