"""Functions of a complex number that libraries compute in several ways, on its parts.

Each takes the parts as arrays, and gives those of the result along a last axis. The ways of a function are those of
libraries, in which neither part is lost beside the other: glibc's, W. Kahan's ("Branch Cuts for Complex Elementary
Functions", 1987), which CUDA's Thrust and FreeBSD have, and torch's own. An analytic function has one complex slope;
torch multiplies the conjugate of the slope, computed from the result, with the gradient.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ....reference.algorithms import Algorithm, Inapplicable
from ....reference.array import among, attach, attach_slopes, constant, order_of
from .parts import divide_by_larger_part, divide_by_square, holds_zero, open_at_zero
from .table import LIBRARY, RULES

#: A complex number, or an array of them.
Pair = tuple[Any, Any]
Way = Callable[..., Pair]

#: Beyond this size the square of exp(−|x|) is nothing beside one, in all formats; no hyperbolic function overflows.
_LARGE = 40.0


def _multiply(x: Pair, y: Pair) -> Pair:
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def _reciprocals() -> list[Callable[[Pair], Pair]]:
    """The reciprocal by the formula of school, and by R. L. Smith's."""

    def by(divide: Callable[..., Any]) -> Callable[[Pair], Pair]:
        def reciprocal(x: Pair) -> Pair:
            quotient = divide(np.ones(np.shape(x[0])), np.zeros(np.shape(x[0])), *x)
            return quotient[..., 0], quotient[..., 1]

        return reciprocal

    return [by(divide_by_square), by(divide_by_larger_part)]


def _exponential(x: Pair) -> Pair:
    size = np.exp(x[0])
    return size * np.cos(x[1]), size * np.sin(x[1])


def _logarithm(x: Pair) -> Pair:
    return np.log(np.hypot(*x)), np.arctan2(x[1], x[0])


def _root(x: Pair) -> Pair:
    """The larger part by a root, and the other one by a quotient."""
    larger = np.sqrt((np.hypot(*x) + np.absolute(x[0])) * 0.5)
    smaller = x[1] / (2.0 * np.where(np.equal(larger, 0.0), 1.0, larger))
    right = x[0] >= 0.0
    return np.where(right, larger, np.absolute(smaller)), np.where(right, smaller, np.copysign(larger, x[1]))


def _tanh(a: Any, b: Any) -> Pair:
    """By powers of exp(−2 |a|), none of which overflows."""
    size = np.absolute(a)
    power, rise, cos = np.exp(-2.0 * size), -np.expm1(-2.0 * size), np.cos(b)
    divisor = rise * rise + 4.0 * power * (cos * cos)
    return np.copysign(rise, a) * (1.0 + power) / divisor, 4.0 * power * (np.sin(b) * cos) / divisor


def _tanh_of_glibc(a: Any, b: Any) -> Pair:
    sinh, cos = np.sinh(a), np.cos(b)
    divisor = sinh * sinh + cos * cos
    return sinh * np.cosh(a) / divisor, np.sin(b) * cos / divisor


def _tanh_of_kahan(a: Any, b: Any) -> Pair:
    tan, sinh = np.tan(b), np.sinh(a)
    beta = 1.0 + tan * tan
    divisor = 1.0 + beta * sinh * sinh
    return beta * np.sqrt(1.0 + sinh * sinh) * sinh / divisor, tan / divisor


def _where_small(way: Way) -> Way:
    """A way to the hyperbolic tangent, and `_tanh` where the former overflows."""

    def rule(a: Any, b: Any) -> Pair:
        large, (real, imaginary) = np.absolute(a) > _LARGE / 2, _tanh(a, b)
        others = way(np.where(large, 0.0, a), b)
        return np.where(large, real, others[0]), np.where(large, imaginary, others[1])

    return rule


def _slope_of_tanh(y: Pair, a: Any, b: Any) -> Pair:
    square = _multiply(y, y)
    return 1.0 - square[0], -square[1]


def _sigmoid(reciprocal: Callable[[Pair], Pair], a: Any, b: Any) -> Pair:
    power = _exponential((-a, -b))
    return reciprocal((1.0 + power[0], power[1]))


def _slope_of_sigmoid(y: Pair, a: Any, b: Any) -> Pair:
    return _multiply((1.0 - y[0], -y[1]), y)


def _expm1(a: Any, b: Any) -> Pair:
    half = np.sin(b * 0.5)
    return np.expm1(a) * np.cos(b) - 2.0 * (half * half), np.exp(a) * np.sin(b)


