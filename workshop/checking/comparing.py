"""An exact value beside an interval: whether one holds the other, and how far apart they are."""

from __future__ import annotations

from dataclasses import dataclass

from mpmath import libmp

from opassay.reference.exact import DEFAULT_PRECISION, Raw
from workshop.second import Interval, precision
from workshop.second.intervals import INFINITY, NAN, ONE, ZERO, point
from workshop.second.reading import PRECISIONS, RESIDUE_BITS, exponent_of, is_narrow

#: Two precisions of the exact reading agree if they differ by at most 2^(−bits/2) of the value (`exact.agree`).
STATED_BITS = DEFAULT_PRECISION // 2
_STATED = point(ONE, (1, -STATED_BITS))
#: What the distance from an exact zero counts as.
_LARGEST_APART = 2**30


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
    """mpmath's number as a point."""
    sign, mantissa, exponent, _bits = raw
    if not mantissa:
        return {libmp.finf: INFINITY, libmp.fninf: -INFINITY, libmp.fnan: NAN}.get(raw, ZERO)
    return point((-int(mantissa) if sign else int(mantissa), int(exponent)))


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
    if not (value.is_finite() and interval.is_finite()):
        same = value.is_nan() == interval.is_nan() and (value.is_nan() or value == interval)
        return AGREE if same else SINGULAR if order else Finding("disagree")
    if max(exponent_of(value), exponent_of(interval)) <= scale - RESIDUE_BITS or interval.contains(value):
        return AGREE
    with precision(PRECISIONS[-1]):
        near = interval.overlaps(value * _STATED)
        gap = (value - interval).abs_lower()
        apart = _LARGEST_APART if value.is_zero() else exponent_of(gap / value)
    return Finding("agree" if near else "disagree", apart)
