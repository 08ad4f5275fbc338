"""Derivatives of any formula over any reading, nested to any order.

A derivative level wraps the arrays of the level below: `Tangent` carries (primal, tangent) forward, `Node`
records a tape that is pulled back. Rules are written in NumPy's words on those arrays, so a rule is itself
differentiable and `jvp(vjp(f))`, `vjp(vjp(f))`, ... need nothing more (levels as in functorch; Griewank &
Walther, Evaluating Derivatives, 2nd ed., SIAM 2008, ch. 3).

At a kink any slope between the two one-sided ones is right, and which one is in the middle is what the exact reading
says: 0 for |x| at zero, half for each operand of a maximum that ties, and equal parts for the largest elements of a
reduction. Where rounding decides on which side of the kink an evaluation finds itself, the same holds.

What is hard here. A rule must not look at numbers: it is run on arrays that may carry further levels, and whatever it
reads off a value instead of computing in NumPy's words is constant to those levels. What it may read is where a branch
goes and which element is the largest. And levels must not be mixed: a tangent of an outer jvp is an ordinary constant
to an inner one, so everything that a level finds is marked with the number of that level.

Each elementwise rule is one linear map per operand. It is diagonal, hence its own transpose: forward mode
applies it to a tangent, reverse mode to a cotangent, and there is one table for both.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .array import ELEMENTWISE, Array, Operands, Params, bind, choose, constant, scatter
from .condition import condition, possibly, surely

Function = Callable[..., Any]
Arrays = tuple[Any, ...]

# Every call of `jvp` and `vjp` takes a number of its own. Two calls that shared one would take each other's tangents
# for their own (J. M. Siskind, B. A. Pearlmutter, Perturbation confusion and referential transparency, IFL 2005).
_levels = itertools.count(1)


def _first(g: Any, y: Any, xs: Operands, params: Params) -> Any:
    return g


def _where_rule(side: int) -> Function:
    def rule(g: Any, y: Any, xs: Operands, params: Params) -> Any:
        first, second = (g, 0.0) if side == 0 else (0.0, g)
        return choose(params["condition"], first, second, params["share"])

    return rule


def _unless(beyond: np.ufunc, x: Any, other: Any) -> Any:
    """Where `beyond(x, other)` does not hold; open where the two are equal, which is at a kink."""
    crossed, tied = beyond(x, other), np.equal(x, other)
    return condition(~possibly(crossed) & ~possibly(tied), ~surely(crossed), _reading(x, other))


def _reading(*xs: Any) -> Any:
    return next(constant(x) for x in xs if isinstance(x, Array))


def _select(lost: np.ufunc) -> tuple[Function, Function]:
    """The rules of both operands of a maximum or minimum, where an operand loses if `lost(it, the other)`."""

    def rule(g: Any, y: Any, xs: Operands, params: Params) -> Any:
        x, other = xs
        return choose(_unless(lost, x, other), g, 0.0)

    def of_the_other(g: Any, y: Any, xs: Operands, params: Params) -> Any:
        x, other = xs
        return choose(_unless(lost, other, x), g, 0.0)

    return rule, of_the_other


def _absolute_rule(g: Any, y: Any, xs: Operands, params: Params) -> Any:
    (x,) = xs
    slope = choose(_unless(np.less, x, 0.0), g, -g)
    # A NaN has no side. Its slope is NaN, as that of any function of it.
    values = constant(x)
    unordered = values.compare(np.not_equal, values)
    return choose(unordered, values, slope) if unordered.any() else slope


def _power_rule(g: Any, y: Any, xs: Operands, params: Params) -> Any:
    exponent = params["exponent"]
    return g * (exponent * np.power(xs[0], exponent - 1.0))


#: primitive -> one linear map per operand: (g, y, xs, params) -> g dy/dx_i
_DIAGONAL: dict[str, tuple[Function, ...]] = {
    "add": (_first, _first),
    "subtract": (_first, lambda g, y, xs, _: -g),
    "multiply": (lambda g, y, xs, _: g * xs[1], lambda g, y, xs, _: g * xs[0]),
    # ∂(a/b)/∂b is written −y/b and not −a/b²: the square may overflow where neither the quotient nor its slope does.
    "divide": (lambda g, y, xs, _: g / xs[1], lambda g, y, xs, _: -(g * y) / xs[1]),
    "negative": (lambda g, y, xs, _: -g,),
    "absolute": (_absolute_rule,),
    "square": (lambda g, y, xs, _: g * (2.0 * xs[0]),),
    "sqrt": (lambda g, y, xs, _: g / (2.0 * y),),
    "exp": (lambda g, y, xs, _: g * y,),
    "expm1": (lambda g, y, xs, _: g * np.exp(xs[0]),),
    "log": (lambda g, y, xs, _: g / xs[0],),
    "log1p": (lambda g, y, xs, _: g / (1.0 + xs[0]),),
    "tanh": (lambda g, y, xs, _: g * (1.0 - np.square(y)),),
    # Of the result that was saved, as it is evaluated everywhere, although 1 − y has lost what y rounds off near 1.
    "sigmoid": (lambda g, y, xs, _: g * (y * (1.0 - y)),),
    "power": (_power_rule,),
    "maximum": _select(np.less),
    "minimum": _select(np.greater),
    "where": (_where_rule(0), _where_rule(1)),
    # `attach` has the value of its first operand and the derivatives of its second, so the first contributes zeros.
    "attach": (lambda g, y, xs, _: g * 0.0, _first),
    # Rounding to a format is a step function with slope 0 almost everywhere. An implementation differentiates the
    # function that it means, so the slope is that of the number before it is rounded: 1.
    "store": (_first,),
}


def _largest(x: Any, params: Params) -> _Largest:
    """Which elements are the largest along the axes."""
    axes, reading = params["axes"], constant(x)
    surely_, possibly_ = reading.largest(axes)
    counts = np.sum(surely_, axis=axes, keepdims=True)
    if (possibly_ == surely_).all() and (counts == 1).all():
        return _Largest(index=_index_of(surely_, axes))
    tied = surely_ & (counts > 1)
    if params.get("shared", False):
        return _Largest(condition(surely_, possibly_, reading), count=np.maximum(counts, 1))
    return _Largest(condition(surely_ & ~tied, possibly_, reading), share=1.0 / np.maximum(counts, 2))


@dataclass(frozen=True)
class _Largest:
    """The largest element of every row by its index; or, where there are several, how they share the slope.

    Attributes:
        chosen: which elements take part. share: the part of each where that is open, for the exact reading.
        count: by how many each of them is divided. index: of the only one in every row, with the axes kept.
    """

    chosen: Any = None
    share: Any = 0.5
    count: Any = 1
    index: tuple[Any, ...] | None = None

    def part(self, g: Any) -> Any:
        """What of a slope belongs to each element."""
        return choose(self.chosen, g if np.max(self.count) == 1 else g / self.count, 0.0, self.share)


def _index_of(chosen: Any, axes: tuple[int, ...]) -> tuple[Any, ...]:
    """Index of the one element of every row along `axes`, kept as length-1 axes."""
    rest = [i for i in range(chosen.ndim) if i not in axes]
    flat = np.transpose(chosen, [*rest, *axes]).reshape([chosen.shape[i] for i in rest] + [-1])
    best = np.unravel_index(np.argmax(flat, axis=-1), [chosen.shape[i] for i in axes])
    grid = np.ogrid[tuple(slice(chosen.shape[i]) for i in rest)]
    index: list[Any] = [None] * chosen.ndim
    for axis, where in zip(axes, best, strict=True):
        index[axis] = np.expand_dims(where, axes)
    for axis, where in zip(rest, grid, strict=True):
        index[axis] = np.expand_dims(where, axes)
    return tuple(index)


def _linear(primitive: str, ts: list[Any], xs: Operands, params: Params) -> Any:
    """Forward mode of the structural primitives and reductions: the same map on the tangents."""
    if primitive == "max":
        (x,), (t,) = xs, ts
        largest = _largest(x, params)
        return t[largest.index] if largest.index else np.sum(largest.part(t), axis=params["axes"], keepdims=True)
    if primitive == "concatenate":
        # A piece that carries no tangent of this level still takes its place among the others, as zeros.
        ts = [np.zeros(np.shape(x)) if t is None else t for t, x in zip(ts, xs, strict=True)]
    return bind(primitive, tuple(ts), params)


def _transposed(primitive: str, position: int, g: Any, xs: Operands, params: Params) -> Any:
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
        case "getitem":
            return scatter(g, params["index"], shape)
        case "scatter":
            return g[params["index"]]
        case _:
            axis = params["axis"]
            start = sum(np.shape(x)[axis] for x in xs[:position])
            return g[(slice(None),) * axis + (slice(start, start + shape[axis]),)]


def unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum of `g` over the axes along which `shape` was broadcast to `g`'s shape: the adjoint of broadcasting."""
    have = np.shape(g)
    if have == shape:
        return g
    extra = len(have) - len(shape)
    axes = tuple(range(extra)) + tuple(i + extra for i, n in enumerate(shape) if n == 1 and have[i + extra] != 1)
    total = np.sum(g, axis=axes, keepdims=True) if axes else g
    return np.reshape(total, shape)