def _log1p(threshold: float, a: Any, b: Any) -> Pair:
    """Near zero by the real logarithm of 1 + p, and elsewhere by the distance from −1."""
    near, shift = np.hypot(a, b) < threshold, a + 1.0
    rise = np.where(near, a * (2.0 + a) + b * b, 0.0)
    far = np.log(np.hypot(np.where(near, 1.0, shift), np.where(near, 0.0, b)))
    angle = np.where(near, np.arctan(b / np.where(near, shift, 1.0)), np.arctan2(b, shift))
    return np.where(near, 0.5 * np.log1p(rise), far), angle


def _log1p_by_quotient(threshold: float, a: Any, b: Any) -> Pair:
    """Kahan's log(u) z / (u − 1), u = z + 1, as torch has it.

    The errors of u cancel. Those of a quotient that is one, and of a product, remain, relative to the whole.
    """
    is_zero = np.logical_and(np.equal(a, 0.0), np.equal(b, 0.0))
    quotient = divide_by_square(*(np.where(is_zero, 1.0, x) for x in (a, b, a, b)))
    one = quotient[..., 0], quotient[..., 1]
    return _multiply(_multiply(_log1p(threshold, a, b), one), one)


def _rsqrt(reciprocal: Callable[[Pair], Pair], a: Any, b: Any) -> Pair:
    return reciprocal(_root((a, b)))


def _slope_of_rsqrt(y: Pair, a: Any, b: Any) -> Pair:
    cube = _multiply(_multiply(y, y), y)
    return -0.5 * cube[0], -0.5 * cube[1]


def _roots_beside_one(a: Any, b: Any) -> tuple[Pair, Pair]:
    """Of 1 − z and of 1 + z."""
    return _root((1.0 - a, -b)), _root((1.0 + a, b))


def _asin(a: Any, b: Any) -> Pair:
    """W. Kahan's; neither part is a difference."""
    (p, q), (r, s) = _roots_beside_one(a, b)
    return np.arctan2(a, p * r - q * s), np.arcsinh(p * s - q * r)


def _acos(a: Any, b: Any) -> Pair:
    (p, q), (r, s) = _roots_beside_one(a, b)
    return 2.0 * np.arctan2(p, r), np.arcsinh(r * q - s * p)


def _acosh(a: Any, b: Any) -> Pair:
    (p, q), (r, s) = _root((a - 1.0, b)), _root((a + 1.0, b))
    return np.arcsinh(p * r + q * s), 2.0 * np.arctan2(q, r)


def _on_both_sides(way: Way) -> list[Way]:
    """A way, and that by the conjugate: the side of a cut is the sign of a zero, which no reading has."""

    def by_conjugate(a: Any, b: Any) -> Pair:
        p, q = way(a, -b)
        return p, -q

    return [way, by_conjugate]


def _atanh(a: Any, b: Any) -> Pair:
    size, square = np.absolute(a), b * b
    divisor = (1.0 - size) * (1.0 - size) + square
    rise = np.log1p(4.0 * size / divisor)
    return np.copysign(0.25 * rise, a), 0.5 * np.arctan2(2.0 * b, (1.0 - a) * (1.0 + a) - square)


def _slope_of_asin(reciprocal: Callable[[Pair], Pair], sign: float, y: Pair, a: Any, b: Any) -> Pair:
    """± 1 / √(1 − z²)."""
    square = _multiply((a, b), (a, b))
    p, q = reciprocal(_root((1.0 - square[0], -square[1])))
    return sign * p, sign * q


def _slope_of_acosh(reciprocal: Callable[[Pair], Pair], y: Pair, a: Any, b: Any) -> Pair:
    return _multiply(reciprocal(_root((a + 1.0, b))), reciprocal(_root((a - 1.0, b))))


def _slope_of_atanh(reciprocal: Callable[[Pair], Pair], y: Pair, a: Any, b: Any) -> Pair:
    square = _multiply((a, b), (a, b))
    return reciprocal((1.0 - square[0], -square[1]))


def _power(a: Any, b: Any, c: Any, d: Any) -> Pair:
    """exp((c + i d) log(a + i b)), as every library has it."""
    return _exponential(_multiply(_logarithm((a, b)), (c, d)))


def _slope_in_base(power: Way, y: Pair, a: Any, b: Any, c: Any, d: Any) -> Pair:
    return _multiply((c, d), power(a, b, c - 1.0, d))


