"""The derivatives of every primitive: linear maps of tangents and of cotangents."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..algorithms import Algorithm
from ..array import (
    ELEMENTWISE,
    LOG_2,
    LOG_10,
    TWO_OVER_ROOT_PI,
    Array,
    Operands,
    Params,
    among,
    bind,
    cast,
    choose,
    constant,
    is_special,
    one_less,
    polygamma,
    polygamma_in,
    scatter,
    sigmoid,
    store,
)
from ..condition import condition, possibly, surely, unordered_of
from . import products, scans
from .steps import Stored

Function = Callable[..., Any]


def _first(g: Any, y: Any, xs: Operands, params: Params) -> Any:
    return g


def _where_rule(side: int) -> Function:
    def rule(g: Any, y: Any, xs: Operands, params: Params) -> Any:
        first, second = (g, 0.0) if side == 0 else (0.0, g)
        truth = params["condition"]
        slope = choose(truth, first, second, params["share"])
        _leave_out(slope, np.logical_not(possibly(truth)) if side == 0 else surely(truth), y)
        return _or_nan(slope, unordered_of(truth), constant(y))

    return rule


def _leave_out(slope: Any, zeros: Any, y: Any) -> None:
    """Take note of zeros of a slope that stand for what the result does not depend on, at values that are not finite.

    An evaluation need not form products with these, and one that does makes a NaN of an infinite factor.
    """
    if isinstance(slope, Array) and np.any(zeros) and is_special(y):
        constant(slope).leave_out(np.broadcast_to(zeros, np.shape(slope)))


def _unless(beyond: np.ufunc, x: Any, other: Any) -> Any:
    """Where `beyond(x, other)` does not hold; open where the two are equal, which is at a kink."""
    crossed, tied = beyond(x, other), np.equal(x, other)
    return condition(~possibly(crossed) & ~possibly(tied), ~surely(crossed), _reading(x, other))


def _reading(*xs: Any) -> Any:
    return next(constant(x) for x in xs if isinstance(x, Array))


def _select(lost: np.ufunc) -> tuple[Function, Function]:
    """The rules of both operands of a maximum or minimum, where an operand loses if `lost(it, the other)`."""

    def rule_of(position: int) -> Function:
        def rule(g: Any, y: Any, xs: Operands, params: Params) -> Any:
            wins = _unless(lost, xs[position], xs[1 - position])
            slope = choose(wins, g, 0.0)
            _leave_out(slope, ~possibly(wins), y)
            return _or_nan(slope, unordered_of(lost(*xs)), constant(y))

        return rule

    return rule_of(0), rule_of(1)


def _absolute_rule(g: Any, y: Any, xs: Operands, params: Params) -> Any:
    (x,) = xs
    slope = choose(_unless(np.less, x, 0.0), g, -g)
    return _or_nan(slope, _nans(constant(x)), constant(x))


def _nans(values: Any) -> Any:
    return values.compare(np.not_equal, values)


def _or_nan(slope: Any, unordered: Any, values: Any) -> Any:
    """A slope of which nothing is known where a number that it is chosen by is NaN: what it is, no text says."""
    if unordered is None or not unordered.any():
        return slope
    return choose(condition(np.zeros_like(unordered), unordered, values), np.nan, slope)


def _power_rule(g: Any, y: Any, xs: Operands, params: Params) -> Any:
    exponent = params["exponent"]
    return g * (exponent * np.power(xs[0], one_less(exponent)))


def _polygamma_rule(g: Any, y: Any, xs: Operands, params: Params) -> Any:
    return g * polygamma_in(g.format if isinstance(g, Stored) else "", params["order"] + 1, xs[0])


def _expm1_rule(g: Any, y: Any, xs: Operands, params: Params) -> Any:
    """g exp(x), or g (y + 1) of the result that was saved, as torch has it; it loses what 1 takes of a small exp(x)."""
    texts = [lambda g, y, x: g * np.exp(x), lambda g, y, x: g * (y + 1.0)]
    return among([Algorithm(text, "") for text in texts], g, y, *xs)


def _divisor_rule(g: Any, y: Any, xs: Operands, params: Params) -> Any:
    # Of a reciprocal the slope is −y², as it is evaluated everywhere. That of a/b is −y/b and not −a/b²: the square
    # may overflow where neither the quotient nor its slope does.
    is_reciprocal = isinstance(xs[0], (int, float)) and xs[0] == 1
    return -(g * np.square(y)) if is_reciprocal else -(g * y) / xs[1]


def _step_rule(g: Any, y: Any, xs: Operands, params: Params) -> Any:
    """Slope 0, at the steps too; not 0 times the tangent, which an infinite tangent would make NaN."""
    return np.zeros_like(g)


def _angle_rules() -> tuple[Function, Function]:
    def inverse_square(xs: Operands) -> Any:
        # Multiplied with, as it is everywhere: it overflows where the slope itself does not.
        return 1.0 / (np.square(xs[0]) + np.square(xs[1]))

    return (lambda g, y, xs, _: g * (xs[1] * inverse_square(xs)), lambda g, y, xs, _: g * (-xs[0] * inverse_square(xs)))


def _lift(xs: Operands, like: Any) -> tuple[Any, ...]:
    return tuple(x if isinstance(x, Array) else like.lift(x) for x in xs)


def _base_rule(g: Any, y: Any, xs: Operands, params: Params) -> Any:
    # A constant exponent is lifted, since its difference from 1 would be rounded as a float.
    base, exponent = _lift(xs, y)
    still = np.equal(constant(exponent), 0.0)
    slope = choose(still, 0.0, exponent * np.float_power(base, exponent - 1.0))
    _leave_out(slope, surely(still), g)
    return g * slope


def _exponent_rule(g: Any, y: Any, xs: Operands, params: Params) -> Any:
    base, exponent = _lift(xs, y)
    # 0^b is 0 for every positive b, so it does not move with b, although the logarithm of 0 is infinite.
    still = np.logical_and(np.equal(constant(base), 0.0), np.greater_equal(constant(exponent), 0.0))
    slope = choose(still, 0.0, y * np.log(choose(still, 1.0, base)))
    _leave_out(slope, surely(still), g)
    return g * slope


#: primitive -> one linear map per operand: (g, y, xs, params) -> g dy/dx_i
DIAGONAL: dict[str, tuple[Function, ...]] = {
    "add": (_first, _first),
    "subtract": (_first, lambda g, y, xs, _: -g),
    "multiply": (lambda g, y, xs, _: g * xs[1], lambda g, y, xs, _: g * xs[0]),
    "divide": (lambda g, y, xs, _: g / xs[1], _divisor_rule),
    "negative": (lambda g, y, xs, _: -g,),
    "absolute": (_absolute_rule,),
    "square": (lambda g, y, xs, _: g * (2.0 * xs[0]),),
    "sqrt": (lambda g, y, xs, _: g / (2.0 * y),),
    "exp": (lambda g, y, xs, _: g * y,),
    "expm1": (_expm1_rule,),
    "log": (lambda g, y, xs, _: g / xs[0],),
    "log1p": (lambda g, y, xs, _: g / (1.0 + xs[0]),),
    "tanh": (lambda g, y, xs, _: g * (1.0 - np.square(y)),),
    # Of the result that was saved, as it is evaluated everywhere, although 1 − y has lost what y rounds off near 1.
    "sigmoid": (lambda g, y, xs, _: g * (y * (1.0 - y)),),
    "power": (_power_rule,),
    "float_power": (_base_rule, _exponent_rule),
    "sin": (lambda g, y, xs, _: g * np.cos(xs[0]),),
    "cos": (lambda g, y, xs, _: g * -np.sin(xs[0]),),
    "tan": (lambda g, y, xs, _: g * (1.0 + np.square(y)),),
    "arcsin": (lambda g, y, xs, _: g / np.sqrt(1.0 - np.square(xs[0])),),
    "arccos": (lambda g, y, xs, _: -g / np.sqrt(1.0 - np.square(xs[0])),),
    "arctan": (lambda g, y, xs, _: g / (1.0 + np.square(xs[0])),),
    "sinh": (lambda g, y, xs, _: g * np.cosh(xs[0]),),
    "cosh": (lambda g, y, xs, _: g * np.sinh(xs[0]),),
    "arcsinh": (lambda g, y, xs, _: g / np.sqrt(1.0 + np.square(xs[0])),),
    "arccosh": (lambda g, y, xs, _: g / np.sqrt(np.square(xs[0]) - 1.0),),
    "arctanh": (lambda g, y, xs, _: g / (1.0 - np.square(xs[0])),),
    "exp2": (lambda g, y, xs, _: g * (y * LOG_2),),
    "log2": (lambda g, y, xs, _: g / (xs[0] * LOG_2),),
    "log10": (lambda g, y, xs, _: g / (xs[0] * LOG_10),),
    "cbrt": (lambda g, y, xs, _: g / (3.0 * np.square(y)),),
    "erf": (lambda g, y, xs, _: g * (TWO_OVER_ROOT_PI * np.exp(-np.square(xs[0]))),),
    "erfc": (lambda g, y, xs, _: -g * (TWO_OVER_ROOT_PI * np.exp(-np.square(xs[0]))),),
    "gammaln": (lambda g, y, xs, _: g * polygamma(0, xs[0]),),
    "polygamma": (_polygamma_rule,),
    "arctan2": _angle_rules(),
    "hypot": (lambda g, y, xs, _: g * (xs[0] / y), lambda g, y, xs, _: g * (xs[1] / y)),
    "logaddexp": (lambda g, y, xs, _: g * sigmoid(xs[0] - xs[1]), lambda g, y, xs, _: g * sigmoid(xs[1] - xs[0])),
    "fmod": (_first, lambda g, y, xs, _: -g * np.trunc(xs[0] / xs[1])),
    **dict.fromkeys(("floor", "ceil", "rint", "trunc", "sign"), (_step_rule,)),
    "maximum": _select(np.less),
    "minimum": _select(np.greater),
    "where": (_where_rule(0), _where_rule(1)),
    # `attach` has the value of its first operand and the derivatives of its second, so the first contributes zeros.
    "attach": (lambda g, y, xs, _: g * 0.0, _first),
    # Rounding to a format is a step function with slope 0 almost everywhere. An implementation differentiates the
    # function that it means, so the slope is that of the number before it is rounded: 1. What is stored in a dtype has
    # tangents and cotangents of that dtype.
    "store": (lambda g, y, xs, params: store(g, **params) if params["dtype"] else g,),
    "cast": (lambda g, y, xs, params: cast(g, **params),),
}


def _largest(x: Any, params: Params) -> _Largest:
    """Which elements are the largest along the axes."""
    axes, reading = params["axes"], constant(x)
    surely_, possibly_ = reading.largest(axes)
    counts = np.sum(surely_, axis=axes, keepdims=True)
    nans = np.broadcast_to(np.any(_nans(reading), axis=axes, keepdims=True), reading.shape)
    if nans.any():
        surely_, possibly_ = surely_ & ~nans, possibly_ & ~nans
    elif (possibly_ == surely_).all() and (counts == 1).all():
        return _Largest(index=_index_of(surely_, axes))
    tied = surely_ & (counts > 1)
    rest = {"nans": nans, "values": reading} if nans.any() else {}
    if params.get("shared", False):
        return _Largest(condition(surely_, possibly_, reading), count=np.maximum(counts, 1), **rest)
    return _Largest(condition(surely_ & ~tied, possibly_, reading), share=1.0 / np.maximum(counts, 2), **rest)


@dataclass(frozen=True)
class _Largest:
    """The largest element of every row by its index; or, where there are several, how they share the slope.

    Attributes:
        selection: which elements take part. share: the part of each where that is open, for the exact reading.
        count: by how many each of them is divided. index: of the only one in every row, with the axes kept.
        nans: which elements have a NaN in their row, so that none is the largest. values: of all.
    """

    selection: Any = None
    share: Any = 0.5
    count: Any = 1
    index: tuple[Any, ...] | None = None
    nans: Any = None
    values: Any = None

    def part(self, g: Any) -> Any:
        """What of a slope belongs to each element."""
        part = choose(self.selection, g if np.max(self.count) == 1 else g / self.count, 0.0, self.share)
        return part if self.nans is None else _or_nan(part, self.nans, self.values)


def _index_of(choice: Any, axes: tuple[int, ...]) -> tuple[Any, ...]:
    """Index of the one element of every row along `axes`, kept as length-1 axes."""
    rest = [i for i in range(choice.ndim) if i not in axes]
    # The length of a row is computed, since `reshape` cannot derive it of an array without elements.
    length = math.prod(choice.shape[i] for i in axes)
    flat = np.transpose(choice, [*rest, *axes]).reshape([choice.shape[i] for i in rest] + [length])
    best = np.unravel_index(np.argmax(flat, axis=-1), [choice.shape[i] for i in axes])
    grid = np.ogrid[tuple(slice(choice.shape[i]) for i in rest)]
    index: list[Any] = [None] * choice.ndim
    for axis, where in zip(axes, best, strict=True):
        index[axis] = np.expand_dims(where, axes)
    for axis, where in zip(rest, grid, strict=True):
        index[axis] = np.expand_dims(where, axes)
    return tuple(index)


def unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum of `g` over the axes along which `shape` was broadcast to `g`'s shape: the adjoint of broadcasting."""
    have = np.shape(g)
    if have == shape:
        return g
    extra = len(have) - len(shape)
    axes = tuple(range(extra)) + tuple(i + extra for i, n in enumerate(shape) if n == 1 and have[i + extra] != 1)
    total = np.sum(g, axis=axes, keepdims=True) if axes else g
    return np.reshape(total, shape)


