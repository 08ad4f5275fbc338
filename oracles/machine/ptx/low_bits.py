"""Floats of 8 bits, e4m3 and e5m2: their numbers, and the bits that are nearest to a number.

Source: NVIDIA, PTX ISA 9.1, sections 5.2.3 (alternate formats) and 9.7.9.21 (cvt): "e4m3 [...] does not support
infinity and NaN is limited to 0x7f and 0xff"; of .satfinite "if the input value is NaN, then the result is NaN in the
specified destination format; if the absolute value of input (ignoring sign) is greater than MAX_NORM of the specified
destination format, then the result is sign-preserved MAX_NORM".
"""

from __future__ import annotations

import functools

import numpy as np

from .formats import Lanes

_NAN = 0x7F
#: By format: digits behind the leading one, what exponents are counted from, and the bits of the largest number.
_FORMATS = {"e4m3": (3, 7, 0x7E), "e5m2": (2, 15, 0x7B)}


@functools.cache
def _numbers(name: str) -> Lanes:
    """The numbers of all bits, in float32."""
    digits, bias, most = _FORMATS[name]
    bits = np.arange(128)
    exponent, fraction = bits >> digits, bits & ((1 << digits) - 1)
    leading = np.where(exponent > 0, 1 << digits, 0)
    numbers = np.ldexp((leading + fraction).astype(np.float32), np.maximum(exponent, 1) - bias - digits)
    if name == "e5m2":
        numbers[most + 1] = np.inf
        numbers[most + 2 :] = np.nan
    else:
        numbers[_NAN] = np.nan
    return np.concatenate([numbers, -numbers]).astype(np.float32)


def from_low_bits(name: str, bits: Lanes) -> Lanes:
    """float32 numbers of bits, exactly."""
    return _numbers(name)[bits]


def to_low_bits(name: str, x: Lanes) -> Lanes:
    """Bits nearest to numbers, ties to even; the largest finite number where they are too large."""
    numbers, size = _numbers(name)[: _FORMATS[name][2] + 1].astype(np.float64), np.abs(np.asarray(x, np.float64))
    middles = (numbers[:-1] + numbers[1:]) / 2
    below = np.searchsorted(middles, size, "left")
    tie = size == middles[np.minimum(below, middles.size - 1)]
    bits = np.where(tie, below + (below & 1), below)
    sign = np.where(np.signbit(x), 0x80, 0)
    return np.where(np.isnan(x), _NAN, bits | sign).astype(np.uint8)
