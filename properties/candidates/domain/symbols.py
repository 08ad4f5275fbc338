"""Symbols: axes of the arguments whose extents change together; and the shapes that come of them."""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..arguments import CallArguments

#: (position among the tensors, axis), and how much each gains in one step.
Axis = tuple[int, int]
Moves = dict[Axis, int]
#: Of the tensors of a call.
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Symbol:
    """Axes whose extents change together.

    Attributes:
        moves: the axes, each with what it gains in one step. step: what an axis gains that moves alone.
        least: the smallest extent of the axis that gains least. may_be_empty: whether 0 is taken, too.
        unit: an axis of another symbol, whose extent divides these; None for none.
    """

    moves: tuple[tuple[Axis, int], ...]
    step: int = 1
    least: int = 1
    may_be_empty: bool = False
    unit: Axis | None = None

    @property
    def axes(self) -> list[Axis]:
        return [axis for axis, _ in self.moves]

    def lead(self, shapes: Shapes) -> tuple[Axis, int]:
        """The axis whose extent names the symbol's size, the shortest, and its step."""
        return min(self.moves, key=lambda move: (shapes[move[0][0]][move[0][1]] / move[1], move))


@dataclass(frozen=True)
class ExtentLimit:
    """An extent is at most so many times another one plus a number; `times` is 0 where it is the number alone."""

    axis: Axis
    most: int
    other: Axis
    times: int = 0

    def holds(self, shapes: Shapes) -> bool:
        """Whether it holds of shapes."""
        (i, d), (j, e) = self.axis, self.other
        return shapes[i][d] <= self.times * shapes[j][e] + self.most

    def describe(self, name: Callable[[Axis], str]) -> str:
        """The relation, as in "w.0 <= x.1"; `name` gives that of an axis."""
        if not self.times:
            return f"{name(self.axis)} <= {self.most}"
        minus, plus = (f"+{n}" if n > 0 else "" for n in (-self.most, self.most))
        return f"{name(self.axis)}{minus} <= {f'{self.times}*' * (self.times > 1)}{name(self.other)}{plus}"


