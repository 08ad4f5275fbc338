"""The types of PTX as NumPy has them: bits of registers, numbers in a type, half formats that NumPy lacks."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

#: A NumPy array with an element for each thread, or a NumPy scalar for all of them.
Lanes: TypeAlias = Any

#: Bytes of a type; a predicate takes one.
WIDTHS = {
    "pred": 1, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4,
    "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "s16x2": 4, "u16x2": 4, "tf32": 4,
    "f32x2": 8, "b64": 8, "u64": 8, "s64": 8, "f64": 8,
}  # fmt: skip
#: Bits without a type, by their bytes.
BITS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
#: The NumPy type of a PTX type; bfloat16 and pairs of halves are bits.
NUMBERS: dict[str, Any] = {
    **{name: BITS[width] for name, width in WIDTHS.items()}, "pred": np.bool_, "s8": np.int8, "s16": np.int16,
    "s32": np.int32, "s64": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
#: Where global memory begins, so that a null pointer, and an offset without its pointer, are outside.
BASE = 1 << 40
#: Where state spaces begin among generic addresses. An address of global memory is a generic one in any instruction.
WINDOWS = {"shared": 1 << 34, "cluster": 1 << 34, "local": 1 << 36, "param": 1 << 38, "global": BASE}
#: The NaN that a GPU computes in float32; any other payload would make equal results differ.
CANONICAL = np.uint32(0x7FFFFFFF).view(np.float32)
_CANONICAL_HALF = np.uint16(0x7FFF)
_SMALLEST_NORMAL = np.float32(2.0**-126)


def items(array: Lanes, width: int) -> Lanes:
    """An array of bytes, with so many of them in each element."""
    return array[: array.size // width * width].view(BITS.get(width, f"V{width}"))


def as_type(value: Lanes, dtype: Any) -> Lanes:
    """Bits as numbers of a type: the low bytes of a wider value, zeros above a narrower one."""
    width = np.dtype(dtype).itemsize
    return value.view(dtype) if value.dtype.itemsize == width else value.astype(BITS[width]).view(dtype)


def read_number(text: str, kind: str) -> Lanes:
    """A literal, "0f3F800000" or "-7" say, as a number of a type.

    Raises:
        ValueError: the text is no literal.
    """
    width = WIDTHS[kind]
    if text[:2].lower() in ("0f", "0d"):
        raw = bytes.fromhex(text[2:])[::-1]
    else:
        raw = (int(text.rstrip("Uu"), 0) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    if len(raw) != width:
        raise ValueError(f"got the literal {text}, need one of {width} bytes")
    return np.frombuffer(raw, NUMBERS[kind])[0]


def flush(x: Lanes) -> Lanes:
    """float32 with subnormal numbers made zeros of their sign (.ftz)."""
    small = np.abs(x) < _SMALLEST_NORMAL
    return np.where(small, np.copysign(np.float32(0), x), x) if np.any(small) else x


def canonical(x: Lanes) -> Lanes:
    """float32 with every NaN in the one encoding that a GPU computes."""
    nan = x != x
    return np.where(nan, CANONICAL, x) if np.any(nan) else x


def to_bfloat16(x: Lanes) -> Lanes:
    """Bits of bfloat16 nearest to float32 numbers, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    up = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return np.where(np.isnan(x), _CANONICAL_HALF, ((bits + up) >> np.uint32(16)).astype(np.uint16))


def from_bfloat16(bits: Lanes) -> Lanes:
    """float32 numbers of bits of bfloat16, exactly."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def from_float16(bits: Lanes) -> Lanes:
    """float32 numbers of bits of float16, exactly."""
    return np.asarray(bits).view(np.float16).astype(np.float32)


def to_float16(x: Lanes) -> Lanes:
    """Bits of float16 nearest to float32 numbers, ties to even."""
    return np.where(np.isnan(x), _CANONICAL_HALF, np.asarray(x).astype(np.float16).view(np.uint16))


def within_one(x: Lanes) -> Lanes:
    """Numbers as .sat has them: 0 below 0 and of a NaN, 1 above 1."""
    return np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))


def not_negative(x: Lanes) -> Lanes:
    """Numbers as .relu has them: 0 below 0; a NaN remains one."""
    return np.where(x > 0, x, np.where(np.isnan(x), x, x.dtype.type(0)))
