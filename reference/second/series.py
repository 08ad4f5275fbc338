"""Taylor coefficients of elementary functions at an interval, by their differential equations.

Each gives c_1, ..., c_d of f(x + t) = f(x) + c_1 t + ... + c_d t^d + ... from x and y = f(x). Nothing here is derived
from the table of derivative rules: a function is known by its value and by an equation that it satisfies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from .functions import UNARY, log_2, pi, power
from .intervals import (
    ONE,
    TWO,
    ZERO,
    Interval,
    add,
    divide,
    is_nan,
    multiply,
    negative,
    point,
    square,
    subtract,
)

#: (x, f(x), degree) -> the coefficients from the first on.
Series = Callable[[Interval, Interval, int], list[Interval]]


def _sum(parts: Sequence[Interval]) -> Interval:
    return functools.reduce(add, parts, ZERO)


def _scale(x: Interval, numerator: int, denominator: int) -> Interval:
    return divide(multiply(x, point(numerator)), point(denominator))


def _product(a: Sequence[Interval], b: Sequence[Interval], number: int) -> Interval:
    """The coefficient of that number of the product of two series."""
    return _sum([multiply(a[i], b[number - i]) for i in range(number + 1)])


def _exponential(x: Interval, y: Interval, degree: int) -> list[Interval]:
    coeffs, last = [], y
    for k in range(1, degree + 1):
        last = _scale(last, 1, k)
        coeffs.append(last)
    return coeffs


def _of_expm1(x: Interval, y: Interval, degree: int) -> list[Interval]:
    return _exponential(x, UNARY["exp"](x), degree)


def _of_exp2(x: Interval, y: Interval, degree: int) -> list[Interval]:
    scale, coeffs, last = log_2(), [], y
    for k in range(1, degree + 1):
        last = _scale(multiply(last, scale), 1, k)
        coeffs.append(last)
    return coeffs


def _logarithm(base: Callable[[], Interval] | None = None, shift: Interval = ZERO) -> Series:
    """c_k = −(−1/x)^k / k of a logarithm; divided by the logarithm of the base."""

    def series(x: Interval, y: Interval, degree: int) -> list[Interval]:
        slope = divide(ONE, add(x, shift))
        coeffs, last = [], slope if base is None else divide(slope, base())
        for k in range(1, degree + 1):
            coeffs.append(_scale(last, 1, k))
            last = negative(multiply(last, slope))
        return coeffs

    return series


def of_power(x: Interval, exponent: Interval, degree: int) -> list[Interval]:
    """binom(r, k) x^(r − k)."""
    coeffs, binomial = [], ONE
    for k in range(1, degree + 1):
        binomial = _scale(multiply(binomial, subtract(exponent, point(k - 1))), 1, k)
        # A coefficient that vanishes does so at a singularity of x^(r − k), too.
        zero = binomial == ZERO
        coeffs.append(ZERO if zero else multiply(binomial, power(x, subtract(exponent, point(k)))))
    return coeffs


def _root(denominator: int) -> Series:
    """x^(1/n), of which y' = y / (n x)."""

    def series(x: Interval, y: Interval, degree: int) -> list[Interval]:
        # y / x is 1 / y^(n−1), which is infinite at zero and not 0 / 0.
        slope, coeffs = divide(ONE, functools.reduce(multiply, [y] * (denominator - 1))), list[Interval]()
        last = _scale(slope, 1, denominator)
        for k in range(1, degree + 1):
            coeffs.append(last)
            last = divide(_scale(last, 1 - denominator * k, denominator * (k + 1)), x)
        return coeffs

    return series


def _pair(signs: tuple[int, int], first: bool, other: str) -> Series:
    """A pair u' = p v, v' = q u: sine and cosine, or their hyperbolic kin."""

    def series(x: Interval, y: Interval, degree: int) -> list[Interval]:
        partner = UNARY[other](x)
        u, v = (y, partner) if first else (partner, y)
        coeffs = []
        for k in range(1, degree + 1):
            u, v = _scale(v, signs[0], k), _scale(u, signs[1], k)
            coeffs.append(u if first else v)
        return coeffs

    return series


def _riccati(sign: int) -> Series:
    """y' = 1 + sign y²."""

    def series(x: Interval, y: Interval, degree: int) -> list[Interval]:
        coeffs = [y]
        for k in range(degree):
            slope = _scale(_product(coeffs, coeffs, k), sign, 1)
            coeffs.append(_scale(add(slope, ONE) if k == 0 else slope, 1, k + 1))
        return coeffs[1:]

    return series


def _of_sigmoid(x: Interval, y: Interval, degree: int) -> list[Interval]:
    """y' = y z and z' = −y z, with z = 1 / (1 + exp(x))."""
    ys, zs = [y], [UNARY["sigmoid"](negative(x))]
    for k in range(degree):
        ys.append(_scale(_product(ys, zs, k), 1, k + 1))
        zs.append(negative(ys[-1]))
    return ys[1:]


