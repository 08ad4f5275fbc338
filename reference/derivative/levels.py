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
from typing import Any

import numpy as np

from ..algorithms import Algorithm, Reverse
from ..array import Array, Operands, Params, among, bind
from .rules import DIAGONAL, moved_tangent, pulled

Function = Callable[..., Any]
Arrays = tuple[Any, ...]

# Every call of `jvp` and `vjp` takes a number of its own. Two calls that shared one would take each other's tangents
# for their own (J. M. Siskind, B. A. Pearlmutter, Perturbation confusion and referential transparency, IFL 2005).
_levels = itertools.count(1)


class _Level(Array):
    """An array of a derivative level: a primal of the level below and what the level carries."""

    __slots__ = ("level", "primal")

    def __init__(self, primal: Array, level: int) -> None:
        self.primal = primal
        self.level = level

    @property
    def shape(self) -> tuple[int, ...]:
        return self.primal.shape

    @property
    def order(self) -> int:
        return self.primal.order + 1

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
        if primitive == "among":
            moving = [i for i, t in enumerate(ts) if t is not None]
            ways = _each(params, lambda way: _tangent_of(way, len(xs), moving))
            tangent = among(ways, *xs, *(ts[i] for i in moving))
        elif primitive in DIAGONAL:
            # At most two operands can carry a tangent, since no elementwise primitive has more.
            parts = [rule(t, y, xs, params) for rule, t in zip(DIAGONAL[primitive], ts, strict=True) if t is not None]
            tangent = parts[0] if len(parts) == 1 else parts[0] + parts[1]
            # If the only operand with a tangent is smaller than the result, so is what the rule gives.
            tangent = np.broadcast_to(tangent, y.shape)
        else:
            tangent = moved_tangent(primitive, ts, xs, params)
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
                if primitive == "among":
                    ways = _each(params, functools.partial(_cotangent_of, position=position))
                    part = among(ways, *xs, g)
                else:
                    part = pulled(primitive, position, g, y, xs, params)
                grads.setdefault(id(parent), []).append(part)
        found = (_total(grads.get(id(node), ())) for node in inputs)
        return tuple(_zeros(p, p.shape) if g is None else g for g, p in zip(found, primals, strict=True))

    return values, pullback


def _each(params: Params, change: Callable[[Function], Function]) -> list[Algorithm]:
    """What a change makes of each of several ways to one result."""
    return [Algorithm(change(way.formula), way.name) for way in params["ways"]]


def _tangent_of(way: Function, count: int, moving: Sequence[int]) -> Function:
    """The tangent of a way, as a function of its `count` operands and of the tangents of those that move."""

    def tangent(*given: Any) -> Any:
        xs, ts = given[:count], given[count:]
        return jvp(lambda *moved: way(*_replaced(xs, moving, moved)), [xs[i] for i in moving], ts)[1][0]

    return tangent


def _cotangent_of(way: Function, position: int) -> Function:
    """The cotangent of one operand of a way, as a function of all operands and of the cotangent of its result."""
    if isinstance(way, Reverse):
        return way.cotangents[position]

    def cotangent(*given: Any) -> Any:
        *xs, g = given
        return vjp(lambda x: way(*_replaced(xs, (position,), (x,))), (xs[position],))[1](g)[0]

    return cotangent


def _replaced(xs: Sequence[Any], positions: Sequence[int], new: Sequence[Any]) -> list[Any]:
    replaced = list(xs)
    for position, x in zip(positions, new, strict=True):
        replaced[position] = x
    return replaced


def _total(contributions: Sequence[Any]) -> Any:
    """The sum of what the uses of a value contribute to its cotangent; None without any.

    It is one sum, in no order: which use comes first is nothing that a formula says.
    """
    if len(contributions) > 2:
        return np.sum(np.stack(contributions), axis=0)
    return functools.reduce(operator.add, contributions) if contributions else None
