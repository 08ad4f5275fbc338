"""Taylor coefficients of elementary functions at an interval: arb's power series, and powers on the extended real line.

Each gives c_1, ..., c_d of f(x + t) = f(x) + c_1 t + ... + c_d t^d + ... from x and y = f(x). Nothing here is derived
from the table of derivative rules. What is a power, or a multiple of the function or its kin, has its coefficients
term by term, because a series of arb has no poles and infinities; of the others those that level off have the slope 0
at an infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial

import flint

from .functions import UNARY, polygamma, power
from .intervals import NAN, ONE, WHOLE, ZERO, Interval, add, divide, is_point, multiply, negative, point, subtract

#: (x, f(x), degree) -> the coefficients from the first on.
Series = Callable[[Interval, Interval, int], list[Interval]]
Unary = Callable[[flint.arb_series], flint.arb_series]


def _binomials(exponent: Interval, degree: int) -> list[Interval]:
    """binom(r, 1), ..., binom(r, degree)."""
    values = [ONE]
    for k in range(degree):
        values.append(divide(multiply(values[-1], subtract(exponent, point(k))), point(k + 1)))
    return values[1:]


def of_power(x: Interval, exponent: Interval, degree: int) -> list[Interval]:
    """binom(r, k) x^(r − k)."""
    return [
        # A coefficient that vanishes does so at a singularity of x^(r − k), too.
        ZERO if binomial.is_zero() else multiply(binomial, power(x, subtract(exponent, point(k))))
        for k, binomial in enumerate(_binomials(exponent, degree), 1)
    ]


def _root(order: int) -> Series:
    """binom(1/n, k) y^(1 − nk) of y = x^(1/n), which may be negative."""

    def series(x: Interval, y: Interval, degree: int) -> list[Interval]:
        binomials = _binomials(ONE / order, degree)
        return [multiply(b, power(y, point(1 - order * k))) for k, b in enumerate(binomials, 1)]

    return series


def _logarithm(base: int | None = None, shift: Interval = ZERO) -> Series:
    """−(−1/x)^k / k of a logarithm, divided by the logarithm of the base."""

    def series(x: Interval, y: Interval, degree: int) -> list[Interval]:
        scale = ONE if base is None else 1 / point(base).log()
        return [multiply(-scale * (-1) ** k / k, power(add(x, shift), point(-k))) for k in range(1, degree + 1)]

    return series


def _cycle(*kin: str, rate: Callable[[], Interval] = lambda: ONE) -> Series:
    """A function whose derivatives are functions by name, in turn, times powers of a rate."""

    def series(x: Interval, y: Interval, degree: int) -> list[Interval]:
        names = (kin[k % len(kin)] for k in range(degree))
        values = (negative(UNARY[name[1:]](x)) if name.startswith("-") else UNARY[name](x) for name in names)
        return [multiply(value, rate() ** k / factorial(k)) for k, value in enumerate(values, 1)]

    return series


def _of_arb(function: Unary, levels: bool = True) -> Series:
    """A series of arb; of a function that levels off at an infinity, zeros there."""

    def series(x: Interval, y: Interval, degree: int) -> list[Interval]:
        if levels and x.is_exact() and not x.is_finite():
            return [ZERO] * degree
        values = function(flint.arb_series([x, ONE], degree + 1)).coeffs()[1:]
        unknown = NAN if is_point(x) else WHOLE
        values = [c if c.is_finite() else unknown for c in values]
        return values + [ZERO] * (degree - len(values))  # arb leaves out the last ones that are zero

    return series


def _sigmoid(s: flint.arb_series) -> flint.arb_series:
    """By the exponential that does not overflow."""
    return 1 / (1 + (-s).exp()) if s[0] >= 0 else 1 - 1 / (1 + s.exp())


def of_polygamma(order: int, x: Interval, degree: int) -> list[Interval]:
    """The coefficients of ψ^(n), or for n = −1 of log Γ: ψ^(n + k) / k!."""
    return [divide(polygamma(order + k, x), point(factorial(k))) for k in range(1, degree + 1)]


#: By the names of primitives.
SERIES: dict[str, Series] = {
    "exp": _cycle("exp"), "expm1": _cycle("exp"), "exp2": _cycle("exp2", rate=flint.arb.const_log2),
    "log": _logarithm(), "log1p": _logarithm(shift=ONE), "log2": _logarithm(2), "log10": _logarithm(10),
    "sqrt": _root(2), "cbrt": _root(3), "square": lambda x, y, degree: of_power(x, 2 * ONE, degree),
    "sin": _cycle("cos", "-sin", "-cos", "sin"), "cos": _cycle("-sin", "-cos", "sin", "cos"),
    "sinh": _cycle("cosh", "sinh"), "cosh": _cycle("sinh", "cosh"), "sigmoid": _of_arb(_sigmoid),
    "tan": _of_arb(flint.arb_series.tan, levels=False), "tanh": _of_arb(lambda s: 2 * _sigmoid(2 * s)),
    "arcsin": _of_arb(flint.arb_series.asin, levels=False), "arccos": _of_arb(flint.arb_series.acos, levels=False),
    "arctan": _of_arb(flint.arb_series.atan), "arcsinh": _of_arb(lambda s: (1 + s * s).rsqrt().integral()),
    "arccosh": _of_arb(lambda s: ((s - 1) * (s + 1)).rsqrt().integral()),
    "arctanh": _of_arb(lambda s: ((1 + s).log() - (1 - s).log()) / 2),
    "erf": _of_arb(flint.arb_series.erf), "erfc": _of_arb(flint.arb_series.erfc),
    "gammaln": lambda x, y, degree: of_polygamma(-1, x, degree),
    # At zero that is the middle of the two one-sided slopes.
    "absolute": lambda x, y, degree: [UNARY["sign"](x), *[ZERO] * (degree - 1)],
    **dict.fromkeys(("floor", "ceil", "rint", "trunc", "sign"), lambda x, y, degree: [ZERO] * degree),
}  # fmt: skip


def coefficients(name: str, x: Interval, y: Interval, degree: int) -> list[Interval]:
    """The coefficients of a function by name; of NaN all of them are NaN."""
    return [x] * degree if x.is_nan() else SERIES[name](x, y, degree)
