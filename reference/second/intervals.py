"""Intervals of MPFR's numbers: arithmetic whose ends are rounded outwards, with IEEE 754's rules for special values.

An interval is a pair (low, high). Every result contains all results for numbers of its operands. A special value that
is known is a point, (∞, ∞) or (NaN, NaN); what is not known is `WHOLE`. There is one zero, as in the exact reading, so
that x / 0 is an infinity of the sign of x.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeAlias

import gmpy2

#: A number of MPFR; gmpy2 itself is untyped.
Mpfr: TypeAlias = Any
Interval: TypeAlias = tuple[Mpfr, Mpfr]


class Undecided(ArithmeticError):
    """A comparison of two intervals that overlap: a higher precision may decide it."""


class Directions:
    """The two roundings in use.

    Attributes:
        down, up: MPFR's contexts that round to either side; each has a method for every function. bits: of both.
    """

    def __init__(self, bits: int) -> None:
        self.set(bits)

    def set(self, bits: int) -> None:
        self.bits = bits
        self.down = gmpy2.context(precision=bits, round=gmpy2.RoundDown)
        self.up = gmpy2.context(precision=bits, round=gmpy2.RoundUp)


DEFAULT_BITS = 448
DIRECTED = Directions(DEFAULT_BITS)


@contextlib.contextmanager
def precision(bits: int) -> Iterator[None]:
    """A context in which intervals are evaluated with this number of bits."""
    before = DIRECTED.bits
    DIRECTED.set(bits)
    try:
        yield
    finally:
        DIRECTED.set(before)


_NOTHING = gmpy2.mpfr(0.0, 53)


def point(value: float) -> Interval:
    """A float64 number, exactly."""
    number = gmpy2.mpfr(value, 53) if value else _NOTHING  # of two zeros the positive one
    return number, number


INFINITY, NOT_A_NUMBER = gmpy2.inf(), gmpy2.nan()
ZERO, ONE, TWO = point(0.0), point(1.0), point(2.0)
NAN: Interval = (NOT_A_NUMBER, NOT_A_NUMBER)
WHOLE: Interval = (-INFINITY, INFINITY)


def is_point(x: Interval) -> bool:
    """Whether the interval is one value, NaN included."""
    low, high = x
    return bool(low == high or low != low)


def is_nan(x: Interval) -> bool:
    return bool(x[0] != x[0])


def is_zero(x: Interval) -> bool:
    """Whether the interval is zero and nothing else."""
    low, high = x
    return bool(low == 0 and high == 0)


def make_interval(low: Mpfr, high: Mpfr, *operands: Interval) -> Interval:
    """The interval of two ends; where an end is NaN, NaN if the operands make that sure, and `WHOLE` if they do not."""
    if low <= high:
        return low, high
    if any(map(is_nan, operands)) or all(map(is_point, operands)):
        return NAN
    return WHOLE


def hull(*parts: Interval) -> Interval:
    """The smallest interval that contains all of these."""
    if any(map(is_nan, parts)):
        return NAN if all(map(is_nan, parts)) else WHOLE
    return min(x[0] for x in parts), max(x[1] for x in parts)


def negative(x: Interval) -> Interval:
    low, high = x
    return DIRECTED.down.minus(high), DIRECTED.up.minus(low)


def add(x: Interval, y: Interval) -> Interval:
    (a, b), (c, d) = x, y
    low, high = DIRECTED.down.add(a, c), DIRECTED.up.add(b, d)
    return (low, high) if low <= high else make_interval(low, high, x, y)


def subtract(x: Interval, y: Interval) -> Interval:
    (a, b), (c, d) = x, y
    low, high = DIRECTED.down.sub(a, d), DIRECTED.up.sub(b, c)
    return (low, high) if low <= high else make_interval(low, high, x, y)


def multiply(x: Interval, y: Interval) -> Interval:
    (a, b), (c, d) = x, y
    down, up = DIRECTED.down.mul, DIRECTED.up.mul
    if a >= 0:
        if c >= 0:
            low, high = down(a, c), up(b, d)
        elif d <= 0:
            low, high = down(b, c), up(a, d)
        else:
            low, high = down(b, c), up(b, d)
    elif b <= 0 and c >= 0:
        low, high = down(a, d), up(b, c)
    elif b <= 0 and d <= 0:
        low, high = down(b, d), up(a, c)
    else:
        ends = [(p, q) for p in x for q in y]
        low, high = _least([down(p, q) for p, q in ends]), _most([up(p, q) for p, q in ends])
    if low <= high:
        return low, high
    # Zero times what is finite, however large its upper end has been rounded, is zero.
    if (is_zero(x) and not is_point(y)) or (is_zero(y) and not is_point(x)):
        return ZERO
    return make_interval(low, high, x, y)


def _least(numbers: list[Mpfr]) -> Mpfr:
    return NOT_A_NUMBER if any(n != n for n in numbers) else min(numbers)


def _most(numbers: list[Mpfr]) -> Mpfr:
    return NOT_A_NUMBER if any(n != n for n in numbers) else max(numbers)


def divide(x: Interval, y: Interval) -> Interval:
    (a, b), (c, d) = x, y
    down, up = DIRECTED.down.div, DIRECTED.up.div
    if c > 0 and a >= 0:
        return make_interval(down(a, d), up(b, c), x, y)
    if c > 0 or d < 0:
        ends = [(p, q) for p in x for q in y]
        return make_interval(_least([down(p, q) for p, q in ends]), _most([up(p, q) for p, q in ends]), x, y)
    return _over_zero(x, y)


def _over_zero(x: Interval, y: Interval) -> Interval:
    """A quotient whose divisor may be zero, or is NaN."""
    (a, b), (c, d) = x, y
    if is_nan(x) or is_nan(y):
        return NAN
    if is_zero(y):
        if a > 0:
            return INFINITY, INFINITY
        if b < 0:
            return -INFINITY, -INFINITY
        return NAN if is_zero(x) else WHOLE
    if is_zero(x):
        return WHOLE
    if c == 0 and a >= 0:
        return DIRECTED.down.div(a, d), INFINITY
    if c == 0 and b <= 0:
        return -INFINITY, DIRECTED.up.div(b, d)
    return WHOLE


def square(x: Interval) -> Interval:
    low, high = absolute(x)
    return make_interval(DIRECTED.down.mul(low, low), DIRECTED.up.mul(high, high), x)


def absolute(x: Interval) -> Interval:
    low, high = x
    if low >= 0 or is_nan(x):
        return x
    if high <= 0:
        return negative(x)
    return ZERO[0], max(DIRECTED.up.minus(low), high)


def below(x: Interval, y: Interval) -> bool:
    """Whether x < y; `Undecided` where the intervals overlap."""
    if is_nan(x) or is_nan(y):
        return False
    if x[1] < y[0]:
        return True
    if x[0] >= y[1]:
        return False
    raise Undecided


def equal(x: Interval, y: Interval) -> bool:
    """Whether x = y; `Undecided` where the intervals overlap and are not points."""
    if is_nan(x) or is_nan(y) or x[1] < y[0] or y[1] < x[0]:
        return False
    if is_point(x) and is_point(y):
        return True
    raise Undecided


def ratio(numerator: int, denominator: int) -> Interval:
    """A rational number."""
    return divide(point(numerator), point(denominator))