def _whole_power(exponent: int, reciprocal: Callable[[Pair], Pair], a: Any, b: Any) -> Pair:
    """A power by squares and products of them."""
    power: Pair | None = None
    square, rest = (a, b), abs(exponent)
    while rest:
        power = square if rest % 2 and power is None else _multiply(power, square) if rest % 2 and power else power
        square, rest = _multiply(square, square) if rest > 1 else square, rest // 2
    assert power is not None
    return reciprocal(power) if exponent < 0 else power


def _of_slopes(way: Way, slopes: tuple[Callable[..., Pair], ...], *parts: Any) -> Any:
    """A way whose derivatives are those of complex slopes in the operands, two parts each."""
    y, pairs = way(*parts), tuple(zip(parts[::2], parts[1::2], strict=True))
    numbers = [slope(y, *parts) for slope in slopes]
    real = [s for (a, b), (p, q) in zip(pairs, numbers, strict=True) for s in ((a, p), (b, -q))]
    imaginary = [s for (a, b), (p, q) in zip(pairs, numbers, strict=True) for s in ((a, q), (b, p))]
    return np.stack([attach_slopes(y[0], *real), attach_slopes(y[1], *imaginary)], axis=-1)


def _among(ways: Sequence[Way], slopes: Sequence[tuple[Callable[..., Pair], ...]], *parts: Any) -> Any:
    texts = [functools.partial(lambda way, *parts: np.stack(way(*parts), axis=-1), way) for way in ways]
    texts += [functools.partial(_of_slopes, way, each) for way in ways for each in slopes]
    return among([Algorithm(text, "") for text in texts], *parts)


def _open_where_infinite(rule: Callable[..., Any], a: Any, b: Any) -> Any:
    """A function whose values at infinite parts are limits, which not all libraries have, and which are not judged."""
    return open_at_zero((1.0, 1.0), rule(a, b), a, b)


def _raise(a: Any, b: Any, c: Any, d: Any) -> Any:
    """(a + i b) to the power (c + i d). Of zero, libraries have values of their own, and it is not judged."""
    slopes = [(functools.partial(_slope_in_base, _power), lambda y, a, b, c, d: _multiply(y, _logarithm((a, b))))]
    return open_at_zero((a, b), _among([_power], slopes, a, b, c, d), a, b, c, d)


def _raise_to_whole(a: Any, b: Any, exponent: int) -> Any:
    """(a + i b) to the power of a whole number, by products or as any other power; where it is zero as `_raise`."""

    def ways(exponent: int) -> list[Way]:
        products = [functools.partial(_whole_power, exponent, each) for each in _RECIPROCALS]
        return [*products[: 1 if exponent > 0 else 2], lambda a, b: _power(a, b, float(exponent), 0.0)]

    def slope(power: Way, y: Pair, a: Any, b: Any) -> Pair:
        p, q = power(a, b)
        return exponent * p, exponent * q

    slopes = [(functools.partial(slope, each),) for each in ways(exponent - 1)]
    return open_at_zero((a, b), _among(ways(exponent), slopes, a, b), a, b)


def _in_turn(factors: Sequence[Pair]) -> list[Pair]:
    return list(itertools.accumulate(factors, _multiply))


def _by_halves(factors: Sequence[Pair]) -> Pair:
    half = len(factors) // 2
    return factors[0] if not half else _multiply(_by_halves(factors[:half]), _by_halves(factors[half:]))


def _product(a: Any, b: Any) -> Any:
    """The product along the first axis, in any order; gradients are products, or quotients of the whole by a factor."""

    def by(multiply: Callable[[Sequence[Pair]], Pair], divide: Callable[..., Any] | None, a: Any, b: Any) -> Any:
        y = multiply(_factors(a, b))
        return np.stack(y if divide is None else _with_quotients(y, a, b, divide), axis=-1)

    orders = [lambda factors: _in_turn(factors)[-1], lambda factors: _in_turn(factors[::-1])[-1], _by_halves]
    return _among_orders([functools.partial(by, each) for each in orders], a, b)


def _products(a: Any, b: Any) -> Any:
    """The running products along the first axis."""

    def by_turns(divide: Callable[..., Any] | None, a: Any, b: Any) -> Any:
        ys = _in_turn(_factors(a, b))
        if divide is not None:
            ys = [_with_quotients(y, a[: i + 1], b[: i + 1], divide) for i, y in enumerate(ys)]
        return np.stack([np.stack(y, axis=-1) for y in ys], axis=0)

    return _among_orders([by_turns], a, b)


