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
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..algorithms import Algorithm, Reverse
from ..array import MOVING, Array, Operands, Params, among, bind, is_special, scatter, store
from .rules import DIAGONAL, pull_cotangent, push_tangent
from .steps import Steps, Stored, Wrapped, format_of_steps, sum_of_stored

Function = Callable[..., Any]
Arrays = tuple[Any, ...]

# Every call of `jvp` and `vjp` takes a number of its own. Two calls that shared one would take each other's tangents
# for their own (J. M. Siskind, B. A. Pearlmutter, Perturbation confusion and referential transparency, IFL 2005).
_levels = itertools.count(1)


class _Level(Wrapped):
    """An array of a derivative level: a primal of the level below and what the level carries.

    Attributes:
        stored: whether the primal has been rounded to the format of the operation that it belongs to (`steps`).
    """

    __slots__ = ("stored",)

    def __init__(self, primal: Array, level: int, stored: bool) -> None:
        super().__init__(primal, level)
        self.stored = stored

    @property
    def order(self) -> int:
        return self.primal.order + 1

    def _primals(self, operands: Operands) -> Operands:
        return tuple(x.primal if isinstance(x, _Level) and x.level == self.level else x for x in operands)


class Tangent(_Level):
    """Forward mode: a primal and its tangent, both of the level below."""

    __slots__ = ("tangent",)

    def __init__(self, primal: Any, tangent: Any, level: int, stored: bool = True) -> None:
        super().__init__(primal, level, stored)
        self.tangent = tangent

    def apply(self, primitive: str, operands: Operands, params: Params) -> Array:
        xs = self._primals(operands)
        y = bind(primitive, xs, params)
        ts = [x.tangent if isinstance(x, Tangent) and x.level == self.level else None for x in operands]
        dtype = format_of_steps()
        if primitive == "among":
            moving = [i for i, t in enumerate(ts) if t is not None]
            ways = _each(params, lambda way: _tangent_of(way, len(xs), moving), dtype)
            tangent = among(ways, *xs, *(ts[i] for i in moving))
        elif primitive in DIAGONAL:
            tangent = _in_steps(dtype, functools.partial(_diagonal_tangent, primitive, params), ts, y, xs, operands)
            # If the only operand with a tangent is smaller than the result, so is what the rule gives.
            tangent = np.broadcast_to(tangent, y.shape)
        else:
            tangent = push_tangent(primitive, ts, xs, params)
        return Tangent(y, tangent, self.level, _is_stored(primitive, operands, params))


def _diagonal_tangent(primitive: str, params: Params, ts: Sequence[Any], y: Any, xs: Operands) -> Any:
    # At most two operands can carry a tangent, since no elementwise primitive has more.
    parts = [rule(t, y, xs, params) for rule, t in zip(DIAGONAL[primitive], ts, strict=True) if t is not None]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _is_stored(primitive: str, operands: Operands, params: Params) -> bool:
    """Whether a result has been rounded to the format of the operation that it belongs to."""
    if primitive == "store":
        return bool(params["dtype"] == format_of_steps())
    return primitive in MOVING and all(x.stored for x in operands if isinstance(x, _Level))


def _in_steps(dtype: str, rule: Function, moved: Any, y: Any, xs: Operands, operands: Operands) -> Any:
    """The result of a rule of derivatives, whose steps are stored where a format is named.

    Args:
        dtype: that format, or "". rule: of the three arguments that follow.
        moved: the tangents or the cotangent. y, xs: the result and the operands of the level below.
        operands: those of the level itself, which know whether they have been stored.
    """
    if not dtype:
        return rule(moved, y, xs)
    steps = Steps(next(_levels), dtype)
    several = isinstance(moved, (list, tuple))
    moving = [steps.wrap(t, True) for t in moved] if several else steps.wrap(moved, True)
    pairs = zip(xs, operands, strict=True)
    inputs = tuple(steps.wrap(x, isinstance(own, _Level) and not own.stored) for x, own in pairs)
    return steps.unwrap(rule(moving, steps.wrap(y, True), inputs))


