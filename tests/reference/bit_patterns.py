"""Bit patterns and neighbours of exact numbers, one by one: what the tests hold `reference.formats` against."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from mpmath.libmp import finf, fnan, fninf, from_man_exp, fzero, mpf_cmp

from opassay.reference.formats import (
    BFLOAT16,
    Format,
    Raw,
    _apply_sign,
    _quantum_exponent,
    round_array,
    round_to,
)


def from_bits(fmt: Format, bits: int) -> Raw:
    """The exact value of a bit pattern; both zeros give zero, every NaN gives the one NaN."""
    if not 0 <= bits < 1 << fmt.bits:
        raise ValueError(f"value of a {fmt.name} pattern: got bits={bits:#x}, need 0 <= bits < 2**{fmt.bits}.")
    fraction_bits = fmt.precision - 1
    negative = bool(bits >> (fmt.bits - 1))
    biased = (bits & _magnitude_mask(fmt)) >> fraction_bits
    fraction = bits & ((1 << fraction_bits) - 1)
    if biased == 2 * fmt.exponent_max + 1:
        return fnan if fraction else _apply_sign(negative, finf)
    # Biased exponent 0 is a subnormal: the exponent of biased 1 without the implicit leading bit.
    mantissa = fraction | (1 << fraction_bits if biased else 0)
    exponent = max(biased, 1) - fmt.exponent_max - fraction_bits
    return _apply_sign(negative, from_man_exp(mantissa, exponent))


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
    return _apply_sign(ordinal < 0, from_bits(fmt, abs(ordinal)))


def _sign_bit(fmt: Format) -> int:
    return 1 << (fmt.bits - 1)


def _magnitude_mask(fmt: Format) -> int:
    return _sign_bit(fmt) - 1


def float64_to_bits(fmt: Format, values: npt.ArrayLike) -> npt.NDArray[np.unsignedinteger[Any]]:
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
        patterns = array.astype(fmt.name).view(f"uint{fmt.bits}")
    return np.where(nan, np.dtype(f"uint{fmt.bits}").type(to_bits(fmt, fnan)), patterns)
