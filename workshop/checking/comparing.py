"""An exact value beside an interval: whether one holds the other, and how far apart they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gmpy2
from mpmath import libmp

from opassay.reference.exact import DEFAULT_PRECISION, Raw
from opassay.reference.second.intervals import (
    INFINITY,
    NAN,
    ZERO,
    Interval,
    divide,
    is_nan,
    is_point,
    multiply,
    negative,
    subtract,
)
from opassay.reference.second.reading import RESIDUE_BITS, exponent_of, is_narrow

#: Beyond this binary exponent MPFR has no numbers, and mpmath has.
_MPFR_EXPONENTS = 2**30 - 4
#: Two precisions of the exact reading agree if they differ by at most 2^(−bits/2) of the value (`exact.agree`).
STATED_BITS = DEFAULT_PRECISION // 2
_LARGEST, _SMALLEST = gmpy2.exp2(_MPFR_EXPONENTS), gmpy2.exp2(-_MPFR_EXPONENTS)


with gmpy2.context(precision=2 * STATED_BITS):
    _STATED: Interval = (1 - gmpy2.exp2(-STATED_BITS), 1 + gmpy2.exp2(-STATED_BITS))


@dataclass(frozen=True)
class Finding:
    """What two readings say of one element.

    Attributes:
        kind: "agree", "wide" (the interval says too little), "singular" (a derivative, not finite in one of them, where
            conventions differ) or "disagree".
        apart: how far the exact value lies outside the interval, as an exponent of two of the value; None for not.
    """

    kind: str
    apart: int | None = None


AGREE, WIDE, SINGULAR = Finding("agree"), Finding("wide"), Finding("singular")


def interval_of(raw: Raw) -> Interval:
    """mpmath's number as an interval of MPFR's: a point, but for numbers beyond MPFR's exponents."""
    sign, mantissa, exponent, bits = raw
    if not mantissa:
        special = {libmp.finf: (INFINITY, INFINITY), libmp.fninf: (-INFINITY, -INFINITY), libmp.fnan: NAN}
        return special.get(raw, ZERO)
    number = gmpy2.mpfr(gmpy2.mpz(int(mantissa)), max(int(bits), 2))
    leading = int(exponent) + int(bits)
    if abs(leading) < _MPFR_EXPONENTS:
        move = gmpy2.mul_2exp if exponent >= 0 else gmpy2.div_2exp
        with gmpy2.context(precision=max(int(bits), 2)):
            number = move(-number if sign else number, abs(int(exponent)))
        return number, number
    ends = (_LARGEST, INFINITY) if leading > 0 else (ZERO[0], _SMALLEST)
    return negative(ends) if sign else ends


def _is_finite(x: Interval) -> bool:
    return bool(gmpy2.is_finite(x[0]) or gmpy2.is_finite(x[1]))


def compare_element(raw: Raw, interval: Interval, scale: int, order: int) -> Finding:
    """Whether the exact reading's value, give or take what it states of its own error, lies in the interval.

    Args:
        raw: the exact reading's value. interval: the second reading's.
        scale: the binary exponent of the largest number of the problem, against which a zero by cancellation is small.
        order: of the derivative; from order 1 on nothing is said of what is not finite.
    """
    value = interval_of(raw)
    if not is_narrow(interval, scale):
        return WIDE
    if not (_is_finite(value) and _is_finite(interval)):
        same = is_nan(value) == is_nan(interval) and (is_nan(value) or value == interval)
        return AGREE if same else SINGULAR if order else Finding("disagree")
    if max(exponent_of(value), exponent_of(interval)) <= scale - RESIDUE_BITS:
        return AGREE
    gap = _gap(value, interval)
    if gap is None:
        return AGREE
    stated = multiply(value, _STATED)
    near = _gap(stated, interval) is None
    relative = divide((gap, gap), value) if is_point(value) and value != ZERO else (INFINITY, INFINITY)
    apart = exponent_of(relative) if gmpy2.is_finite(relative[0]) else _MPFR_EXPONENTS
    return Finding("agree" if near else "disagree", apart)


def _gap(value: Interval, interval: Interval) -> Any:
    """How far the intervals are apart; None where they meet."""
    if value[1] < interval[0]:
        return subtract((interval[0],) * 2, (value[1],) * 2)[1]
    return subtract((value[0],) * 2, (interval[1],) * 2)[1] if interval[1] < value[0] else None
