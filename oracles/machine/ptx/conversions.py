"""cvt: one type to another. Source: NVIDIA, PTX ISA 9.1, section 9.7.9.21."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .formats import (
    NUMBERS,
    Lanes,
    canonical,
    flush,
    from_bfloat16,
    from_float16,
    not_negative,
    to_bfloat16,
    to_float16,
    within_one,
)
from .listing import Instruction
from .low_bits import from_low_bits, to_low_bits

TO_HALF = {"bf16": to_bfloat16, "f16": to_float16}
FROM_HALF = {"bf16": from_bfloat16, "f16": from_float16}
_TO_WHOLE: dict[str, Any] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_LOW_BITS = ("e4m3", "e5m2")


def conversion(instruction: Instruction) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """The function of a cvt, and the types of its sources: two for a pair of narrow numbers, else one."""
    *modifiers, to, source = instruction.modifiers
    if "sat" in modifiers:
        rest = tuple(name for name in modifiers if name != "sat")
        unlimited, kinds = conversion(replace(instruction, modifiers=(*rest, to, source)))
        return lambda x: within_one(unlimited(x)), kinds
    if source.endswith("x2"):
        return _of_pair(modifiers, to, source)
    if to.endswith("x2"):  # the first source becomes the upper part
        narrow, shift = _narrowing(modifiers, to.removesuffix("x2")), 8 if to.startswith(_LOW_BITS) else 16
        return lambda high, low: _pair(narrow(high), narrow(low), shift), ("f32", "f32")
    read, kind = (FROM_HALF[source], "b16") if source in FROM_HALF else (np.asarray, source)
    whole = next((_TO_WHOLE[name] for name in modifiers if name in _TO_WHOLE), None)
    if to in TO_HALF:
        narrow = _narrowing(modifiers, to)
        return lambda x: narrow(read(x) if whole is None else whole(read(x))), (kind,)
    if source in FROM_HALF and to == "f32":
        return read, (kind,)
    before: Callable[[Lanes], Lanes] = flush if "ftz" in modifiers and source == "f32" else read
    if to == "tf32":
        return _to_tf32, ("b32",)
    target = NUMBERS[to]
    if to[0] != "f":
        return (lambda x: _integer(whole(before(x)), target, source)) if whole else (lambda x: x.astype(target)), (
            kind,
        )
    if whole is not None:
        return lambda x: whole(before(x)), (kind,)
    if to == "f32":
        after: Callable[[Lanes], Lanes] = flush if "ftz" in modifiers else np.asarray
        return lambda x: canonical(after(x.astype(target))), (kind,)
    return lambda x: read(x).astype(target), (kind,)


def _of_pair(modifiers: list[str], to: str, source: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """The function of a cvt of two numbers that lie in one register: of 8 bits to halves, or back."""
    low_bits = source.startswith(_LOW_BITS)
    width, narrow = (8 if low_bits else 16), _narrowing(modifiers, to.removesuffix("x2"))
    part = np.uint8 if low_bits else np.uint16
    name = source.removesuffix("x2")

    def convert(bits: Lanes) -> Lanes:
        parts = [(np.asarray(bits) >> bits.dtype.type(shift)).astype(part) for shift in (width, 0)]
        numbers = [from_low_bits(name, each) if low_bits else FROM_HALF[name](each) for each in parts]
        return _pair(narrow(numbers[0]), narrow(numbers[1]), 24 - width)

    return convert, (f"b{2 * width}",)


def _narrowing(modifiers: list[str], to: str) -> Callable[[Lanes], Lanes]:
    """A function that rounds numbers to a half format, or to one of 8 bits, whose bits it gives.

    With .relu what is negative becomes zero, and with .satfinite what is too large the largest number; a NaN remains
    one, of the canonical bits.
    """
    most = 65504.0 if to == "f16" else float(from_bfloat16(np.uint16(0x7F7F)))
    how = next((name for name in modifiers if name in ("rz", "rm", "rp")), "rn")

    def narrow(x: Lanes) -> Lanes:
        x = not_negative(x) if "relu" in modifiers else x
        if to in _LOW_BITS:
            return to_low_bits(to, x)
        if "satfinite" in modifiers:
            x = np.where(np.isnan(x), x, np.clip(x, x.dtype.type(-most), x.dtype.type(most)))
        odd = _odd_float32(x)
        return _beside(how, odd, TO_HALF[to](odd), FROM_HALF[to])

    return narrow


def _beside(how: str, exact: Lanes, nearest: Lanes, read: Callable[[Lanes], Lanes]) -> Lanes:
    """Bits of the half next to exact numbers in a direction, of those of the nearest half; `read` gives their value."""
    if how == "rn":
        return nearest
    there, one = read(nearest), np.uint16(1)
    inward, outward = nearest - one, nearest + one
    if how == "rz":
        return np.where(np.abs(there) > np.abs(exact), inward, nearest)
    wrong = there > exact if how == "rm" else there < exact
    negative = (nearest >> np.uint16(15)) != 0
    return np.where(wrong, np.where(negative == (how == "rm"), outward, inward), nearest)


def _odd_float32(x: Lanes) -> Lanes:
    """Numbers as float32, cut off towards zero, with the last bit set where something was cut off.

    What is rounded to a half from there has the bits of one rounding: float32 has more than two digits more than it
    (S. Boldo, G. Melquiond, Emulation of FMA and correctly rounded sums, IEEE Trans. Computers 57(4), 2008).
    """
    x = np.asarray(x)
    if x.dtype == np.float32:
        return x
    if x.dtype.kind in "iu":  # a number of 64 bits in float64, likewise
        negative = x < 0
        size = np.where(negative, np.uint64(0) - x.astype(np.uint64), x.astype(np.uint64))
        low = size & np.uint64(0x7FF)
        size = np.where(size >> np.uint64(53), (size ^ low) | np.where(low, np.uint64(0x800), np.uint64(0)), size)
        x = np.where(negative, -size.astype(np.float64), size.astype(np.float64))
    nearest = x.astype(np.float32)
    wide = nearest.astype(np.float64)
    beyond = np.abs(wide) > np.abs(x)
    inward = np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest)
    inexact = (wide != x) & ~np.isnan(x)
    return np.where(inexact, (inward.view(np.uint32) | np.uint32(1)).view(np.float32), inward)


def _to_tf32(bits: Lanes) -> Lanes:
    """Bits of the nearest number with 10 digits behind the leading one, of two the larger, as rna says."""
    finite = (bits & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
    return np.where(finite, (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000), bits)


def _pair(high: Lanes, low: Lanes, shift: int) -> Lanes:
    whole: Any = np.uint32 if shift == 16 else np.uint16
    return (np.asarray(high).astype(whole) << whole(shift)) | np.asarray(low).astype(whole)


def _integer(whole: Lanes, target: Any, source: str) -> Lanes:
    """Whole numbers as integers: the nearest one where they are out of range. A NaN is 0, but where source or target
    has 64 bits: there it is the integer whose highest bit alone is set.
    """
    limits, value = np.iinfo(target), np.asarray(whole, np.float64)
    nan = 0 if limits.bits < 64 and source != "f64" else limits.min or 1 << (limits.bits - 1)
    inside = (value > limits.min) & (value < float(limits.max))
    ends = np.where(value >= float(limits.max), limits.max, np.where(value <= limits.min, limits.min, 0)).astype(target)
    ends = np.where(np.isnan(value), target(nan), ends)
    return np.where(inside, np.where(inside, value, 0.0).astype(target), ends).astype(target)
