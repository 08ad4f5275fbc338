"""The bits of the binary floating-point formats, and one correct rounding.

Scalars are mpmath's raw numbers, ``mpf._mpf_``: tuples (sign, mantissa, exponent, bit count).
They hold every value of every format exactly, except that they have one zero and one NaN. Arrays
are NumPy's float64, which holds every value of every format exactly, signed zeros included.

A rounding keeps the order of numbers, so that what lies between two of them is rounded to something between their
roundings: whatever is beyond the largest number is infinite, in formats without infinities as well. What a cast gives
in place of it, and of other numbers that a format has no code for, is said by `cast_array`.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from mpmath.libmp import finf, fnan, fninf, from_float, from_man_exp, mpf_le, mpf_neg

from .dtypes import BFLOAT16 as BFLOAT16
from .dtypes import BINARY16 as BINARY16
from .dtypes import BINARY32 as BINARY32
from .dtypes import BINARY64 as BINARY64
from .dtypes import EVERY_FORMAT as EVERY_FORMAT
from .dtypes import FORMATS as FORMATS
from .dtypes import Format as Format
from .dtypes import Specials as Specials
from .dtypes import format_of_cast as format_of_cast

#: (sign, mantissa, exponent, bit count) as in ``mpf._mpf_``; the mantissa is an int or gmpy2's mpz.
Raw: TypeAlias = tuple[int, Any, int, int]
Float64Array: TypeAlias = npt.NDArray[np.float64]


class Rounding(enum.Enum):
    """Which of the two neighbours of a number between them is taken; a stochastic rounding takes that of DOWN or UP."""

    TO_EVEN = "nearest, ties to even"
    TIES_AWAY = "nearest, ties away from zero"
    TO_ZERO = "toward zero"
    DOWN = "down"
    UP = "up"


_EXPONENT_FIELD_OF_BINARY64 = np.uint64(0x7FF0_0000_0000_0000)


# -------------------------------------------------------------------------------- scalars, exact


def round_to(fmt: Format, raw: Raw) -> Raw:
    """The nearest value of the format, ties to even, in one step.

    Underflow is gradual; from half an ulp above the largest finite value on, the result is infinite, or the largest
    value if the format saturates. A format without zero and signs gives its least value for all below.
    """
    sign, mantissa, exponent, _ = raw
    if fmt.specials is Specials.POWERS and raw != fnan and mpf_le(raw, from_float(fmt.smallest_normal)):
        least: Raw = from_float(fmt.smallest_normal)
        return least
    if not mantissa:
        beyond = raw in (finf, fninf) and fmt.saturates
        return _apply_sign(raw == fninf, from_float(fmt.max)) if beyond else raw
    quantum = _quantum_exponent(fmt, raw)
    rounded = from_man_exp(_shift_right_to_even(int(mantissa), quantum - exponent), max(quantum, exponent))
    if not mpf_le(rounded, from_float(fmt.max)):
        rounded = from_float(fmt.max) if fmt.saturates else finf
    return _apply_sign(bool(sign), rounded)


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


def _apply_sign(negative: bool, raw: Raw) -> Raw:
    negated: Raw = mpf_neg(raw) if negative else raw
    return negated


# -------------------------------------------------------------------------------- arrays, float64


def round_array(fmt: Format, values: npt.ArrayLike, rounding: Rounding = Rounding.TO_EVEN) -> Float64Array:
    """float64 values rounded once to the format; a new float64 array, of the same order.

    Args:
        fmt: the format. values: of any shape.
        rounding: what is taken of two neighbours. What is rounded away from the largest value is infinite, or that
            value if the format saturates. A format without zero and signs gives its least value for all below.
    """
    array = np.asarray(values, dtype=np.float64)
    if fmt == BINARY64:
        return array.copy()
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if fmt == BINARY32 and rounding is Rounding.TO_EVEN:
            return np.asarray(array.astype(np.float32), dtype=np.float64)
        # Scaling by the spacing, a power of two, is exact: the rounding to integers is the only one.
        spacing = ulp_array(fmt, array)
        rounded = np.asarray(_INTEGERS[rounding](array / spacing) * spacing)
        beyond = np.abs(rounded) > fmt.max
        if beyond.any():
            stays = fmt.saturates | (np.isfinite(array) & _inward(rounded, rounding))
            rounded = np.where(beyond, np.copysign(np.where(stays, fmt.max, np.inf), rounded), rounded)
        return np.maximum(rounded, fmt.smallest_normal) if fmt.specials is Specials.POWERS else rounded


def _away_from_ties(values: Any) -> Any:
    whole = np.trunc(values)
    return whole + np.copysign(np.abs(values - whole) >= 0.5, values)


_INTEGERS: dict[Rounding, Callable[[Any], Any]] = {
    Rounding.TO_EVEN: np.rint,
    Rounding.TIES_AWAY: _away_from_ties,
    Rounding.TO_ZERO: np.trunc,
    Rounding.DOWN: np.floor,
    Rounding.UP: np.ceil,
}


def _inward(values: Any, rounding: Rounding) -> Any:
    """Whether a rounding takes values that are beyond the largest one towards zero."""
    inward = {Rounding.TO_ZERO: (True, True), Rounding.DOWN: (True, False), Rounding.UP: (False, True)}
    positive, negative = inward.get(rounding, (False, False))
    return np.where(values > 0, positive, negative)


def cast_array(fmt: Format, values: npt.ArrayLike, rounding: Rounding = Rounding.TO_EVEN) -> Float64Array:
    """The numbers that a cast of float64 values gives, as float64: those of `round_array`, and what the format has in
    place of what it has no code for.

    Without infinities that is NaN, and without a negative zero 0. A format of powers of two alone has the one that is
    nearest to the magnitude, and its least one for zero, as torch does. A NaN stays NaN also where the format has no
    code for it, so that whoever reads it sees that there is none.
    """
    rounded = round_array(fmt, np.abs(values) if fmt.specials is Specials.POWERS else values, rounding)
    if fmt.specials is Specials.IEEE:
        return rounded
    numbers = np.where(np.isinf(rounded), np.nan, rounded)
    if fmt.specials is Specials.NAN_FOR_ZERO:
        return numbers + 0.0
    return numbers


def ulp_array(fmt: Format, values: npt.ArrayLike) -> Float64Array:
    """2**(max(e, exponent_min) - precision + 1) of every value, where 2**e <= |value| < 2**(e+1).

    Zero counts as subnormal; from 2**exponent_max on, infinity included, the unit stays that of the largest finite
    value. NaN gives NaN.

    Source: J.-M. Muller, On the definition of ulp(x), INRIA RR-5504, 2005.
    """
    array = np.asarray(values, dtype=np.float64)
    # A float64 with its exponent field alone is 2**e; of zero, subnormals: 0; of infinity: itself.
    leading = (array.view(np.uint64) & _EXPONENT_FIELD_OF_BINARY64).view(np.float64)
    spacing = np.asarray(np.maximum(leading, fmt.smallest_normal))
    np.minimum(spacing, math.ldexp(1.0, fmt.exponent_max), out=spacing)
    spacing *= math.ldexp(1.0, 1 - fmt.precision)
    unknown = np.isnan(array)
    return np.asarray(np.where(unknown, np.nan, spacing)) if unknown.any() else spacing


def half_unit_below(fmt: Format, values: Float64Array) -> Float64Array:
    """Half of `ulp_array` of values from 0 to the largest of the format, and never 0; it takes half the time."""
    leading = (values.view(np.uint64) & _EXPONENT_FIELD_OF_BINARY64).view(np.float64)
    np.maximum(leading, max(fmt.smallest_normal, math.ldexp(1.0, fmt.precision - 1074)), out=leading)
    leading *= math.ldexp(1.0, -fmt.precision)
    return leading


def bits_to_float64(fmt: Format, bits: npt.ArrayLike) -> Float64Array:
    """The values of bit patterns, exactly; zeros keep their sign."""
    if fmt.bits <= 16:
        return np.asarray(_values_of_codes(fmt)[np.asarray(bits, dtype=np.int64)])
    patterns = np.asarray(bits).astype(f"uint{fmt.bits}")
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return patterns.view(fmt.name).astype(np.float64)


@functools.lru_cache(maxsize=16)
def _values_of_codes(fmt: Format) -> Float64Array:
    """The value of every code of a format of few bits."""
    codes = np.arange(1 << fmt.bits)
    if fmt.specials is Specials.POWERS:
        return np.where(codes == codes[-1], np.nan, np.ldexp(1.0, codes + fmt.exponent_min))
    sign, fraction_bits = 1 << (fmt.bits - 1), fmt.precision - 1
    exponent, fraction = (codes % sign) >> fraction_bits, codes % (1 << fraction_bits)
    # Exponent 0 is that of 1 without the leading bit.
    whole = fraction + np.where(exponent > 0, 1 << fraction_bits, 0)
    values = np.ldexp(whole.astype(np.float64), np.maximum(exponent, 1) + fmt.exponent_min - 1 - fraction_bits)
    infinite = (fraction == 0) & (fmt.specials is Specials.IEEE)
    values = np.where(values <= fmt.max, values, np.where(infinite, np.inf, np.nan))
    if fmt.specials is Specials.NAN_FOR_ZERO:
        values[sign] = np.nan
    return np.where(codes < sign, values, -values)
