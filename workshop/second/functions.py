"""Elementary functions of intervals: arb's, and what it lacks, on the extended real line.

An interval that reaches out of a domain gives `WHOLE`, which a higher precision may narrow. So does the exponential of
a number that is too large for a precision: with 448 bits arb's ends beyond 2^896, with 896 bits beyond every float.
"""

from __future__ import annotations

import operator

import flint

from .intervals import INFINITY, NAN, ONE, WHOLE, ZERO, Function, Interval, divide, extended, is_point, negative

arb = flint.arb


def sigmoid(x: Interval) -> Interval:
    return divide(ONE, 1 + UNARY["exp"](-x))


def _square(x: Interval) -> Interval:
    return x * x if x > 0 or x < 0 else (x * x).nonnegative_part()


def _cbrt(x: Interval) -> Interval:
    if x.contains(ZERO):
        largest = x.abs_upper().root(3)
        return largest.union(-largest)
    return x.root(3) if x > 0 else -(-x).root(3)


def _trunc(x: Interval) -> Interval:
    return x.floor() if x >= 0 else x.ceil() if x <= 0 else x.floor().union(x.ceil())


def _rint(x: Interval) -> Interval:
    """The nearest whole number, the even one of two; of an interval that is no point all that may be it."""
    low, high = (x - 0.5).ceil(), (x + 0.5).floor()
    if x.is_exact() and low.is_exact() and high.is_exact():
        return low if _is_even(low) else high
    return low.union(high)


_OF_ONE: dict[str, Function] = {
    "negative": operator.neg, "absolute": abs, "square": _square, "sqrt": arb.sqrt, "cbrt": _cbrt, "log": arb.log,
    "log1p": arb.log1p, "log2": lambda x: x.log_base(2), "log10": lambda x: x.log_base(10), "tanh": arb.tanh,
    "sin": arb.sin, "cos": arb.cos, "tan": arb.tan, "arcsin": arb.asin, "arccos": arb.acos, "arctan": arb.atan,
    "arcsinh": arb.asinh, "arccosh": arb.acosh, "arctanh": arb.atanh, "erf": arb.erf, "erfc": arb.erfc,
    "exp": arb.exp, "expm1": arb.expm1, "sinh": arb.sinh, "cosh": arb.cosh,
    "floor": arb.floor, "ceil": arb.ceil, "rint": _rint, "trunc": _trunc, "sign": arb.sgn,
}  # fmt: skip
#: Functions of one argument, by the names of primitives.
UNARY: dict[str, Function] = {name: extended(name, function) for name, function in _OF_ONE.items()}
UNARY |= {"sigmoid": sigmoid, "exp2": lambda x: power(arb(2), x)}


def _logarithm_of_gamma(x: Interval) -> Interval:
    """log |Γ(x)|, whose poles are no landmarks: from Γ(x) Γ(1 − x) = π / sin(πx) where x is negative."""
    if x.is_nan():
        return x
    if is_point(x) and (not x.is_finite() or (x.is_integer() and x <= 0)):
        return INFINITY
    value = x.lgamma() if x > 0 else (arb.pi() / abs(x.sin_pi())).log() - (1 - x).lgamma()
    return value if value.is_finite() else WHOLE


UNARY["gammaln"] = _logarithm_of_gamma


def polygamma(order: int, x: Interval) -> Interval:
    """The derivative of log Γ of order n + 1; with both signs at a pole there is none, but at zero that of +0."""
    if x.is_nan() or x == -INFINITY:
        return NAN
    if x == INFINITY:
        return ZERO if order else INFINITY
    if is_point(x) and x.is_integer() and x <= 0:
        return INFINITY if order % 2 else -INFINITY if x == 0 else NAN
    value = flint.acb(x).polygamma(flint.acb(order)).real if order else x.digamma()
    return value if value.is_finite() else WHOLE


def _power(x: Interval, exponent: Interval) -> Interval:
    if exponent.is_integer() and exponent > 0 and x.contains(ZERO) and not x.is_exact():
        largest = x.abs_upper() ** exponent  # arb takes a logarithm, of a base that may be zero, too
        return largest.union(ZERO if _is_even(exponent) else -largest)
    return x**exponent


def _is_even(x: Interval) -> bool:
    return bool((x / 2).is_integer())


_of_bases = extended("power", _power)


def power(x: Interval, exponent: Interval) -> Interval:
    """IEEE 754's pow: a power of −x, where that is one of x but for the sign, which is that of (−1)^n."""
    whole = exponent.is_integer()
    if x < 0 and exponent.contains_integer() and not is_point(exponent):
        return WHOLE
    if not ((x < 0 and whole) or x == -INFINITY):
        return _of_bases(x, exponent)
    value = _of_bases(negative(x), exponent)
    return negative(value) if whole and not _is_even(exponent) else value


def _arctan2(y: Interval, x: Interval) -> Interval:
    if abs(x) == INFINITY and abs(y) == INFINITY:
        return arb.atan2(y.sgn(), x.sgn())
    return arb.atan2(y, x)


def _fmod(x: Interval, y: Interval) -> Interval:
    """What remains of x after multiples of y, with the sign of x; where the quotient is known."""
    if abs(y) == INFINITY and x.is_finite():
        return x
    whole = _trunc(x / y)
    return x - whole * y if whole.is_exact() else WHOLE


def _logaddexp(x: Interval, y: Interval) -> Interval:
    return x.max(y) + (-abs(x - y)).exp().log1p()


_OF_TWO: dict[str, Function] = {
    "hypot": lambda x, y: (x * x + y * y).nonnegative_part().sqrt(), "arctan2": _arctan2, "logaddexp": _logaddexp,
    "fmod": _fmod, "maximum": arb.max, "minimum": arb.min,
}  # fmt: skip
#: Functions of two arguments, by the names of primitives.
BINARY: dict[str, Function] = {name: extended(name, function) for name, function in _OF_TWO.items()}
BINARY["power"] = power
