"""Slopes of primitives at balls: the linear maps that take the forms of operands to that of a result.

A slope acts on coefficients, whose last axis counts symbols, and on radii, by its magnitudes. Those of smooth functions
are the rules of derivatives, read as balls: centre and radius hold the slope at every point of the operands' balls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....reference.array import Params
from ....reference.condition import possibly, surely
from ....reference.derivative.rules import DIAGONAL
from .ball import Ball

_Map = Callable[[Any], Any]

#: Functions whose slope the mean value theorem is about, wherever it is finite.
_SMOOTH = frozenset(
    {"add", "subtract", "multiply", "divide", "negative", "square", "sqrt", "exp", "expm1", "log", "log1p", "tanh"}
    | {"sigmoid", "power", "sin", "cos", "sinh", "cosh", "arctan", "exp2", "log2", "log10", "erf", "erfc", "logaddexp"}
)


#: Primitives whose rule is what the slopes make of the radii, and what those leave out, and a rounding: the largest of
#: a bilinear form is the sum of its parts, and the end of a ball at which such a convex function moves farthest is that
#: where it is farthest from its tangent.
_SETTLED = frozenset({"add", "subtract", "multiply", "divide", "negative", "square", "sqrt", "exp", "log", "matmul"})


@dataclass(frozen=True)
class Slope:
    """The slope of a primitive in one of its operands.

    Attributes:
        apply: to coefficients of the operand. sizes: its magnitudes, to what is not negative.
        rest: a bound on what the slope at another point of the balls may add to the result.
        terms: how many products are summed for one element of the result; 0 where elements are moved alone.
    """

    apply: _Map
    sizes: _Map
    rest: Any = 0.0
    terms: int = 0


def slopes_of(primitive: str, out: Ball, xs: Sequence[Ball], params: Params) -> list[Slope | None] | None:
    """The slope in each operand, None of one that has no radius; None for all where the primitive has no rule."""
    if primitive in _SMOOTH:
        return _smooth(primitive, out, xs, params)
    rule = _RULES.get(primitive)
    return None if rule is None else rule(out, xs, params)


def _smooth(primitive: str, out: Ball, xs: Sequence[Ball], params: Params) -> list[Slope | None] | None:
    slopes: list[Slope | None] = []
    one = xs[0].lift(1.0)
    for x, rule in zip(xs, DIAGONAL[primitive], strict=True):
        if x.exact:
            slopes.append(None)
            continue
        slope = rule(one, out, xs, params)
        if not isinstance(slope, Ball) or not np.isfinite(slope.centre).all() or not np.isfinite(slope.radii()).all():
            return None
        rest = 0.0 if primitive in _SETTLED else slope.radii() * x.radii()
        slopes.append(_elementwise(np.asarray(slope.centre, dtype=np.float64), rest))
    return slopes


def _elementwise(centre: Any, rest: Any) -> Slope:
    size = np.abs(centre)

    def apply(terms: Any) -> Any:
        return terms * centre.astype(terms.dtype)[..., None]

    return Slope(apply, lambda radii: size * radii, rest, 1)


def _of_move(move: _Map) -> Slope:
    return Slope(move, move)


def _move_rule(move: Callable[..., Any]) -> Callable[..., list[Slope | None]]:
    """A primitive that only moves elements.

    Args:
        move: of an array, of the lengths of its axes besides those of the operand, and of the parameters.
    """

    def rule(out: Ball, xs: Sequence[Ball], params: Params) -> list[Slope | None]:
        ndim = xs[0].centre.ndim
        having = {**params, "shape": out.shape} if "shape" in params else params
        return [_of_move(lambda terms: move(terms, terms.shape[ndim:], **having))]

    return rule


def _with_last(index: Any) -> Any:
    """An index of an array, for one that has another axis behind its own."""
    index = index if isinstance(index, tuple) else (index,)
    return (*index, slice(None)) if any(each is Ellipsis for each in index) else (*index, Ellipsis, slice(None))


def _of_sum(out: Ball, xs: Sequence[Ball], params: Params) -> list[Slope | None]:
    axes, count = params["axes"], max(int(xs[0].centre.size) // max(int(out.centre.size), 1), 1)

    def total(terms: Any) -> Any:
        return np.sum(terms, axis=axes, keepdims=True)

    return [Slope(total, total, terms=count)]


def _of_concatenation(out: Ball, xs: Sequence[Ball], params: Params) -> list[Slope | None]:
    axis, lengths = params["axis"], [x.shape[params["axis"]] for x in xs]
    slopes: list[Slope | None] = []
    for i, x in enumerate(xs):
        before, after = sum(lengths[:i]), sum(lengths[i + 1 :])

        def put(terms: Any, before: int = before, after: int = after) -> Any:
            return np.pad(terms, [(before, after) if k == axis else (0, 0) for k in range(terms.ndim)])

        slopes.append(None if x.exact else _of_move(put))
    return slopes


def _of_scatter(out: Ball, xs: Sequence[Ball], params: Params) -> list[Slope | None]:
    index, shape, ndim = params["index"], params["shape"], xs[0].centre.ndim

    def put(terms: Any) -> Any:
        into = np.zeros((*shape, *terms.shape[ndim:]), terms.dtype)
        np.add.at(into, _with_last(index) if terms.ndim > ndim else index, terms)
        return into

    # What comes to one element is added up there.
    return [Slope(put, put, terms=max(int(xs[0].centre.size), 1))]


def _matrices(out: Ball, xs: Sequence[Ball], params: Params) -> list[Slope | None] | None:
    a, b = xs
    if a.centre.ndim < 2 or b.centre.ndim < 2:
        return None
    of_a, of_b = (np.asarray(x.centre, dtype=np.float64) for x in xs)
    terms = int(a.shape[-1])

    def left(coefficients: Any) -> Any:  # (..., i, j, k) -> (..., i, l, k)
        turned = np.swapaxes(of_b, -1, -2).astype(coefficients.dtype)
        return np.matmul(turned[..., None, :, :], coefficients)

    def right(coefficients: Any) -> Any:  # (..., j, l, k) -> (..., i, l, k)
        flat = coefficients.reshape(*coefficients.shape[:-2], math.prod(coefficients.shape[-2:]))
        product = np.matmul(of_a.astype(coefficients.dtype), flat)
        return product.reshape(*product.shape[:-1], *coefficients.shape[-2:])

    return [
        None if a.exact else Slope(left, lambda radii: np.matmul(radii, np.abs(of_b)), 0.0, terms),
        None if b.exact else Slope(right, lambda radii: np.matmul(np.abs(of_a), radii), 0.0, terms),
    ]


def _of_where(out: Ball, xs: Sequence[Ball], params: Params) -> list[Slope | None]:
    """One of two operands, by a condition; where that is open, neither, and all of the radius is new."""
    truth = params["condition"]
    sides = surely(truth).astype(np.float64), (~possibly(truth)).astype(np.float64)
    return [None if x.exact else _elementwise(side, 0.0) for x, side in zip(xs, sides, strict=True)]


def _of_choice(better: np.ufunc) -> Callable[..., list[Slope | None]]:
    return lambda out, xs, params: _of_where(out, xs, {"condition": xs[0].compare(better, xs[1])})


def _largest(out: Ball, xs: Sequence[Ball], params: Params) -> list[Slope | None]:
    """The element that is surely the largest of its row; where none is, all of the radius is new."""
    axes, (x,) = params["axes"], xs
    sure = x.largest(axes)[0]
    # Of several that are equal without any error, each is the largest.
    weight = sure / np.maximum(np.sum(sure, axis=axes, keepdims=True), 1)

    def total(terms: Any) -> Any:
        mask = weight.astype(terms.dtype)
        return np.sum(terms * (mask if terms.ndim == mask.ndim else mask[..., None]), axis=axes, keepdims=True)

    return [Slope(total, total, terms=1)]


def _of_attach(out: Ball, xs: Sequence[Ball], params: Params) -> list[Slope | None] | None:
    """The value of the first operand, where it is not computed again in the way of the second."""
    if not params.get("always", False):
        return None
    shape = out.shape
    return [_of_move(lambda terms: np.broadcast_to(terms, (*shape, *terms.shape[xs[0].centre.ndim :]))), None]


_RULES: dict[str, Callable[..., list[Slope | None] | None]] = {
    "reshape": _move_rule(lambda terms, last, shape: np.reshape(terms, (*shape, *last))),
    "broadcast": _move_rule(lambda terms, last, shape: np.broadcast_to(terms, (*shape, *last))),
    "transpose": _move_rule(lambda terms, last, axes: np.transpose(terms, (*axes, *range(len(axes), terms.ndim)))),
    "getitem": _move_rule(lambda terms, last, index: terms[_with_last(index) if last else index]),
    "concatenate": _of_concatenation,
    "scatter": _of_scatter,
    "sum": _of_sum,
    "matmul": _matrices,
    "where": _of_where,
    "maximum": _of_choice(np.greater),
    "minimum": _of_choice(np.less),
    "max": _largest,
    "store": lambda out, xs, params: [_of_move(lambda terms: terms)],
    "attach": _of_attach,
}