@dataclass(frozen=True)
class ShapeDomain:
    """The shapes that a spec takes.

    Attributes:
        start: shapes of the given call. base: the same, with larger extents in place of 1 where the spec takes them.
        symbols: axes that change. constant: axes that do not. note: what was not asked. limits: what holds of extents.
    """

    start: Shapes
    base: Shapes
    symbols: tuple[Symbol, ...] = ()
    constant: tuple[Axis, ...] = ()
    note: str = ""
    limits: tuple[ExtentLimit, ...] = ()

    def extent(self, symbol: Symbol, shapes: Shapes | None = None) -> int:
        """The extent of a symbol's lead axis in some shapes; by default the given ones."""
        i, d = symbol.lead(self.base)[0]
        return (self.start if shapes is None else shapes)[i][d]

    def resized(self, extents: Mapping[Symbol, int], at: Shapes | None = None) -> Shapes:
        """Shapes in which lead axes have extents, or the nearest ones that the symbols allow; others as in `at`."""
        shapes = [list(shape) for shape in (self.start if at is None else at)]
        # Units come first, because others are multiples of theirs.
        for symbol, extent in sorted(extents.items(), key=lambda pair: pair[0].unit is not None):
            if symbol.unit is not None:
                unit = shapes[symbol.unit[0]][symbol.unit[1]]
                for i, d in symbol.axes:
                    shapes[i][d] = unit * max(round(extent / max(unit, 1)), 1)
                continue
            (i, d), step = symbol.lead(self.base)
            first, empty = self.base[i][d], not extent and symbol.may_be_empty
            steps = 0 if empty else (max(extent, symbol.least) - first) // step
            for (i, d), by in symbol.moves:
                own = self.base[i][d]
                shapes[i][d] = 0 if empty and own == first else own + steps * by + self._added(symbol, (i, d), shapes)
        # A unit that has changed alone takes its multiples along.
        for symbol in self.symbols:
            if symbol.unit is not None and symbol not in extents:
                unit, old = shapes[symbol.unit[0]][symbol.unit[1]], self.start[symbol.unit[0]][symbol.unit[1]]
                for i, d in symbol.axes:
                    shapes[i][d] = shapes[i][d] if unit == old else self.start[i][d] // max(old, 1) * unit
        return tuple(map(tuple, shapes))

    def _added(self, symbol: Symbol, axis: Axis, shapes: Sequence[Sequence[int]]) -> int:
        """What other symbols add to an axis that is a sum of extents."""
        others = ((s.lead(self.base), by) for s in self.symbols for a, by in s.moves if a == axis and s != symbol)
        return sum((shapes[i][d] - self.base[i][d]) // step * by for ((i, d), step), by in others)

    def from_start(self, start: Shapes) -> ShapeDomain | None:
        """The same with another given call; None where its extents are none of these symbols."""
        reached = self.resized({symbol: self.extent(symbol, start) for symbol in self.symbols}, self.base)
        pairs = zip(itertools.chain(*start), itertools.chain(*reached), strict=True)
        # An extent of 1 is perhaps broadcast, and then it is none of its symbol.
        if start != self.start and not all(own in (n, 1) for own, n in pairs):
            return None
        return replace(self, start=start, limits=tuple(each for each in self.limits if each.holds(start)))

    def name_extents(self, names: Mapping[Axis, str]) -> dict[Axis, str]:
        """The extent of each axis that changes: one of `names`, a letter, "4*N", "N+1", or "R*N" of what N divides."""
        free = iter([letter for letter in string.ascii_uppercase if letter not in names.values()] or ["Z"] * 99)
        words: dict[Axis, str] = {}
        for symbol in sorted(self.symbols, key=lambda each: each.unit is not None):
            if words.keys() & {*symbol.axes}:  # The second part of a sum cannot be said in these words.
                continue
            name = next((names[axis] for axis in symbol.axes if axis in names), None) or next(free)
            (i, d), step = symbol.lead(self.base)
            value = self.base[i][d] // step
            for (i, d), by in symbol.moves:
                plus = self.base[i][d] - by * value
                own = f"{by}*{name}" if by > 1 else name
                words[i, d] = f"{name}*{words[symbol.unit]}" if symbol.unit else f"{own}+{plus}" if plus else own
        return words

    def describe(self, name: Callable[[Axis], str]) -> list[str]:
        """A line for each symbol, and one for what is constant; `name` gives that of an axis."""
        lines = []
        for symbol in self.symbols:
            axes = " = ".join(name(a) if by == symbol.step else f"{name(a)} by {by}" for a, by in symbol.moves)
            steps = f", in steps of {symbol.step}" if symbol.step > 1 and symbol.unit is None else ""
            unit = "" if symbol.unit is None else f", multiples of {name(symbol.unit)}"
            lines.append(f"{axes}{unit}{steps}, from {0 if symbol.may_be_empty else symbol.least}")
        if self.constant:
            lines.append("constant: " + " ".join(f"{name(a)}={self.base[a[0]][a[1]]}" for a in self.constant))
        lines += [f"where {limit.describe(name)}" for limit in self.limits]
        return [*lines, *([self.note] if self.note else [])]


def sizes_of(arguments: CallArguments) -> dict[int, tuple[int]]:
    """Whole numbers that an extent equals, by their positions among the leaves: each is perhaps a size."""
    extents = {n for shape in arguments.shapes for n in shape if n > 1}
    return {i: (n,) for i, n in enumerate(arguments.leaves) if type(n) is int and n in extents}


def shapes_of(arguments: CallArguments) -> Shapes:
    """The shapes of the tensors; and behind these each number that is perhaps a size, as if it were an extent."""
    return (*arguments.shapes, *sizes_of(arguments).values())


def with_shapes(arguments: CallArguments, tensors: Sequence[Any], shapes: Shapes) -> CallArguments:
    """The arguments with other tensors, and with the sizes that stand behind their shapes."""
    sizes = dict(zip(sizes_of(arguments), (shape[0] for shape in shapes[len(tensors) :]), strict=False))
    other = arguments.with_tensors(tensors)
    return replace(other, leaves=tuple(sizes.get(i, leaf) for i, leaf in enumerate(other.leaves)))
