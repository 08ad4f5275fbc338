"""Elementary functions of intervals: MPFR rounds each correctly, and where a function is monotone its ends are those.

A function that is not monotone is treated by where its extrema lie. Domains, poles and special values are IEEE 754's;
an interval that reaches out of a domain gives `WHOLE`, which a higher precision may narrow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import gmpy2

from .intervals import (
    DIRECTED,
    INFINITY,
    NAN,
    ONE,
    TWO,
    WHOLE,
    ZERO,
    Interval,
    Mpfr,
    absolute,
    add,
    divide,
    hull,
    is_nan,
    is_point,
    is_zero,
    make_interval,
    multiply,
    negative,
    point,
    square,
    subtract,
)

Unary = Callable[[Interval], Interval]
_MINUS_ONE = point(-1.0)[0]


def rising(name: str, least: float | None = None, most: float | None = None) -> Unary:
    """A function of MPFR that rises on its domain, which has no more than two ends."""
    return _monotone(name, least, most, lambda x: x)


def falling(name: str, least: float | None = None, most: float | None = None) -> Unary:
    """A function of MPFR that falls on its domain."""
    return _monotone(name, least, most, lambda x: (x[1], x[0]))


def _monotone(name: str, least: float | None, most: float | None, ends: Callable[[Interval], Interval]) -> Unary:
    def function(x: Interval) -> Interval:
        low, high = x
        if low != low or (least is not None and high < least) or (most is not None and low > most):
            return NAN
        if (least is not None and low < least) or (most is not None and high > most):
            return WHOLE
        first, last = ends(x)
        return make_interval(getattr(DIRECTED.down, name)(first), getattr(DIRECTED.up, name)(last), x)

    return function


def pi() -> Interval:
    return DIRECTED.down.const_pi(), DIRECTED.up.const_pi()


def log_2() -> Interval:
    return DIRECTED.down.const_log2(), DIRECTED.up.const_log2()


def _oscillating(name: str, first_top: float) -> Unary:
    """A sine or a cosine; its tops are at π (first_top + 2n) and its bottoms half way between."""

    def function(x: Interval) -> Interval:
        low, _high = x
        if low != low or (is_point(x) and not DIRECTED.down.is_finite(low)):
            return NAN
        if is_point(x):
            return getattr(DIRECTED.down, name)(low), getattr(DIRECTED.up, name)(low)
        turns = divide(x, pi())
        tops, bottoms = (_whole_inside(turns, shift) for shift in (first_top, first_top + 1.0))
        ends = [(getattr(DIRECTED.down, name)(e), getattr(DIRECTED.up, name)(e)) for e in x]
        if any(e[0] != e[0] for e in ends):
            return _MINUS_ONE, ONE[0]
        least, most = hull(*ends)
        return (_MINUS_ONE if bottoms else least), (ONE[0] if tops else most)

    return function


def _whole_inside(turns: Interval, shift: float) -> bool:
    """Whether (turns − shift) / 2 may contain a whole number."""
    low, high = divide(subtract(turns, point(shift)), TWO)
    return bool(DIRECTED.down.ceil(low) <= DIRECTED.up.floor(high))


def _tan(x: Interval) -> Interval:
    low, high = x
    if low != low or (is_point(x) and not DIRECTED.down.is_finite(low)):
        return NAN
    turns = subtract(divide(x, pi()), point(0.5))
    if DIRECTED.down.ceil(turns[0]) <= DIRECTED.up.floor(turns[1]):
        return WHOLE  # There may be a pole.
    return make_interval(DIRECTED.down.tan(low), DIRECTED.up.tan(high), x)


def _cosh(x: Interval) -> Interval:
    low, high = absolute(x)
    return make_interval(DIRECTED.down.cosh(low), DIRECTED.up.cosh(high), x)


def sigmoid(x: Interval) -> Interval:
    """1 / (1 + exp(−x)); of a positive x, whose exponential does not overflow, and of a negative one."""
    low, high = x
    if low != low:
        return NAN
    return _sigmoid_at(low)[0], _sigmoid_at(high)[1]


def _sigmoid_at(x: Mpfr) -> Interval:
    decay = rising("exp")(negative(absolute((x, x))))
    return divide(ONE if x >= 0 else decay, add(ONE, decay))


def _sign(x: Interval) -> Interval:
    low, high = x
    return NAN if low != low else hull(*(point((e > 0) - (e < 0)) for e in (low, high)))


def _rint(x: Interval) -> Interval:
    """The nearest whole numbers, even ones of two: MPFR rounds as its context says, so that is another context."""
    low, high = x
    nearest = gmpy2.context(precision=DIRECTED.bits, round=gmpy2.RoundToNearest).rint
    return make_interval(nearest(low), nearest(high), x)


#: Functions of one argument, by the names of primitives.
UNARY: dict[str, Unary] = {
    "negative": negative, "absolute": absolute, "square": square, "sqrt": rising("sqrt", 0.0),
    "exp": rising("exp"), "expm1": rising("expm1"), "exp2": rising("exp2"),
    "log": rising("log", 0.0), "log1p": rising("log1p", -1.0), "log2": rising("log2", 0.0),
    "log10": rising("log10", 0.0), "tanh": rising("tanh"), "sigmoid": sigmoid,
    "sin": _oscillating("sin", 0.5), "cos": _oscillating("cos", 0.0), "tan": _tan,
    "arcsin": rising("asin", -1.0, 1.0), "arccos": falling("acos", -1.0, 1.0), "arctan": rising("atan"),
    "sinh": rising("sinh"), "cosh": _cosh, "arcsinh": rising("asinh"), "arccosh": rising("acosh", 1.0),
    "arctanh": rising("atanh", -1.0, 1.0), "cbrt": rising("cbrt"), "erf": rising("erf"), "erfc": falling("erfc"),
    "floor": rising("rint_floor"), "ceil": rising("rint_ceil"), "rint": _rint, "trunc": rising("rint_trunc"),
    "sign": _sign,
}  # fmt: skip


def power(x: Interval, exponent: Interval) -> Interval:
    """IEEE 754's pow: for an exponent that is a point, by monotony; for others and positive bases, by the corners."""
    if is_zero(exponent) or x == ONE:
        return ONE
    if is_nan(x) or is_nan(exponent):
        return NAN
    low, high = x
    if low < 0 <= high and not is_point(x):
        return hull(power((low, ZERO[0]), exponent), power((ZERO[0], high), exponent)) if _is_whole(exponent) else WHOLE
    if low < 0 and not is_point(exponent):
        return WHOLE
    ends = [_power_at(p, q) for p in x for q in exponent]
    return make_interval(*hull(*ends), x, exponent)


