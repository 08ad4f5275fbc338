"""The bits of the binary floating-point formats, and one correct rounding.

Scalars are mpmath's raw numbers, ``mpf._mpf_``: tuples (sign, mantissa, exponent, bit count).
They hold every value of every format exactly, except that they have one zero and one NaN. Arrays
are NumPy's float64, which holds every value of the four formats exactly, signed zeros included.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from mpmath.libmp import finf, from_man_exp, mpf_neg

from .dtypes import BFLOAT16 as BFLOAT16
from .dtypes import BINARY16 as BINARY16
from .dtypes import BINARY32 as BINARY32
from .dtypes import BINARY64 as BINARY64
from .dtypes import FORMATS as FORMATS
from .dtypes import Format as Format

#: (sign, mantissa, exponent, bit count) as in ``mpf._mpf_``; the mantissa is an int or gmpy2's mpz.
Raw: TypeAlias = tuple[int, Any, int, int]
Float64Array: TypeAlias = npt.NDArray[np.float64]


_EXPONENT_FIELD_OF_BINARY64 = np.uint64(0x7FF0_0000_0000_0000)


# -------------------------------------------------------------------------------- scalars, exact


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
        return _apply_sign(bool(sign), finf)
    return _apply_sign(bool(sign), from_man_exp(rounded, max(quantum, exponent)))


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


def bits_to_float64(fmt: Format, bits: npt.ArrayLike) -> Float64Array:
    """The values of bit patterns, exactly; zeros keep their sign."""
    patterns = np.asarray(bits).astype(f"uint{fmt.bits}")
    with np.errstate(invalid="ignore"):  # a signalling NaN
        if fmt == BFLOAT16:  # the upper half of a binary32
            return (patterns.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
        return patterns.view(fmt.name).astype(np.float64)
