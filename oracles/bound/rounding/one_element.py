"""The exact value of one element of a large output: the formula, read exactly only where that element depends on it.

What this is for: an exact reading of a large sample takes minutes. But an element of a norm depends on its row, and one
of an elementwise function on one element of each operand.

What is hard here: a formula branches by values before it is known which elements are needed. So the formula is read as
balls once more, and that reading decides all comparisons. The primitives and their operands are recorded on a tape, and
the tape is replayed: backwards to find the elements that are needed, and forwards to compute these as exact numbers.
There is no exact value where balls leave a comparison open, where products of matrices occur, and where too many
elements are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....reference.array import ELEMENTWISE, Array, Operands, Params
from ....reference.condition import is_open
from ....reference.exact import Exact, evaluate, exact
from ....reference.exact.structure import STRUCTURE
from ..contract import Contract
from .ball import Ball, ball

#: The most numbers that may be computed for one element, which takes about two seconds.
MOST = 150_000
#: Primitives that move elements, and compute nothing.
_MOVES = ("reshape", "transpose", "broadcast", "getitem", "concatenate")


class _Unknown(Exception):
    """There is no exact value of the element."""


@dataclass(frozen=True)
class _Primitive:
    """One primitive: its operands are steps, by number, or constants.

    Attributes:
        shape, shapes: of the result, and of the operands.
    """

    primitive: str
    operands: tuple[Any, ...]
    params: Params
    shape: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...] = ()


class _Recorded(Ball):
    """A ball that knows its step on a tape; operands of the formula are steps without a primitive."""

    __slots__ = ("step", "tape")

    def __init__(self, of: Ball, tape: list[_Primitive], step: int) -> None:
        super().__init__(of.centre, of.radius, of.contract, of.special, of.nonnegative)
        self.tape, self.step = tape, step

    def apply(self, primitive: str, operands: Operands, params: Params) -> Ball:
        if primitive == "among":
            first: Ball = params["ways"][0].formula(*operands)
            return first
        out = super().apply(primitive, operands, params)
        sources = tuple(
            x.step if isinstance(x, _Recorded) else _Constant(x.centre if isinstance(x, Ball) else x) for x in operands
        )
        self.tape.append(_Primitive(primitive, sources, params, out.shape, tuple(map(np.shape, operands))))
        return _Recorded(out, self.tape, len(self.tape) - 1)

    def compare(self, ufunc: np.ufunc, other: Array) -> Any:
        answers = super().compare(ufunc, other)
        if is_open(answers):
            raise _Unknown
        return answers

    def largest(self, axes: tuple[int, ...]) -> tuple[Any, Any]:
        surely, possibly = super().largest(axes)
        if not np.array_equal(surely, possibly):
            raise _Unknown
        return surely, possibly


@dataclass(frozen=True)
class _Constant:
    """An operand that is no step: a number, an array, or the centres of a ball that was lifted."""

    value: Any


def exact_element(
    formula: Callable[..., Any], operands: Sequence[Any], contract: Contract, output: int, index: tuple[int, ...]
) -> Exact | None:
    """The exact value of one element of an output, without axes; None where it cannot be computed in seconds.

    Args:
        formula, operands: as for `balls`. contract: of the reading that answers comparisons.
        output, index: which element.
    """
    tape: list[_Primitive] = []
    leaves = []
    for values in operands:
        tape.append(_Primitive("", (), {}, np.shape(values)))
        leaves.append(_Recorded(ball(values, contract), tape, len(tape) - 1))
    try:
        with np.errstate(all="ignore"):
            outputs = formula(*leaves)
        last = (outputs if isinstance(outputs, (tuple, list)) else (outputs,))[output]
        if not isinstance(last, _Recorded):  # A derivative in what the formula does not depend on is a constant.
            return exact(last.centre[index]) if isinstance(last, Ball) and last.radius is None else None
        needed = _find_needed(tape, last.step, int(np.ravel_multi_index(index, last.shape)) if index else 0)
    except _Unknown:
        return None
    leaf_values = [np.ravel(np.asarray(v))[needed[i]] if i in needed else np.zeros(0) for i, v in enumerate(operands)]
    (value,), _ = evaluate(lambda *inputs: _replay(tape, needed, last.step, inputs), *leaf_values)
    return Exact(np.reshape(value.values, ()))


def _find_needed(tape: Sequence[_Primitive], last: int, place: int) -> dict[int, Any]:
    """For every step the flat places, in order, that one place of the last step depends on."""
    needed: dict[int, Any] = {last: np.array([place])}
    total = 0
    for number in range(last, -1, -1):
        if number not in needed:
            continue
        step, places = tape[number], needed[number]
        total += places.size
        if total > MOST:
            raise _Unknown
        for operand, sources in zip(step.operands, _sources(step, places), strict=True):
            if isinstance(operand, int):
                needed[operand] = np.union1d(needed.get(operand, np.zeros(0, dtype=np.int64)), np.ravel(sources))
    return needed


def _sources(step: _Primitive, places: Any) -> list[Any]:
    """For every operand of a step, the flat places that some places of the step's result are computed from.

    For sums and maxima there is a row of places for each place of the result; for `scatter`, the places that land in
    one of them.
    """
    shapes = step.shapes
    if step.primitive in ELEMENTWISE or step.primitive in ("store", "cast"):
        return [_broadcast(shape, step.shape, places) for shape in shapes]
    if not step.primitive:
        return []
    if step.primitive in _MOVES:
        owner, at = _before_move(step, places)
        return [at[owner == number] for number in range(len(shapes))]
    if step.primitive in ("sum", "max"):
        axes = tuple(axis % len(shapes[0]) for axis in step.params["axes"])
        rest = [axis for axis in range(len(shapes[0])) if axis not in axes]
        rows = np.transpose(_numbered(shapes[0]), (*rest, *axes))
        return [rows.reshape(int(np.prod(step.shape, dtype=np.int64)), -1)[places]]
    if step.primitive == "scatter":
        lands = np.broadcast_to(_numbered(step.params["shape"])[step.params["index"]], shapes[0]).ravel()
        return [np.flatnonzero(np.isin(lands, places))]
    raise _Unknown  # a product of matrices, say


def _before_move(step: _Primitive, places: Any) -> tuple[Any, Any]:
    """Of places of the result of a step that moves elements: which operand each is from, and its flat place there."""
    starts = np.cumsum([0, *map(math.prod, step.shapes)])
    numbers = (start + _numbered(shape) for start, shape in zip(starts, step.shapes, strict=False))
    moved = np.ravel(STRUCTURE[step.primitive](*numbers, **step.params))[places]
    owner = np.searchsorted(starts, moved, side="right") - 1
    return owner, moved - starts[owner]


def _numbered(shape: tuple[int, ...]) -> Any:
    return np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)


def _broadcast(shape: tuple[int, ...], whole: tuple[int, ...], places: Any) -> Any:
    """The flat places of an array whose elements stand at some flat places after it was broadcast.

    Args:
        shape: of the array. whole: the shape after broadcasting. places: in that shape.
    """
    if shape == whole:
        return places
    along = np.unravel_index(places, whole)[len(whole) - len(shape) :] if whole else ()
    flat = np.zeros(np.shape(places), dtype=np.int64)
    for extent, at in zip(shape, along, strict=True):
        flat = flat * extent + (at if extent > 1 else 0)
    return flat


def _take(values: Any, shape: tuple[int, ...], places: Any) -> Any:
    """The elements of an array at flat places of the shape that it broadcasts to; a number as it is."""
    return np.ravel(values)[_broadcast(np.shape(values), shape, places)] if np.ndim(values) else values


def _replay(tape: Sequence[_Primitive], needed: dict[int, Any], last: int, inputs: Sequence[Exact]) -> Exact:
    """The needed elements of the last step, from those of the inputs."""
    values: dict[int, Exact] = {}
    for number in sorted(needed):
        step = tape[number]
        values[number] = _compute(step, needed, values, needed[number]) if step.primitive else inputs[number]
    return values[last]


def _compute(step: _Primitive, needed: dict[int, Any], values: dict[int, Exact], places: Any) -> Exact:
    """Some elements of one step, of the values of earlier steps at the places that are needed of each."""
    if step.primitive in _MOVES:
        return _compute_move(step, needed, values, places)
    sources = _sources(step, places)
    operands = [
        values[o][np.searchsorted(needed[o], source)] if isinstance(o, int) else _take(o.value, step.shape, places)
        for o, source in zip(step.operands, sources, strict=True)
    ]
    first = next(o for o in operands if isinstance(o, Exact))
    if step.primitive in ("sum", "max"):
        return Exact(np.ravel(first.apply(step.primitive, (first,), {**step.params, "axes": (1,)}).values))
    if step.primitive == "scatter":
        lands = np.broadcast_to(_numbered(step.params["shape"])[step.params["index"]], step.shapes[0])
        at = np.searchsorted(places, lands.ravel()[sources[0]])
        return first.apply("scatter", (first,), {"index": (at,), "shape": (places.size,)})
    params = {name: _take(value, step.shape, places) for name, value in step.params.items()}
    return first.apply(step.primitive, tuple(operands), params)


def _compute_move(step: _Primitive, needed: dict[int, Any], values: dict[int, Exact], places: Any) -> Exact:
    """`_compute` of a primitive that moves elements."""
    owner, at = _before_move(step, places)
    moved = np.empty(places.size, dtype=object)
    for number, operand in enumerate(step.operands):
        mine = owner == number
        if isinstance(operand, int):
            moved[mine] = values[operand].values[np.searchsorted(needed[operand], at[mine])]
        elif mine.any():
            moved[mine] = exact(np.ravel(np.asarray(operand.value, dtype=np.float64))[at[mine]]).values
    return Exact(moved)