class Node(_Level):
    """Reverse mode: a primal, and the tape of the level.

    Attributes:
        format: of what is contributed to its cotangent, where that is stored; "" for none.
    """

    __slots__ = ("format", "tape")

    def __init__(self, primal: Any, tape: list[Any], level: int, format: str = "", stored: bool = True) -> None:
        super().__init__(primal, level, stored)
        self.tape, self.format = tape, format

    def apply(self, primitive: str, operands: Operands, params: Params) -> Array:
        xs = self._primals(operands)
        y = bind(primitive, xs, params)
        dtype = format_of_steps()
        out = Node(y, self.tape, self.level, dtype, _is_stored(primitive, operands, params))
        inputs = [(i, x) for i, x in enumerate(operands) if isinstance(x, Node) and x.level == self.level]
        # Steps are recorded in the order in which they are evaluated, so every use of a result stands behind the step
        # that made it. Read backwards, the tape has all contributions to a cotangent before it passes that cotangent
        # on.
        self.tape.append(_Step(out, primitive, inputs, operands, y, xs, params, dtype))
        return out


@dataclass
class _Step:
    """A step of a tape: `out` was made by a primitive, with the result `y` of the level below.

    Attributes:
        inputs: the operands that carry a cotangent, with their positions.
        operands: all operands. xs: these, of the level below.
        format: see `Node`; also that of the steps of its derivative.
    """

    out: Node
    primitive: str
    inputs: Sequence[tuple[int, Node]]
    operands: Operands
    y: Any
    xs: Operands
    params: Params
    format: str

    @functools.cached_property
    def ends(self) -> Sequence[int]:
        """Where each operand of `concatenate` ends, counted once: a loop joins as many as it has steps."""
        return list(itertools.accumulate(np.shape(x)[self.params["axis"]] for x in self.xs))


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


def store_contributions(array: Any, dtype: str) -> None:
    """Say that contributions to the cotangents of an array, on every level, are stored in a format."""
    while isinstance(array, _Level):
        if isinstance(array, Node):
            array.format = dtype
        array = array.primal


def vjp(function: Function, primals: Sequence[Any]) -> tuple[Arrays, Callable[..., Arrays]]:
    """Outputs of `function` at `primals`, and the map from output cotangents to input cotangents.

    The map is called once, because it gives each result away when it has used it; RuntimeError for a second call.
    """
    level = next(_levels)
    tape: list[Any] = []
    inputs = [Node(p, tape, level) for p in primals]
    outputs = _as_tuple(function(*inputs))
    # Nodes know the tape. It is emptied here, since a cycle would hold every result of the level, large ones among
    # them, until Python looks for cycles.
    recorded, tape[:] = [tape[:]], []
    mine = [isinstance(y, Node) and y.level == level for y in outputs]
    values = tuple(y.primal if own else y for y, own in zip(outputs, mine, strict=True))

    def pullback(*cotangents: Any) -> Arrays:
        if not recorded:
            raise RuntimeError("vjp: got a second call of a map of cotangents, need a vjp for each call")
        steps = recorded.pop()
        grads: dict[int, list[Any]] = {}
        pieces: dict[int, list[tuple[_Step, Any]]] = {}

        def total(node: Node) -> Any:
            return _total([*grads.pop(id(node), ()), *_join(pieces.pop(id(node), ()))], node.format)

        for y, own, g in zip(outputs, mine, cotangents, strict=True):
            if own:
                grads.setdefault(id(y), []).append(g)
        while steps:
            step = steps.pop()
            g = total(step.out)
            if g is None:
                continue
            for position, parent in step.inputs:
                if step.primitive == "getitem":
                    pieces.setdefault(id(parent), []).append((step, g))
                else:
                    grads.setdefault(id(parent), []).append(_contribution(step, position, g))
        totals = map(total, inputs)
        return tuple(_zeros(p, p.shape) if g is None else g for g, p in zip(totals, primals, strict=True))

    return values, pullback


