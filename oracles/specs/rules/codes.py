"""The codes of numbers of eight bits, and of pairs of four, as bytes; those of wider numbers, as integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ....reference.array import Array, attach, constant
from ....reference.choice import Choice
from ....reference.condition import condition
from ....reference.dtypes import dtype_name
from ....reference.formats import EVERY_FORMAT, bits_to_float64, round_array
from ....reference.missing import NoReadingError
from ....reference.whole import unbounded, whole
from ..storage import PAIRS, STORAGE_DTYPES
from .table import DECOMPOSED, LIBRARY, MOVES, RULES, enter

#: Floating dtypes with the integers of as many bits.
_AS_WIDE = {
    **dict.fromkeys((torch.float16, torch.bfloat16), torch.int16),
    **{torch.float32: torch.int32, torch.float64: torch.int64},
}


def _codes_of(x: Any, format: str) -> Choice:
    """The codes of numbers of which a cast may give several; a zero may have either sign."""
    fmt = EVERY_FORMAT[format]
    # The ends are the next numbers outside, whose roundings are the numbers themselves.
    low, high = (np.where(np.isnan(end), np.nan, round_array(fmt, end)) for end in _ends_of(x))
    known = ~(np.isinf(low) & np.isinf(high) & (low != high))
    values = bits_to_float64(fmt, np.arange(1 << fmt.bits))

    def accepts(codes: Any) -> Any:
        numbers = values[np.asarray(codes, dtype=np.int64)]
        inside = (low <= numbers) & (numbers <= high) | (np.isnan(low) & np.isnan(numbers))
        return inside | ~known

    def choose() -> tuple[Any, Any]:
        # The codes in the order of their numbers, NaN last.
        order = np.argsort(values, kind="stable")
        likely = order[np.minimum(np.searchsorted(values[order], high), len(order) - 1)]
        return likely, (low == high) & (low != 0)

    return Choice(np.shape(low), accepts, choose, lambda: known)


def _as_bytes(x: Any, dtype: torch.dtype) -> Any:
    """A tensor of eight-bit numbers as bytes, or bytes as such numbers, by an operation that knows their format."""
    if {x.dtype, dtype} == {torch.uint8, PAIRS}:
        return torch.ops.opassay_specs.bytes_of_pairs(x) if x.dtype == PAIRS else torch.ops.opassay_specs.pairs(x)
    if x.dtype in STORAGE_DTYPES and dtype == torch.uint8:
        return torch.ops.opassay_specs.codes(x, dtype_name(x.dtype))
    if (x.dtype == torch.uint8 and dtype in STORAGE_DTYPES) or _AS_WIDE.get(dtype) == x.dtype:
        return torch.ops.opassay_specs.numbers(x, dtype)
    if _AS_WIDE.get(x.dtype) == dtype:
        return torch.ops.opassay_specs.bits(x, dtype, dtype_name(x.dtype))
    return NotImplemented


def _numbers_of(codes: Any, dtype: torch.dtype) -> Any:
    if dtype in _AS_WIDE:
        return _floats_of(codes, dtype)
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


def _float_ends(x: Any) -> tuple[Any, Any, Any]:
    """The least and the largest value of each element in float64, and an array of the reading."""
    base = constant(x)
    low, high = base.ends() if isinstance(base, Array) else (np.asarray(base),) * 2
    if low.dtype != object:
        return low, high, base
    near = low.astype(np.float64)
    same = (near == low).astype(bool) | np.isnan(near)
    return np.where(same, near, np.nextafter(near, -np.inf)), np.where(same, near, np.nextafter(near, np.inf)), base


def _bits_of(x: Any, dtype: torch.dtype, format: str) -> Any:
    """The bits of numbers, which grow with the size of a number; of a zero and a NaN those are not known."""
    low, high, reading = _float_ends(x)
    rounded = (torch.from_numpy(np.array(round_array(EVERY_FORMAT[format], end))) for end in (low, high))
    ends = [end.to(getattr(torch, format)).view(dtype).numpy() for end in rounded]
    info, one_sign = np.iinfo(ends[0].dtype), (low > 0) | (high < 0)
    return whole(
        np.where(one_sign, np.minimum(*ends), info.min), np.where(one_sign, np.maximum(*ends), info.max), reading
    )


def _floats_of(bits: Any, dtype: torch.dtype) -> Any:
    low, high, reading = _float_ends(bits)
    if dtype == torch.float64:
        raise NoReadingError("64 bits that a spec computes are not read as a number; compute in float32, or by ldexp")
    known = np.isfinite(low) & np.isfinite(high) & ((low < 0) == (high < 0))
    ends = (torch.from_numpy(np.where(known, end, 0)).to(_AS_WIDE[dtype]) for end in (np.ceil(low), np.floor(high)))
    first, last = (end.view(dtype).double().numpy() for end in ends)
    if not isinstance(bits, Array):
        return first
    known &= (first == last) | np.isfinite(first) & np.isfinite(last)
    open_ = condition(np.zeros(known.shape, bool), known & (first != last), reading)
    numbers = np.where(open_, reading.lift(last), reading.lift(first))
    return numbers if known.all() else np.where(known, numbers, unbounded(reading, known.shape))


def _split(x: Any) -> tuple[Any, Any]:
    """frexp: a fraction from 1/2 to 1 and an exponent, which C leaves open for infinities and NaNs."""
    low, high, reading = _float_ends(x)
    finite = np.isfinite(low) & np.isfinite(high)
    ends = [np.frexp(np.where(finite, end, 1.0))[1] for end in (low, high)]
    least, most = np.minimum(*ends), np.maximum(*ends)
    # Between numbers of both signs, and beside 0, of which the exponent is 0, numbers may be as small as they like.
    small = (low <= 0) & (high >= 0) & (low != high)
    least, most = np.where(small, -1074, least), np.where(small, np.maximum(most, 0), most)
    # In two steps, because the inverse of the least power of two is beyond the range.
    scaled = [x * np.ldexp(1.0, -(e // 2)) * np.ldexp(1.0, e // 2 - e) for e in (least, most)]
    fractions = scaled[0]
    if isinstance(x, Array):  # A number without error has a fraction without one.
        either = np.where(condition(np.zeros(least.shape, bool), least != most, reading), *scaled)
        fractions = np.where(low == high, reading.lift(np.frexp(low)[0]), constant(either))
        fractions = attach(fractions, either, always=True)
    info = np.iinfo(np.int32)
    least, most = (np.where(finite, end, edge) for end, edge in ((least, info.min), (most, info.max)))
    return fractions, whole(least.astype(np.int32), most.astype(np.int32), reading)


enter({"frexp.Tensor": _split})
LIBRARY.define("bits(Tensor x, ScalarType dtype, str format) -> Tensor")
LIBRARY.define("codes(Tensor x, str format) -> Tensor")
LIBRARY.define("numbers(Tensor x, ScalarType dtype) -> Tensor")
LIBRARY.define("pairs(Tensor x) -> Tensor")
LIBRARY.define("bytes_of_pairs(Tensor x) -> Tensor")
for _key in ("CPU", "Meta"):
    LIBRARY.impl("codes", lambda x, format: x.contiguous().view(torch.uint8).clone(), _key)
    LIBRARY.impl("numbers", lambda x, dtype: x.contiguous().view(dtype).clone(), _key)
    LIBRARY.impl("bits", lambda x, dtype, format: x.contiguous().view(dtype).clone(), _key)
    LIBRARY.impl("pairs", lambda x: x.contiguous().view(PAIRS).clone(), _key)
    LIBRARY.impl("bytes_of_pairs", lambda x: x.contiguous().view(torch.uint8).clone(), _key)
DECOMPOSED[torch.ops.aten.view.dtype] = _as_bytes
RULES[torch.ops.opassay_specs.codes.default] = _codes_of
RULES[torch.ops.opassay_specs.numbers.default] = _numbers_of
RULES[torch.ops.opassay_specs.bits.default] = _bits_of
# Pairs are read as the bytes that they stand in.
for _operation in (torch.ops.opassay_specs.pairs.default, torch.ops.opassay_specs.bytes_of_pairs.default):
    RULES[_operation] = lambda x: x
    MOVES.add(_operation)
