"""What instructions of PTX give, by Python's integers and by MPFR: one number at a time, from the ISA's text."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

import gmpy2
import numpy as np

#: MPFR's contexts of the formats; it counts exponents of mantissas in [1/2, 1).
CONTEXTS = {
    name: gmpy2.context(precision=digits, emin=lowest, emax=highest, subnormalize=True)
    for name, digits, lowest, highest in (("f16", 11, -23, 16), ("bf16", 8, -132, 128), ("f32", 24, -148, 128),
                                         ("f64", 53, -1073, 1024))
}  # fmt: skip
WIDTHS = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
_SMALLEST_NORMAL = 2.0**-126


def width_of(kind: str) -> int:
    """Bytes of a type."""
    return 4 if kind == "pred" else WIDTHS.get(kind) or int(kind[1:]) // 8


def decode(bits: int, kind: str) -> Any:
    """The number that bits are: a float, an int, or a truth value."""
    if kind == "pred":
        return bool(bits)
    if kind == "bf16":
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    if kind[0] == "f":
        return struct.unpack({"f16": "<e", "f32": "<f", "f64": "<d"}[kind], bits.to_bytes(WIDTHS[kind], "little"))[0]
    size = int(kind[1:])
    return bits - (1 << size) if kind[0] == "s" and bits >> (size - 1) else bits


def encode(value: Any, kind: str) -> int | None:
    """The bits of a number that the type has; None for a NaN."""
    if kind == "pred":
        return int(value)
    if kind[0] in "bf" and kind in WIDTHS:
        value = float(value)
        if math.isnan(value):
            return None
        if kind == "bf16":
            return int(struct.unpack("<I", struct.pack("<f", value))[0]) >> 16
        raw = struct.pack({"f16": "<e", "f32": "<f", "f64": "<d"}[kind], value)
        return int.from_bytes(raw, "little")
    return int(value) & ((1 << int(kind[1:])) - 1)


def flushed(value: float) -> float:
    """A number as .ftz has it."""
    return math.copysign(0.0, value) if abs(value) < _SMALLEST_NORMAL else value


def rounded(name: str, kind: str, *, ftz: bool = False) -> Callable[..., float]:
    """An operation of MPFR, correctly rounded to a format."""
    function = getattr(CONTEXTS[kind], name)

    def result(*operands: float) -> float:
        numbers = map(flushed, operands) if ftz else operands
        value = float(function(*map(gmpy2.mpfr, numbers)))
        return flushed(value) if ftz else value

    return result


def extreme(larger: bool) -> Callable[[float, float], float]:
    """max or min of PTX: of a NaN and a number the number, and -0 below +0."""

    def result(a: float, b: float) -> float:
        if math.isnan(a) or math.isnan(b):
            return b if math.isnan(a) else a
        if a == b == 0:
            negative = [math.copysign(1.0, each) < 0 for each in (a, b)]
            return -0.0 if (all(negative) if larger else any(negative)) else 0.0
        return max(a, b) if larger else min(a, b)

    return result


def whole(how: str, value: float) -> float:
    """A number rounded to an integer, which keeps the sign of a zero."""
    if not math.isfinite(value):
        return value
    functions: dict[str, Callable[[float], int]] = {"n": round, "z": math.trunc, "m": math.floor, "p": math.ceil}
    return math.copysign(float(functions[how](value)), value)


def into(kind: str, value: float, source: str) -> int:
    """A whole number as an integer: the nearest one in range. Of a NaN 0, of 64 bits or to them the highest bit."""
    size = int(kind[1:])
    if math.isnan(value):
        return 0 if size < 64 and source != "f64" else encode(-(1 << (size - 1)), kind) or 0
    least, most = (-(1 << (size - 1)), (1 << (size - 1)) - 1) if kind[0] == "s" else (0, (1 << size) - 1)
    return least if value <= least else most if value >= most else int(value)


def quotient(a: int, b: int) -> int:
    """Towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def operands(kinds: tuple[str, ...], count: int, seed: int) -> list[Any]:
    """Bits of operands: all pairs of special values, random bits, and numbers of moderate size."""
    rng = np.random.default_rng((seed, len(kinds)))
    columns = []
    for position, kind in enumerate(kinds):
        width = width_of(kind)
        special = np.array(sorted(set(_special(kind))), np.uint64)
        rows = np.tile(special, len(special)) if position % 2 else np.repeat(special, len(special))
        rows = rng.permutation(rows) if position == 2 else rows
        draws = rng.integers(0, 1 << min(8 * width, 63), count, np.uint64)
        if width == 8:
            draws = draws * np.uint64(2) + rng.integers(0, 2, count, np.uint64)
        parts = [rows, draws]
        if kind in WIDTHS:
            moderate = rng.standard_normal(count) * np.exp2(rng.integers(-6, 7, count))
            with np.errstate(over="ignore"):
                parts.append(
                    np.array([encode(float(CONTEXTS[kind].plus(gmpy2.mpfr(v))), kind) for v in moderate], np.uint64)
                )
        elif kind == "pred":
            parts[1] = draws & np.uint64(1)
        else:
            parts.append(rng.integers(0, 40, count, np.uint64))
        columns.append(np.concatenate(parts))
    longest = max(map(len, columns))
    return [
        np.resize(column, longest).astype(f"u{width_of(kind)}") for column, kind in zip(columns, kinds, strict=True)
    ]


def _special(kind: str) -> Iterator[int]:
    if kind == "pred":
        yield from (0, 1)
    elif kind in WIDTHS:
        size = 8 * WIDTHS[kind]
        fraction = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}[kind]
        infinity = ((1 << (size - 1)) - 1) >> fraction << fraction
        one = (infinity >> 1) >> fraction << fraction
        for bits in (
            0,
            1,
            (1 << fraction) - 1,
            1 << fraction,
            (1 << fraction) + 1,
            one,
            one + 1,
            infinity - 1,
            infinity,
            infinity + 1,
        ):
            yield from (bits, bits | 1 << (size - 1))
    else:
        size = int(kind[1:])
        yield from (0, 1, 2, 31, 32, 63, (1 << (size - 1)) - 1, 1 << (size - 1), (1 << size) - 1, (1 << size) - 2)