def _join(pieces: Sequence[tuple[_Step, Any]]) -> list[Any]:
    """Contributions to the cotangent of an operand of steps that took pieces of it; one, if these do not overlap.

    Nothing is added to such a piece. And a loop that takes its operand row by row has as many pieces as rows: with each
    of them in zeros of the whole shape, a derivative would cost the square of the rows.
    """
    if len(pieces) > 2:
        (operand,) = pieces[0][0].xs
        numbers = np.arange(math.prod(operand.shape)).reshape(operand.shape)
        places = np.concatenate([np.ravel(numbers[step.params["index"]]) for step, _ in pieces])
        if np.unique(places).size == places.size:
            flat = np.concatenate([np.reshape(g, (-1,)) for _, g in pieces])
            whole = scatter(flat, (places,), (numbers.size,), inserted=is_special(operand))
            return [np.reshape(whole, operand.shape)]
    return [_contribution(step, 0, g) for step, g in pieces]


def _contribution(step: _Step, position: int, g: Any) -> Any:
    """The contribution of a step to the cotangent of an operand, from the cotangent g of the result."""
    if step.primitive == "among":
        ways = _each(step.params, functools.partial(_cotangent_of, position=position), step.format)
        return among(ways, *step.xs, store(g, step.format, always=False) if step.format else g)
    if step.primitive == "store" and step.format == step.params["dtype"] and not step.params["always"]:
        return g  # which is stored before it is read
    if step.primitive == "concatenate":
        axis, end = step.params["axis"], step.ends[position]
        return g[(slice(None),) * axis + (slice(end - np.shape(step.xs[position])[axis], end),)]

    def rule(g: Any, y: Any, xs: Operands) -> Any:
        return pull_cotangent(step.primitive, position, g, y, xs, step.params)

    return _in_steps(step.format, rule, g, step.y, step.xs, step.operands)


def _each(params: Params, change: Callable[[Function], Function], dtype: str = "") -> list[Algorithm]:
    """Each of several ways to one result, changed.

    Args:
        change: of the function of a way. dtype: the format in which steps of the changed way are stored; "" for none.
    """
    ways = [Algorithm(change(way.formula), way.name) for way in params["ways"]]
    return [Algorithm(_way_in_steps(way.formula, dtype), way.name) for way in ways] if dtype else ways


def _way_in_steps(way: Function, dtype: str) -> Function:
    def in_steps(*xs: Any) -> Any:
        steps = Steps(next(_levels), dtype)
        return steps.unwrap(way(*(steps.wrap(x, False) for x in xs)))

    return in_steps


def _tangent_of(way: Function, count: int, moving: Sequence[int]) -> Function:
    """The tangent of a way, as a function of its `count` operands and of the tangents of those that move."""

    def tangent(*arguments: Any) -> Any:
        xs, ts = arguments[:count], arguments[count:]
        return jvp(lambda *moved: way(*_replace(xs, moving, moved)), [xs[i] for i in moving], ts)[1][0]

    return tangent


def _cotangent_of(way: Function, position: int) -> Function:
    """The cotangent of one operand of a way, as a function of all operands and of the cotangent of its result."""
    if isinstance(way, Reverse):
        return way.cotangents[position]

    def cotangent(*arguments: Any) -> Any:
        *xs, g = arguments
        return vjp(lambda x: way(*_replace(xs, (position,), (x,))), (xs[position],))[1](g)[0]

    return cotangent


def _replace(xs: Sequence[Any], positions: Sequence[int], new: Sequence[Any]) -> list[Any]:
    replaced = list(xs)
    for position, x in zip(positions, new, strict=True):
        replaced[position] = x
    return replaced


def _total(contributions: Sequence[Any], dtype: str = "") -> Any:
    """The sum of what the uses of a value contribute to its cotangent; None without any.

    It is one sum, in no order: which use comes first is nothing that a formula says.

    Args:
        dtype: the format in which contributions are stored; "" for none.
    """
    stored = [each.format for each in contributions if isinstance(each, Stored)]
    dtype = dtype or (stored[0] if stored else "")
    if dtype and len(contributions) > 1:
        return sum_of_stored(contributions, dtype)
    if len(contributions) > 2:
        return np.sum(np.stack(contributions), axis=0)
    return functools.reduce(operator.add, contributions) if contributions else None
