"""Derivatives of elementwise aten operations as torch writes them down, whose steps are stored in a half type.

What this is for. torch computes a derivative by operations of its own, each of which stores its result in the dtype of
the operands: 1 + exp(y − x) of logaddexp overflows float16 where the slope itself is an ordinary number. That is an
evaluation like any other where intermediates may be stored. The texts are those of torch's `derivatives.yaml`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....reference.algorithms import STORED, Algorithm, Reverse
from ....reference.array import Array, among
from ....reference.derivative import unbroadcast
from .table import DECOMPOSED, Rule, enter, may_store, with_numbers

_LOG_2 = math.log(2.0)


def _with_slopes(rule: Rule, *slopes: Rule) -> Rule:
    """A rule whose cotangents may be computed in stored steps.

    Args:
        slopes: of each operand: its cotangent, before broadcasting is undone, of operands and the result's cotangent.
    """

    def cotangent(place: int) -> Rule:
        return lambda *arguments: unbroadcast(slopes[place](*arguments), np.shape(arguments[place]))

    ways = [Algorithm(rule, ""), Algorithm(Reverse(*map(cotangent, range(len(slopes)))), STORED)]
    return lambda *xs: among(ways, *xs) if all(isinstance(x, Array) for x in xs) else rule(*xs)


def _logaddexp2(x: Any, y: Any) -> Any:
    most, least = np.where(x >= y, x, y), np.where(x >= y, y, x)
    same = np.logical_and(np.equal(x, y), np.isinf(x))
    return np.where(same, x, most + np.log1p(np.exp2(np.where(same, 0.0, least - most))) / _LOG_2)


def _softmax_share(power: Rule) -> tuple[Rule, Rule]:
    """The slopes 1 / (1 + b^(y − x)) of log_b(b^x + b^y)."""

    def part(mine: Any, other: Any, g: Any) -> Any:
        return g / may_store(1.0 + may_store(power(may_store(other - mine))))

    return part, lambda x, y, g: part(y, x, g)


def _part_of_length(mine: Any, x: Any, y: Any, g: Any) -> Any:
    return may_store(g * mine) / may_store(np.hypot(x, y))


def _part_of_angle(other: Any, x: Any, y: Any, g: Any) -> Any:
    inverse = may_store(1.0 / may_store(may_store(np.square(x)) + may_store(np.square(y))))
    return may_store(g * other) * inverse


def _sinc(x: Any) -> Any:
    angle = np.where(np.equal(x, 0.0), 1.0, x) * math.pi
    return np.where(np.equal(x, 0.0), 1.0, np.sin(angle) / angle)


def _slope_of_sinc(x: Any, g: Any) -> Any:
    angle, squared = may_store(x * math.pi), may_store(may_store(np.square(x)) * math.pi)
    rise = may_store(may_store(angle * may_store(np.cos(angle))) - may_store(np.sin(angle)))
    return np.where(np.equal(x, 0.0), 0.0, g * may_store(rise / np.where(np.equal(x, 0.0), 1.0, squared)))


def _over_root(function: Rule, radicand: Rule, sign: float = 1.0) -> Rule:
    """A function whose slope is 1 / √r, which torch multiplies with.

    Args:
        radicand: r, of the square of the operand.
    """
    return _with_slopes(
        function, lambda x, g: g * may_store(sign / may_store(np.sqrt(may_store(radicand(may_store(np.square(x)))))))
    )


def _lerp(x: Any, end: Any, weight: Any) -> Any:
    far = end - x
    return np.where(np.absolute(weight) < 0.5, x + weight * far, end - far * (1.0 - weight))


def _addcdiv(x: Any, a: Any, b: Any, *, value: float = 1) -> Any:
    text = _with_slopes(
        lambda x, a, b: x + (a if value == 1 else a * value) / b,
        lambda x, a, b, g: g,
        lambda x, a, b, g: g * may_store(value / b),
        lambda x, a, b, g: -g * may_store(may_store(a * value) / may_store(np.square(b))),
    )
    return text(x, a, b)


def _addcmul(x: Any, a: Any, b: Any, *, value: float = 1) -> Any:
    text = _with_slopes(
        lambda x, a, b: x + (a if value == 1 else a * value) * b,
        lambda x, a, b, g: g,
        lambda x, a, b, g: g * may_store(b * value),
        lambda x, a, b, g: g * may_store(a * value),
    )
    return text(x, a, b)


def _add_outer(c: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    """addr, whose kernel multiplies and adds in the dtype of its operands."""
    product = alpha * (a[:, None] * b)
    return product if beta == 0 else product + beta * c


_quotient = _with_slopes(np.divide, lambda x, y, g: g / y, lambda x, y, g: -g * may_store(may_store(x / y) / y))
enter(
    {
        "div.Tensor": with_numbers(_quotient),
        "asin": _over_root(np.arcsin, lambda square: 1.0 - square),
        "acos": _over_root(np.arccos, lambda square: 1.0 - square, -1.0),
        "asinh": _over_root(np.arcsinh, lambda square: 1.0 + square),
        "acosh": _over_root(np.arccosh, lambda square: square - 1.0),
        "exp2 special_exp2": _with_slopes(np.exp2, lambda x, g: may_store(g * may_store(np.exp2(x))) * _LOG_2),
        "logaddexp": _with_slopes(np.logaddexp, *_softmax_share(np.exp)),
        "logaddexp2": _with_slopes(_logaddexp2, *_softmax_share(np.exp2)),
        "hypot": _with_slopes(
            np.hypot, lambda x, y, g: _part_of_length(x, x, y, g), lambda x, y, g: _part_of_length(y, x, y, g)
        ),
        "atan2": _with_slopes(
            np.arctan2, lambda x, y, g: _part_of_angle(y, x, y, g), lambda x, y, g: -_part_of_angle(x, x, y, g)
        ),
        "sinc": _with_slopes(_sinc, _slope_of_sinc),
        "lerp.Tensor": _with_slopes(
            _lerp, lambda x, end, w, g: g * may_store(1.0 - w), lambda x, end, w, g: g * w,
            lambda x, end, w, g: g * may_store(end - x),
        ),
        "addcdiv": _addcdiv,
        "addcmul": _addcmul,
    }
)  # fmt: skip
enter({"addr": _add_outer}, DECOMPOSED)