class _Level(Array):
    """An array of a derivative level: a primal of the level below and what the level carries."""

    __slots__ = ("level", "primal")

    def __init__(self, primal: Array, level: int) -> None:
        self.primal = primal
        self.level = level

    @property
    def shape(self) -> tuple[int, ...]:
        return self.primal.shape

    def base(self) -> Array:
        return self.primal.base()

    def comparable(self) -> Any:
        return self.primal.comparable()

    def lift(self, value: Any) -> Array:
        return self.primal.lift(value)

    def _primals(self, operands: Operands) -> Operands:
        return tuple(x.primal if isinstance(x, _Level) and x.level == self.level else x for x in operands)


class Tangent(_Level):
    """Forward mode: a primal and its tangent, both of the level below."""

    __slots__ = ("tangent",)

    def __init__(self, primal: Any, tangent: Any, level: int) -> None:
        super().__init__(primal, level)
        self.tangent = tangent

    def apply(self, primitive: str, operands: Operands, params: Params) -> Array:
        xs = self._primals(operands)
        y = bind(primitive, xs, params)
        ts = [x.tangent if isinstance(x, Tangent) and x.level == self.level else None for x in operands]
        if primitive in _DIAGONAL:
            # At most two operands can carry a tangent, since no elementwise primitive has more.
            parts = [rule(t, y, xs, params) for rule, t in zip(_DIAGONAL[primitive], ts, strict=True) if t is not None]
            tangent = parts[0] if len(parts) == 1 else parts[0] + parts[1]
            # If the only operand with a tangent is smaller than the result, so is what the rule gives.
            tangent = np.broadcast_to(tangent, y.shape)
        else:
            tangent = _linear(primitive, ts, xs, params)
        return Tangent(y, tangent, self.level)