#: primitive -> (tangents or None, operands, params) -> the tangent of the result
_TANGENTS = products.TANGENTS | scans.TANGENTS
#: primitive -> (position, cotangent of the result, operands, params) -> the cotangent of the operand there
_COTANGENTS = products.COTANGENTS | scans.COTANGENTS


def push_tangent(primitive: str, ts: list[Any], xs: Operands, params: Params) -> Any:
    """Forward mode of the structural primitives and reductions: the same map on the tangents."""
    if primitive in _TANGENTS:
        return _TANGENTS[primitive](ts, xs, params)
    if primitive == "max":
        (x,), (t,) = xs, ts
        largest = _largest(x, params)
        return t[largest.index] if largest.index else np.sum(largest.part(t), axis=params["axes"], keepdims=True)
    if primitive == "sum":  # Of tangents no evaluation keeps means: they are no moments of data.
        return np.sum(ts[0], axis=params["axes"], keepdims=True)
    if primitive == "concatenate":
        # A piece that carries no tangent of this level still takes its place among the others, as zeros.
        ts = [np.zeros(np.shape(x)) if t is None else t for t, x in zip(ts, xs, strict=True)]
    return bind(primitive, tuple(ts), params)


def _transpose(primitive: str, position: int, g: Any, xs: Operands, params: Params) -> Any:
    """Reverse mode of the structural primitives and reductions: the transposed map on the cotangent."""
    shape = np.shape(xs[position])
    match primitive:
        case "sum":
            return np.broadcast_to(g, shape)
        case "max":
            largest = _largest(xs[position], params)
            return scatter(g, largest.index, shape) if largest.index else largest.part(np.broadcast_to(g, shape))
        case "reshape":
            return np.reshape(g, shape)
        case "transpose":
            return np.transpose(g, tuple(int(k) for k in np.argsort(params["axes"])))
        case "broadcast":
            return unbroadcast(g, shape)
        case "fourier":  # The transposed map of the parts is the transform with the other sign.
            return bind("fourier", (g,), {**params, "inverse": not params["inverse"]})
        case "getitem":
            # Of an operation whose steps are stored, what comes to one element is added one by one to what is stored.
            # What was not taken has no part in the result, also where an infinity is multiplied with this zero.
            unused = is_special(xs[position])
            return scatter(g, params["index"], shape, in_place=isinstance(g, Stored), inserted=unused)
        case _:  # of "scatter"; that of "concatenate" is in `levels`, where its operands are counted once
            return g[params["index"]]


def pull_cotangent(primitive: str, position: int, g: Any, y: Any, xs: Operands, params: Params) -> Any:
    """Reverse mode of every primitive: the cotangent of the operand at a position, from that of the result."""
    if primitive in DIAGONAL:
        return unbroadcast(DIAGONAL[primitive][position](g, y, xs, params), np.shape(xs[position]))
    if primitive in _COTANGENTS:
        return _COTANGENTS[primitive](position, g, xs, params)
    return _transpose(primitive, position, g, xs, params)


# A primitive without a derivative would otherwise be found only when some formula is differentiated through it.
assert frozenset(DIAGONAL) - {"store", "cast"} == ELEMENTWISE
