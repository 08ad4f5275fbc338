"""The logarithm of the gamma function and the polygamma functions, on mpmath's raw numbers, to any number of bits.

Both are accurate to the last bit near their zeros, too: where the sum of mpmath's terms is small relative to the terms,
it is computed again with more bits. At poles and infinities the value is the two-sided limit, or NaN if there is none.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

from mpmath import libmp

#: mpmath's raw number, `formats.Raw`; mpmath itself is untyped.
Raw: TypeAlias = Any

#: How many bits more than requested are computed if no term is larger than the result.
_GUARD = 20


def _to_relative(function: Callable[[int], Raw], size: int, bits: int) -> Raw:
    """A value with a relative error of about 2^−bits, computed with more bits where cancellation loses them.

    Args:
        function: (precision) -> the value with an absolute error of about 2^(size − precision).
        size: the binary exponent of the largest term.
    """
    more = _GUARD + max(size, 0)
    while True:
        value = function(bits + more)
        lost = -(value[2] + value[3]) if value[1] else more
        if lost + size + _GUARD <= more + 10 or more > 8 * bits + 4 * abs(size):
            return libmp.mpf_pos(value, bits, "n")
        more = 2 * more + lost


def _is_pole(x: Raw) -> bool:
    """Whether x is zero or a negative whole number."""
    return x == libmp.fzero or bool(x[0] and x[1] and x[2] >= 0)


def _exponent(x: Raw) -> int:
    """About log2 |x|."""
    size: int = x[2] + x[3]
    return size


def log_gamma(x: Raw, bits: int) -> Raw:
    """log |Γ(x)|; ∞ at zero, at negative whole numbers and at both infinities."""
    if x == libmp.fnan:
        return x
    if x in (libmp.finf, libmp.fninf) or _is_pole(x):
        return libmp.finf

    def at(precision: int) -> Raw:
        if not x[0]:
            return libmp.mpf_loggamma(x, precision, "n")
        # Γ(x) Γ(1 − x) = π / sin(πx), DLMF 5.5.3
        sine = libmp.mpf_abs(libmp.mpf_sin_pi(x, precision))
        quotient = libmp.mpf_div(libmp.mpf_pi(precision), sine, precision)
        other = libmp.mpf_loggamma(libmp.mpf_sub(libmp.fone, x), precision)
        return libmp.mpf_sub(libmp.mpf_log(quotient, precision), other, precision)

    return _to_relative(at, 2 * _exponent(x) if x[0] else 0, bits)


def polygamma(order: int, x: Raw, bits: int) -> Raw:
    """ψ^(n)(x), the derivative of order n + 1 of log Γ; digamma for n = 0.

    Of an odd order it is ∞ at a pole; of an even one it has either sign there and is NaN, at zero that of +0.
    """
    if x in (libmp.fnan, libmp.fninf):
        return libmp.fnan
    if x == libmp.finf:
        return libmp.fzero if order else x
    if _is_pole(x):
        return libmp.finf if order % 2 else libmp.fninf if x == libmp.fzero else libmp.fnan
    return _to_relative(lambda precision: _polygamma(order, x, precision), 0, bits)


def _polygamma(order: int, x: Raw, precision: int) -> Raw:
    if not order:
        return libmp.mpf_psi0(x, precision)
    if not x[0]:
        return libmp.mpf_psi(order, x, precision)
    # ψ^(n)(x) = (−1)^n ψ^(n)(1 − x) − π dⁿ cot(πx)/dxⁿ, DLMF 5.15.6; mpmath would add up as many terms as −x has ones.
    other = libmp.mpf_psi(order, libmp.mpf_sub(libmp.fone, x), precision)
    cosine, sine = libmp.mpf_cos_sin_pi(x, precision)
    cotangent, pi = libmp.mpf_div(cosine, sine, precision), libmp.mpf_pi(precision)
    slope = libmp.fzero
    for coefficient in reversed(cotangent_slope(order)):
        slope = libmp.mpf_mul(slope, cotangent, precision)
        slope = libmp.mpf_add(slope, libmp.from_int(coefficient), precision)
    slope = libmp.mpf_mul(slope, libmp.mpf_pow_int(pi, order + 1, precision), precision)
    return libmp.mpf_sub(libmp.mpf_neg(other) if order % 2 else other, slope, precision)


@functools.cache
def cotangent_slope(order: int) -> tuple[int, ...]:
    """The derivative of that order of cot t, as coefficients of the powers of cot t, whose slope is −1 − cot² t."""
    powers = [0, 1]
    for _ in range(order):
        slope = [k * c for k, c in enumerate(powers)][1:]
        powers = [-a - b for a, b in itertools.zip_longest(slope, [0, 0, *slope], fillvalue=0)]
    return tuple(powers)