def _integral_of_power(exponent: tuple[int, int], constant: int, quadratic: int, sign: int = 1) -> Series:
    """y' = sign (a + b x²)^r: inverse functions of angles and hyperbolic ones."""

    def series(x: Interval, y: Interval, degree: int) -> list[Interval]:
        # The quadratic as a series in t, and its power s by k d_0 s_k = Σ_j (r j − (k − j)) d_j s_{k−j}.
        twice = _scale(x, 2 * quadratic, 1)
        d = [_factor(x, constant, quadratic), twice, point(quadratic)]
        numerator, denominator = exponent
        s = [divide(ONE, d[0])] if denominator == 1 else [divide(ONE, UNARY["sqrt"](d[0]))]
        for k in range(1, degree):
            terms = [
                _scale(multiply(d[j], s[k - j]), numerator * j - denominator * (k - j), denominator)
                for j in range(1, min(k, 2) + 1)
            ]
            s.append(divide(_sum(terms), _scale(d[0], k, 1)))
        return [_scale(s[k], sign, k + 1) for k in range(degree)]

    return series


def _factor(x: Interval, constant: int, quadratic: int) -> Interval:
    """a + b x²; a difference of squares as a product, which is exact at ±1."""
    if constant * quadratic > 0:
        return add(point(constant), _scale(square(x), quadratic, 1))
    product = multiply(subtract(ONE, x), add(ONE, x))
    return product if constant > 0 else negative(product)


def _gaussian(sign: int) -> Series:
    """y' = ± 2/√π exp(−x²)."""

    def series(x: Interval, y: Interval, degree: int) -> list[Interval]:
        exponent = [negative(square(x)), _scale(x, -2, 1), point(-1)]
        g = [UNARY["exp"](exponent[0])]
        for k in range(1, degree):
            g.append(
                _scale(_sum([_scale(multiply(exponent[j], g[k - j]), j, 1) for j in range(1, min(k, 2) + 1)]), 1, k)
            )
        scale = divide(TWO, UNARY["sqrt"](pi()))
        return [_scale(multiply(scale, g[k]), sign, k + 1) for k in range(degree)]

    return series


def _of_absolute(x: Interval, y: Interval, degree: int) -> list[Interval]:
    """±1, and at zero the middle of the two one-sided slopes."""
    return [UNARY["sign"](x), *[ZERO] * (degree - 1)]


def _flat(x: Interval, y: Interval, degree: int) -> list[Interval]:
    return [ZERO] * degree


def _log_10() -> Interval:
    return UNARY["log"](point(10))


def reciprocal(x: Interval, degree: int) -> list[Interval]:
    """The coefficients of 1 / (x + t)."""
    slope, coeffs = divide(ONE, x), list[Interval]()
    last = slope
    for _ in range(degree):
        last = negative(multiply(last, slope))
        coeffs.append(last)
    return coeffs


_STEPS = ("floor", "ceil", "rint", "trunc", "sign")
#: By the names of primitives.
SERIES: dict[str, Series] = {
    "exp": _exponential, "expm1": _of_expm1, "exp2": _of_exp2,
    "log": _logarithm(), "log1p": _logarithm(shift=ONE), "log2": _logarithm(log_2), "log10": _logarithm(_log_10),
    "sqrt": _root(2), "cbrt": _root(3), "square": lambda x, y, degree: [multiply(TWO, x), ONE, ZERO, ZERO][:degree],
    "sin": _pair((1, -1), True, "cos"), "cos": _pair((1, -1), False, "sin"), "tan": _riccati(1),
    "sinh": _pair((1, 1), True, "cosh"), "cosh": _pair((1, 1), False, "sinh"), "tanh": _riccati(-1),
    "sigmoid": _of_sigmoid, "arctan": _integral_of_power((-1, 1), 1, 1),
    "arctanh": _integral_of_power((-1, 1), 1, -1), "arcsin": _integral_of_power((-1, 2), 1, -1),
    "arccos": _integral_of_power((-1, 2), 1, -1, -1), "arcsinh": _integral_of_power((-1, 2), 1, 1),
    "arccosh": _integral_of_power((-1, 2), -1, 1), "erf": _gaussian(1), "erfc": _gaussian(-1),
    "absolute": _of_absolute, **dict.fromkeys(_STEPS, _flat),
}  # fmt: skip


def coefficients(name: str, x: Interval, y: Interval, degree: int) -> list[Interval]:
    """The coefficients of a function by name; of NaN all of them are NaN."""
    return [x] * degree if is_nan(x) else SERIES[name](x, y, degree)
