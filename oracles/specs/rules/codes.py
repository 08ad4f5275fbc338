"""The codes of numbers of eight bits, and of pairs of numbers of four: a tensor read as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ....reference.array import Array, constant
from ....reference.choice import Choice
from ....reference.dtypes import dtype_name
from ....reference.formats import EVERY_FORMAT, Format, bits_to_float64, round_array
from ....reference.missing import NoReadingError
from ..storage import PAIRS, STORAGE_DTYPES
from .table import DECOMPOSED, LIBRARY, MOVES, RULES


class Codes(Choice):
    """The codes of numbers of which a cast may give several; a zero may have either sign."""

    def __init__(self, low: Any, high: Any, fmt: Format) -> None:
        """`low`, `high`: the least and the largest number of each; NaN where every evaluation has NaN."""
        self.known = ~(np.isinf(low) & np.isinf(high) & (low != high))
        values = bits_to_float64(fmt, np.arange(1 << fmt.bits))

        def accepts(codes: Any) -> Any:
            numbers = values[np.asarray(codes, dtype=np.int64)]
            inside = (low <= numbers) & (numbers <= high) | (np.isnan(low) & np.isnan(numbers))
            return inside | ~self.known

        def choose() -> tuple[Any, Any]:
            # The codes in the order of their numbers, NaN last.
            order = np.argsort(values, kind="stable")
            likely = order[np.minimum(np.searchsorted(values[order], high), len(order) - 1)]
            return likely, (low == high) & (low != 0)

        super().__init__(np.shape(low), accepts, choose)

    def refutable(self) -> Any:
        return self.known


def _as_bytes(x: Any, dtype: torch.dtype) -> Any:
    """A tensor of eight-bit numbers as bytes, or bytes as such numbers, by an operation that knows their format."""
    if {x.dtype, dtype} == {torch.uint8, PAIRS}:
        return torch.ops.opassay_specs.bytes_of_pairs(x) if x.dtype == PAIRS else torch.ops.opassay_specs.pairs(x)
    if x.dtype in STORAGE_DTYPES and dtype == torch.uint8:
        return torch.ops.opassay_specs.codes(x, dtype_name(x.dtype))
    if x.dtype == torch.uint8 and dtype in STORAGE_DTYPES:
        return torch.ops.opassay_specs.numbers(x, dtype)
    return NotImplemented


def _codes_of(x: Any, format: str) -> Any:
    fmt = EVERY_FORMAT[format]
    # The ends are the next numbers outside, whose roundings are the numbers themselves.
    low, high = (np.where(np.isnan(end), np.nan, round_array(fmt, end)) for end in _ends_of(x))
    return Codes(low, high, fmt)


def _numbers_of(codes: Any, dtype: torch.dtype) -> Any:
    low, high = _ends_of(codes)
    if not np.array_equal(low, high):
        text = "bytes that depend on rounded numbers are not read as numbers again; keep the tensor itself"
        raise NoReadingError(text)
    values = bits_to_float64(EVERY_FORMAT[dtype_name(dtype)], low)
    return codes.lift(values) if isinstance(codes, Array) else values


def _ends_of(x: Any) -> tuple[Any, Any]:
    """The least and the largest value of each element, in any reading but the exact one."""
    base = constant(x)
    low, high = base.ends() if isinstance(base, Array) else (np.asarray(base), np.asarray(base))
    if low.dtype == object:
        raise NoReadingError("codes of eight-bit numbers are not read exactly")
    return low, high


LIBRARY.define("codes(Tensor x, str format) -> Tensor")
LIBRARY.define("numbers(Tensor x, ScalarType dtype) -> Tensor")
LIBRARY.define("pairs(Tensor x) -> Tensor")
LIBRARY.define("bytes_of_pairs(Tensor x) -> Tensor")
for _key in ("CPU", "Meta"):
    LIBRARY.impl("codes", lambda x, format: x.contiguous().view(torch.uint8).clone(), _key)
    LIBRARY.impl("numbers", lambda x, dtype: x.contiguous().view(dtype).clone(), _key)
    LIBRARY.impl("pairs", lambda x: x.contiguous().view(PAIRS).clone(), _key)
    LIBRARY.impl("bytes_of_pairs", lambda x: x.contiguous().view(torch.uint8).clone(), _key)
DECOMPOSED[torch.ops.aten.view.dtype] = _as_bytes
RULES[torch.ops.opassay_specs.codes.default] = _codes_of
RULES[torch.ops.opassay_specs.numbers.default] = _numbers_of
# Pairs are read as the bytes that they stand in.
for _operation in (torch.ops.opassay_specs.pairs.default, torch.ops.opassay_specs.bytes_of_pairs.default):
    RULES[_operation] = lambda x: x
    MOVES.add(_operation)