def _is_whole(x: Interval) -> bool:
    return is_point(x) and bool(DIRECTED.down.is_finite(x[0])) and x[0] == DIRECTED.down.rint_floor(x[0])


def _power_at(base: Mpfr, exponent: Mpfr) -> Interval:
    if base == 0:  # There is one zero.
        return ZERO if exponent > 0 else (INFINITY, INFINITY)
    return make_interval(DIRECTED.down.pow(base, exponent), DIRECTED.up.pow(base, exponent))


def hypot(x: Interval, y: Interval) -> Interval:
    (a, b), (c, d) = absolute(x), absolute(y)
    return make_interval(DIRECTED.down.hypot(a, c), DIRECTED.up.hypot(b, d), x, y)


def arctan2(y: Interval, x: Interval) -> Interval:
    """The angle of (x, y): extreme at corners of the rectangle, unless that meets the negative half axis."""
    if is_nan(x) or is_nan(y):
        return NAN
    if not is_point(y) and y[0] <= 0 <= y[1] and x[0] <= 0:
        return WHOLE
    # An upward sum of a negative zero and zero is the positive zero, which is the one that there is.
    plain = DIRECTED.up.add
    pairs = [(plain(q, 0), plain(p, 0)) for p in x for q in y]
    corners = [(DIRECTED.down.atan2(*pair), DIRECTED.up.atan2(*pair)) for pair in pairs]
    return make_interval(*hull(*corners), x, y)


def logaddexp(x: Interval, y: Interval) -> Interval:
    """log(exp(x) + exp(y)), which rises in both."""
    if is_nan(x) or is_nan(y):
        return NAN
    return _logaddexp_at(x[0], y[0])[0], _logaddexp_at(x[1], y[1])[1]


def _logaddexp_at(p: Mpfr, q: Mpfr) -> Interval:
    most, least = max(p, q), min(p, q)
    if not DIRECTED.down.is_finite(most):
        return most, most
    gap = subtract((least, least), (most, most))
    return add((most, most), rising("log1p", -1.0)(rising("exp")(gap)))


def fmod(x: Interval, y: Interval) -> Interval:
    """What is left of x after multiples of y, with the sign of x; `WHOLE` where the quotient is not known."""
    if is_nan(x) or is_nan(y) or is_zero(y):
        return NAN
    if is_point(x) and not DIRECTED.down.is_finite(x[0]):
        return NAN
    if is_point(y) and not DIRECTED.down.is_finite(y[0]):
        return x
    quotient = UNARY["trunc"](divide(x, y))
    return subtract(x, multiply(quotient, y)) if is_point(quotient) else WHOLE


@functools.cache
def _extreme(largest: bool) -> Callable[[Interval, Interval], Interval]:
    choose = max if largest else min

    def function(x: Interval, y: Interval) -> Interval:
        return NAN if is_nan(x) or is_nan(y) else (choose(x[0], y[0]), choose(x[1], y[1]))

    return function


#: Functions of two arguments, by the names of primitives.
BINARY: dict[str, Callable[[Interval, Interval], Interval]] = {
    "power": power, "hypot": hypot, "arctan2": arctan2, "logaddexp": logaddexp, "fmod": fmod,
    "maximum": _extreme(True), "minimum": _extreme(False),
}  # fmt: skip