def _factors(a: Any, b: Any) -> list[Pair]:
    return [(a[i], b[i]) for i in range(len(a))]


def _with_quotients(y: Pair, a: Any, b: Any, divide: Callable[..., Any]) -> Pair:
    """A product along the first axis whose slope in a factor is its quotient by that; none where one may be zero."""
    if np.any(holds_zero((a, b))):
        raise Inapplicable
    shape = np.shape(a)
    slopes: Any = divide(*(np.broadcast_to(constant(part), shape) for part in y), constant(a), constant(b))
    real, imaginary = (attach(np.zeros(shape), part, always=True) for part in (a, b))
    moved = _multiply((slopes[..., 0], slopes[..., 1]), (real, imaginary))
    if order_of(moved[0]) != 1:
        raise Inapplicable
    first, second = (attach(part, np.sum(each, axis=0), always=True) for part, each in zip(y, moved, strict=True))
    return first, second


def _among_orders(ways: Sequence[Callable[..., Any]], a: Any, b: Any) -> Any:
    divisions = [None, divide_by_square, divide_by_larger_part]
    texts = [functools.partial(way, divide) for divide in divisions for way in ways]
    return among([Algorithm(text, "") for text in texts], a, b)


_TANH: list[Way] = [_tanh, _where_small(_tanh_of_glibc), _where_small(_tanh_of_kahan)]
_RECIPROCALS = _reciprocals()
#: Of functions of one number: ways to the value, and complex slopes, of the result and the parts.
_FUNCTIONS: dict[str, tuple[list[Way], list[Callable[..., Pair]]]] = {
    "tanh": (_TANH, [_slope_of_tanh]),
    "sigmoid": ([functools.partial(_sigmoid, each) for each in _RECIPROCALS], [_slope_of_sigmoid]),
    "expm1": ([_expm1], [lambda y, a, b: (y[0] + 1.0, y[1])]),
    "log1p": (
        [functools.partial(way, each) for way in (_log1p, _log1p_by_quotient) for each in (0.499, 0.501)],
        [functools.partial(lambda reciprocal, y, a, b: reciprocal((a + 1.0, b)), each) for each in _RECIPROCALS],
    ),
    "asin": (_on_both_sides(_asin), [functools.partial(_slope_of_asin, each, 1.0) for each in _RECIPROCALS]),
    "acos": (_on_both_sides(_acos), [functools.partial(_slope_of_asin, each, -1.0) for each in _RECIPROCALS]),
    "acosh": (_on_both_sides(_acosh), [functools.partial(_slope_of_acosh, each) for each in _RECIPROCALS]),
    "atanh": (_on_both_sides(_atanh), [functools.partial(_slope_of_atanh, each) for each in _RECIPROCALS]),
    "rsqrt": ([functools.partial(_rsqrt, each) for each in _RECIPROCALS], [_slope_of_rsqrt]),
}


_INVERSES = frozenset(["asin", "acos", "acosh", "atanh"])


def _define(name: str, operands: str, rule: Callable[..., Any], kernel: Callable[..., Any]) -> None:
    LIBRARY.define(f"{name}({operands}) -> Tensor")
    for key in ("CPU", "Meta"):
        LIBRARY.impl(name, lambda *args: torch.view_as_real(kernel(*args)), key)
    RULES[getattr(torch.ops.opassay_specs, name).default] = rule


def _of_one(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b, *rest: function(torch.complex(a, b), *rest)


for _name, (_ways, _slopes) in _FUNCTIONS.items():
    _rule = functools.partial(_among, _ways, [(each,) for each in _slopes])
    if _name in _INVERSES:
        _rule = functools.partial(_open_where_infinite, _rule)
    _define(f"{_name}_parts", "Tensor a, Tensor b", _rule, _of_one(getattr(torch, _name)))
_define("prod_parts", "Tensor a, Tensor b", _product, _of_one(lambda z: z.prod(0)))
_define("cumprod_parts", "Tensor a, Tensor b", _products, _of_one(lambda z: z.cumprod(0)))
_define("whole_power_parts", "Tensor a, Tensor b, int exponent", _raise_to_whole, _of_one(torch.pow))
_define(
    "power_parts", "Tensor a, Tensor b, Tensor c, Tensor d", _raise,
    lambda a, b, c, d: torch.complex(a, b) ** torch.complex(c, d),
)  # fmt: skip