class Node(_Level):
    """Reverse mode: a primal, and the step of the tape that made it."""

    __slots__ = ("tape",)

    def __init__(self, primal: Any, tape: list[Any], level: int) -> None:
        super().__init__(primal, level)
        self.tape = tape

    def apply(self, primitive: str, operands: Operands, params: Params) -> Array:
        xs = self._primals(operands)
        y = bind(primitive, xs, params)
        out = Node(y, self.tape, self.level)
        inputs = [(i, x) for i, x in enumerate(operands) if isinstance(x, Node) and x.level == self.level]
        # Steps are recorded in the order in which they are evaluated, so every use of a result stands behind the step
        # that made it. Read backwards, the tape has all contributions to a cotangent before it passes that cotangent
        # on.
        self.tape.append((out, primitive, inputs, y, xs, params))
        return out


def _pull(primitive: str, position: int, g: Any, y: Any, xs: Operands, params: Params) -> Any:
    if primitive in _DIAGONAL:
        return unbroadcast(_DIAGONAL[primitive][position](g, y, xs, params), np.shape(xs[position]))
    return _transposed(primitive, position, g, xs, params)


def _as_tuple(outputs: Any) -> Arrays:
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def _zeros(like: Any, shape: tuple[int, ...]) -> Any:
    return like.lift(np.zeros(shape))


def jvp(function: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Arrays, Arrays]:
    """Outputs of `function` at `primals`, and their tangents along `tangents`.

    Args:
        function: arrays in, an array or a tuple of arrays out.
        primals, tangents: as many arrays of equal shapes, of any reading or derivative level.
    """
    level = next(_levels)
    outputs = _as_tuple(function(*(Tangent(p, t, level) for p, t in zip(primals, tangents, strict=True))))
    mine = [isinstance(y, Tangent) and y.level == level for y in outputs]
    values = tuple(y.primal if own else y for y, own in zip(outputs, mine, strict=True))
    moved = tuple(y.tangent if own else _zeros(primals[0], y.shape) for y, own in zip(outputs, mine, strict=True))
    return values, moved


def vjp(function: Function, primals: Sequence[Any]) -> tuple[Arrays, Callable[..., Arrays]]:
    """Outputs of `function` at `primals`, and the map from output cotangents to input cotangents."""
    level = next(_levels)
    tape: list[Any] = []
    inputs = [Node(p, tape, level) for p in primals]
    outputs = _as_tuple(function(*inputs))
    mine = [isinstance(y, Node) and y.level == level for y in outputs]
    values = tuple(y.primal if own else y for y, own in zip(outputs, mine, strict=True))

    def pullback(*cotangents: Any) -> Arrays:
        grads: dict[int, list[Any]] = {}
        for y, own, g in zip(outputs, mine, cotangents, strict=True):
            if own:
                grads.setdefault(id(y), []).append(g)
        for out, primitive, parents, y, xs, params in reversed(tape):
            g = _total(grads.pop(id(out), ()))
            if g is None:
                continue
            for position, parent in parents:
                grads.setdefault(id(parent), []).append(_pull(primitive, position, g, y, xs, params))
        found = (_total(grads.get(id(node), ())) for node in inputs)
        return tuple(_zeros(p, p.shape) if g is None else g for g, p in zip(found, primals, strict=True))

    return values, pullback


def _total(contributions: Sequence[Any]) -> Any:
    """The sum of what the uses of a value contribute to its cotangent; None without any.

    It is one sum, in no order: which use comes first is nothing that a formula says.
    """
    if len(contributions) > 2:
        return np.sum(np.stack(contributions), axis=0)
    return functools.reduce(operator.add, contributions) if contributions else None


# A primitive without a derivative would otherwise be found only when some formula is differentiated through it.
assert frozenset(_DIAGONAL) - {"store"} == ELEMENTWISE
