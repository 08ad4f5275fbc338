"""The binary floating-point formats: their constants, their bits, and one correct rounding.

Scalars are mpmath's raw numbers, ``mpf._mpf_``: tuples (sign, mantissa, exponent, bit count).
They hold every value of every format exactly, except that they have one zero and one NaN. Arrays
are NumPy's float64, which holds every value of the four formats exactly, signed zeros included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from mpmath.libmp import finf, fnan, fninf, from_man_exp, fzero, mpf_cmp, mpf_neg

#: (sign, mantissa, exponent, bit count) as in ``mpf._mpf_``; the mantissa is an int or gmpy2's mpz.
Raw: TypeAlias = tuple[int, Any, int, int]
Float64Array: TypeAlias = npt.NDArray[np.float64]
BitsArray: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class Format:
    """An IEEE 754 style binary format, named as torch names the dtype.

    A finite value is an integer below 2**precision in magnitude, times 2**(e - precision + 1)
    with exponent_min <= e <= exponent_max. All properties are exact Python floats.
    """

    name: str
    precision: int
    exponent_min: int
    exponent_max: int
    bits: int

    @property
    def unit_roundoff(self) -> float:
        """u = 2**-precision, half of what torch calls eps."""
        return math.ldexp(1.0, -self.precision)

    @property
    def smallest_subnormal(self) -> float:
        """2**(exponent_min - precision + 1)."""
        return math.ldexp(1.0, self.exponent_min - self.precision + 1)

    @property
    def smallest_normal(self) -> float:
        """2**exponent_min."""
        return math.ldexp(1.0, self.exponent_min)

    @property
    def max(self) -> float:
        """The largest finite value."""
        return math.ldexp(2.0**self.precision - 1, self.exponent_max - self.precision + 1)

    @property
    def eta(self) -> float:
        """Half the smallest subnormal: the worst rounding error where underflow is gradual.

        For binary64 that half is no float; the smallest subnormal itself stands in for it, a
        bound that is safe and twice as wide.
        """
        return self.smallest_subnormal / 2 or self.smallest_subnormal


BINARY64 = Format("float64", precision=53, exponent_min=-1022, exponent_max=1023, bits=64)
BINARY32 = Format("float32", precision=24, exponent_min=-126, exponent_max=127, bits=32)
BFLOAT16 = Format("bfloat16", precision=8, exponent_min=-126, exponent_max=127, bits=16)
BINARY16 = Format("float16", precision=11, exponent_min=-14, exponent_max=15, bits=16)

#: torch's dtype name -> format.
FORMATS: dict[str, Format] = {fmt.name: fmt for fmt in (BINARY64, BINARY32, BFLOAT16, BINARY16)}

_UINTS: dict[int, type[np.unsignedinteger[Any]]] = {16: np.uint16, 32: np.uint32, 64: np.uint64}
_FLOATS: dict[str, type[np.floating[Any]]] = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
_EXPONENT_FIELD_OF_BINARY64 = np.uint64(0x7FF0_0000_0000_0000)


# -------------------------------------------------------------------------------- scalars, exact


def from_bits(fmt: Format, bits: int) -> Raw:
    """The exact value of a bit pattern; both zeros give zero, every NaN gives the one NaN."""
    if not 0 <= bits < 1 << fmt.bits:
        raise ValueError(f"value of a {fmt.name} pattern: got bits={bits:#x}, need 0 <= bits < 2**{fmt.bits}.")
    fraction_bits = fmt.precision - 1
    negative = bool(bits >> (fmt.bits - 1))
    biased = (bits & _magnitude_mask(fmt)) >> fraction_bits
    fraction = bits & ((1 << fraction_bits) - 1)
    if biased == 2 * fmt.exponent_max + 1:
        return fnan if fraction else _signed(negative, finf)
    # Biased exponent 0 is a subnormal: the exponent of biased 1 without the implicit leading bit.
    mantissa = fraction | (1 << fraction_bits if biased else 0)
    exponent = max(biased, 1) - fmt.exponent_max - fraction_bits
    return _signed(negative, from_man_exp(mantissa, exponent))


def to_bits(fmt: Format, raw: Raw) -> int:
    """The bit pattern of a value of the format; zero gives +0, NaN the default quiet NaN."""
    sign, mantissa, exponent, _ = raw
    infinity = (2 * fmt.exponent_max + 1) << (fmt.precision - 1)
    if not mantissa:
        special = {fzero: 0, finf: infinity, fninf: _sign_bit(fmt) | infinity}
        return special[raw] if raw in special else infinity | 1 << (fmt.precision - 2)
    if round_to(fmt, raw) != raw:
        raise ValueError(f"bits of a {fmt.name}: got raw={raw}, need a value of that format; round it first.")
    quantum = _quantum_exponent(fmt, raw)
    integer = int(mantissa) << (exponent - quantum)
    # Added, not or-ed: the leading bit of a normal's integer counts as one in the exponent field.
    biased = quantum + fmt.precision - 1 - fmt.exponent_min
    return int(sign) * _sign_bit(fmt) + (biased << (fmt.precision - 1)) + integer


def round_to(fmt: Format, raw: Raw) -> Raw:
    """The nearest value of the format, ties to even, in one step.

    Underflow is gradual; from half an ulp above the largest finite value on, the result is infinite.
    """
    sign, mantissa, exponent, _ = raw
    if not mantissa:
        return raw
    quantum = _quantum_exponent(fmt, raw)
    rounded = _shift_right_to_even(int(mantissa), quantum - exponent)
    if rounded.bit_length() + max(quantum, exponent) > fmt.exponent_max + 1:
        return _signed(bool(sign), finf)
    return _signed(bool(sign), from_man_exp(rounded, max(quantum, exponent)))


def ulp(fmt: Format, raw: Raw) -> float:
    """2**(max(e, exponent_min) - precision + 1) where 2**e <= |value| < 2**(e+1); exact as a float.

    Zero counts as subnormal; from 2**exponent_max on, infinity included, the unit stays that of the
    largest finite value. NaN gives NaN.

    Source: J.-M. Muller, On the definition of ulp(x), INRIA RR-5504, 2005.
    """
    if raw == fnan:
        return math.nan
    if raw in (finf, fninf):
        return math.ldexp(1.0, fmt.exponent_max - fmt.precision + 1)
    return math.ldexp(1.0, min(_quantum_exponent(fmt, raw), fmt.exponent_max - fmt.precision + 1))


def neighbours(fmt: Format, raw: Raw) -> tuple[Raw, Raw]:
    """The largest value of the format below and the smallest above, both strictly.

    Beyond the largest finite value come the infinities; an infinity is its own outer neighbour, NaN
    is both of its own.
    """
    if raw == fnan:
        return fnan, fnan
    nearest = round_to(fmt, raw)
    side = mpf_cmp(nearest, raw)
    below = nearest if side < 0 else _step(fmt, nearest, -1)
    above = nearest if side > 0 else _step(fmt, nearest, 1)
    return below, above


def _step(fmt: Format, raw: Raw, steps: int) -> Raw:
    # Patterns without their sign bit are ordered as the magnitudes are.
    magnitude = to_bits(fmt, raw) & _magnitude_mask(fmt)
    infinity = (2 * fmt.exponent_max + 1) << (fmt.precision - 1)
    ordinal = (-magnitude if raw[0] or raw == fninf else magnitude) + steps
    ordinal = max(-infinity, min(infinity, ordinal))
    return _signed(ordinal < 0, from_bits(fmt, abs(ordinal)))


def _shift_right_to_even(mantissa: int, shift: int) -> int:
    if shift <= 0:
        return mantissa  # already a multiple of the quantum; the caller keeps the exponent
    if shift > mantissa.bit_length():
        return 0  # less than half a quantum; the powers of two below stay small, too
    quotient, remainder = mantissa >> shift, mantissa & ((1 << shift) - 1)
    half = 1 << (shift - 1)
    return quotient + (remainder > half or (remainder == half and quotient & 1))


def _quantum_exponent(fmt: Format, raw: Raw) -> int:
    """Exponent of the spacing around a finite value, as if the exponent had no upper end."""
    _, mantissa, exponent, _ = raw
    leading = exponent + mantissa.bit_length() - 1 if mantissa else fmt.exponent_min
    return int(max(leading, fmt.exponent_min)) - fmt.precision + 1


def _signed(negative: bool, raw: Raw) -> Raw:
    negated: Raw = mpf_neg(raw) if negative else raw
    return negated


def _sign_bit(fmt: Format) -> int:
    return 1 << (fmt.bits - 1)


def _magnitude_mask(fmt: Format) -> int:
    return _sign_bit(fmt) - 1


# -------------------------------------------------------------------------------- arrays, float64


def round_array(fmt: Format, values: npt.ArrayLike) -> Float64Array:
    """float64 values rounded once to the format, nearest, ties to even; a new float64 array."""
    array = np.asarray(values, dtype=np.float64)
    if fmt == BINARY64:
        return array.copy()
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if fmt == BINARY32:
            return np.asarray(array.astype(np.float32), dtype=np.float64)
        # Scaling by the spacing, a power of two, is exact: rint is the only rounding.
        spacing = ulp_array(fmt, array)
        rounded = np.rint(array / spacing) * spacing
        overflow = np.abs(rounded) > fmt.max
        return np.asarray(np.where(overflow, np.copysign(np.inf, rounded), rounded))


def ulp_array(fmt: Format, values: npt.ArrayLike) -> Float64Array:
    """The function `ulp` of every float64 value."""
    array = np.asarray(values, dtype=np.float64)
    # A float64 with its exponent field alone is 2**e; of zero, subnormals: 0; of infinity: itself.
    leading = (array.view(np.uint64) & _EXPONENT_FIELD_OF_BINARY64).view(np.float64)
    clipped = np.clip(leading, fmt.smallest_normal, math.ldexp(1.0, fmt.exponent_max))
    spacing = clipped * math.ldexp(1.0, 1 - fmt.precision)
    return np.asarray(np.where(np.isnan(array), np.nan, spacing))


def bits_to_float64(fmt: Format, bits: npt.ArrayLike) -> Float64Array:
    """The values of bit patterns, exactly; zeros keep their sign."""
    patterns = np.asarray(bits).astype(_UINTS[fmt.bits])
    with np.errstate(invalid="ignore"):  # a signalling NaN
        if fmt == BFLOAT16:  # the upper half of a binary32
            return (patterns.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
        return patterns.view(_FLOATS[fmt.name]).astype(np.float64)


def float64_to_bits(fmt: Format, values: npt.ArrayLike) -> BitsArray:
    """The bit patterns of values of the format; every NaN gives the default quiet NaN."""
    array = np.asarray(values, dtype=np.float64)
    nan = np.isnan(array)
    inexact = (round_array(fmt, array) != array) & ~nan
    if inexact.any():
        first = float(array[inexact].flat[0])
        raise ValueError(f"bits of {fmt.name} values: got {first.hex()}, need values of that format; round first.")
    if fmt == BFLOAT16:
        patterns = (array.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    else:
        patterns = array.astype(_FLOATS[fmt.name]).view(_UINTS[fmt.bits])
    return np.where(nan, _UINTS[fmt.bits](to_bits(fmt, fnan)), patterns)
