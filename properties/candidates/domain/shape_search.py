"""The shapes that a spec takes: which extents change, which of them together, in which steps, and down to which.

What this is for: a function has no declaration of its shapes, so somebody has to ask. One given call is moved: an axis
alone, with others of its extent, with one of another extent, by steps, or in proportion. What the spec takes is a
symbol: axes that move together.

What is hard here: torch takes more than is meant. An extent of 1 is broadcast, so extents of 1 are made larger first.
What is added to an axis may not be read, and then it moves with what it belongs to. And of two square matrices no axis
can be told from the others by leaving one out, so the smallest set that the spec takes is grown from pairs.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from .symbols import Axis, Moves, ShapeDomain, Shapes, Symbol

#: A move that is taken by one may be a special case, so it is asked again by these; by the second one where an extent
#: is so many times as large: what windows leave over ends there, and elsewhere a kernel may be longer than its signal.
_FAR, _NEAR = (2, 5), 4
#: Extents that take the place of 1: the first that no axis has.
_LIFTS = (3, 5, 7, 11, 13, 17)
#: Sets of equal extents are grown up to this size, among at most so many axes.
_GROWN, _AMONG = 3, 12
#: Extents are made no smaller than this before anything is asked; so many sets of extents are tried for that.
_SMALL, _SETS = 4, 32


class OutOfTimeError(Exception):
    """There is no time for another question."""


class ShapeSearch:
    """Finds the symbols of a spec.

    Args:
        ask: (shapes) -> whether the spec takes tensors of them. shapes: of the given call.
        reads: (shapes, axis, number) -> whether so many last ones of it are read; None where nobody can tell.
        ties: axes that move together, as those of a symmetric matrix. known: symbols that are declared. fixed: axes
        that stay. sizes: how many of the last shapes are arguments that are numbers, which move with an axis only.
    """

    def __init__(
        self, ask: Callable[[Shapes], bool], shapes: Shapes, reads: Callable[[Shapes, Axis, int], bool] | None = None,
        ties: Sequence[Sequence[Axis]] = (), known: Sequence[Symbol] = (), fixed: Collection[Axis] = (), sizes: int = 0,
    ) -> None:  # fmt: skip
        self._sizes = {(i, 0) for i in range(len(shapes) - sizes, len(shapes))}
        self._ask, self._reads, self._ties = ask, reads, [set(tie) for tie in ties]
        self._known: dict[Shapes, bool] = {}
        self._start, self._base = shapes, shapes
        every = ((i, d) for i, shape in enumerate(shapes) for d in range(len(shape)))
        self._axes: list[Axis] = [axis for axis in every if axis not in fixed]
        self._symbols, self._declared = list(known), known
        self._unread: set[Axis] = set()
        self._note = ""

    def run(self) -> ShapeDomain:
        """The symbols; axes of none keep their extents. ValueError where the spec refuses the given call."""
        if not self._takes({}):
            raise ValueError("the spec refuses the given call")
        self._lift_ones()
        steps = self._alone, self._with_equals, self._with_others, self._by_steps, self._by_ratios, self._in_proportion
        for step in steps:
            step()
        for size in sorted(self._sizes - self._done):
            self._follow_unread(size)
        self._symbols = [self._bounded(symbol) for symbol in self._symbols]
        every = ((i, d) for i, shape in enumerate(self._base) for d, n in enumerate(shape) if n)
        constant = tuple(axis for axis in every if axis not in self._done | self._sizes)
        return ShapeDomain(self._start, self._base, tuple(self._symbols), constant, self._note)

    # ------------------------------------------------------------------------------------------------------ asking

    def _extent(self, axis: Axis) -> int:
        return self._base[axis[0]][axis[1]]

    @property
    def _done(self) -> set[Axis]:
        return {axis for symbol in self._symbols for axis in symbol.axes}

    def _left(self) -> Iterator[Axis]:
        """Axes of no symbol, which is seen anew at each."""
        return (a for a in self._axes if self._extent(a) > 0 and a not in self._done)

    def _starts(self) -> Iterator[Axis]:
        """Those of tensors, which a number may move with, and not without."""
        return (a for a in self._left() if a not in self._sizes)

    def _equals(self, axis: Axis) -> list[Axis]:
        return [b for b in self._axes if self._extent(b) == self._extent(axis)]

    def _takes(self, moves: Mapping[Axis, int]) -> bool:
        if any(self._extent(a) + n < 0 for a, n in moves.items()) or (moves and moves.keys() <= self._sizes):
            return False
        shapes = self._at(moves)
        if shapes not in self._known:
            try:
                self._known[shapes] = self._ask(shapes)
            except OutOfTimeError:  # What nobody has asked is not taken.
                self._note = "not all axes were asked, for want of time"
                return False
        return self._known[shapes]

    def _at(self, moves: Mapping[Axis, int]) -> Shapes:
        return tuple(tuple(n + moves.get((i, d), 0) for d, n in enumerate(shape)) for i, shape in enumerate(self._base))

    def _takes_far(self, moves: Mapping[Axis, int], far: Sequence[int] = _FAR) -> bool:
        near = all(self._extent(a) > _NEAR * far[-1] * n for a, n in moves.items())
        steps = (1, *(far if near else far[:1]))
        return all(self._takes({a: n * by for a, n in moves.items()}) for by in steps)

    def _moves_freely(self, moves: Mapping[Axis, int]) -> bool:
        """Whether the spec takes axes that are larger together, and no smaller ones only with others of their extent.

        A loop over one operand takes a longer other one, and not a shorter one: that axis belongs to its equals.
        """
        if not self._takes_far(moves):
            return False
        if moves.keys() <= self._unread and not self._takes({a: n * self._extent(a) for a, n in moves.items()}):
            return False  # What windows leave over ends where there is as much again.
        if any(self._extent(a) - n <= 1 for a, n in moves.items()) or self._takes({a: -n for a, n in moves.items()}):
            return True
        return not any(self._takes(dict.fromkeys(self._equals(a), -n)) for a, n in moves.items())

    def _add(self, moves: Mapping[Axis, int], step: int = 1, unit: Axis | None = None) -> None:
        """Add a symbol; those that share an axis with it become part of it."""
        every: dict[Axis, int] = dict(moves)
        if unit is None and step == 1:
            for symbol in [s for s in self._symbols if not set(s.axes).isdisjoint(every)]:
                every = {**dict(symbol.moves), **every}
                if not self._takes(every):  # An axis that is a sum moves with one of its parts alone.
                    return
                self._symbols.remove(symbol)
        self._symbols.append(Symbol(tuple(sorted(every.items())), step, unit=unit))

    def _shrunk(self, moves: Moves, core: Iterable[Axis], takes: Callable[[Moves], bool]) -> Moves:
        """The moves without those axes that need not move."""
        for b in [b for b in moves if b not in set(core)]:
            fewer = {c: n for c, n in moves.items() if c != b}
            moves = fewer if fewer and takes(fewer) else moves
        return moves

    # ------------------------------------------------------------------------------------------------------- steps

    def _lift_ones(self) -> None:
        """Make extents of 1 larger: all of them, or one by one those that the spec takes."""
        other = next((n for n in _LIFTS if all(n not in shape for shape in self._base)), 1)
        ones = [a for a in self._axes if self._extent(a) == 1]
        lifted = ones if self._takes(dict.fromkeys(ones, other - 1)) else []
        for a in [] if lifted else ones:
            lifted += [a] if self._takes(dict.fromkeys([*lifted, a], other - 1)) else []
        self._base = self._at(dict.fromkeys(lifted, other - 1))

    def _alone(self) -> None:
        """Axes that move alone."""
        tied = self._sizes.union(*self._ties)
        for a in [a for a in self._left() if a not in tied and self._moves_freely({a: 1})]:
            more = ({a: n} for n in (1, self._extent(a)))
            if self._reads is None or any(self._takes(m) and self._reads(self._at(m), a, m[a]) for m in more):
                self._add({a: 1})
            else:
                self._unread.add(a)

    def _with_equals(self) -> None:
        """Axes that move with others of their extent: as few of them as the spec takes."""
        for a in self._starts():
            together = dict.fromkeys(self._equals(a), 1)
            tied: set[Axis] = next((tie for tie in self._ties if a in tie), set())
            akin = tied or (self._unread if a in self._unread else set())
            some = {b: 1 for b in together if b in akin}
            if len(some) > 1 and self._moves_freely(some):
                self._add(some)
            elif a not in self._unread or len(together) > 1:
                # A number may say how much is read.
                akin = self._unread | self._sizes if a in self._unread else self._unread
                core = {a} | tied | (akin & set(together))
                moves = self._grown(core, together)
                if moves is None and self._moves_freely(together):
                    moves = self._shrunk(together, core, self._moves_freely)
                if moves is not None:
                    self._add(moves)

    def _grown(self, core: set[Axis], together: Moves) -> Moves | None:
        place = min(d for _, d in core)
        # What belongs together stands often at the same place, as the batch of several operands does.
        others = sorted((b for b in together if b not in core | self._done), key=lambda b: abs(b[1] - place))
        for size in range(1, _GROWN + 1 if len(others) <= _AMONG else 1):
            for more in itertools.combinations(others, size):
                axes = {*core, *more}
                moves: Moves = dict.fromkeys(sorted(axes.union(*(tie for tie in self._ties if tie & axes))), 1)
                if len(moves) < len(together) and self._moves_freely(moves):
                    return moves
        return None

    def _with_others(self) -> None:
        """Axes that move with one of another extent: a sum of extents, or offsets, one more than groups."""
        # What is declared of one tensor, and moves with others only.
        sums = {axis for symbol in self._declared if not self._takes(dict(symbol.moves)) for axis in symbol.axes}
        first = list(self._left())
        for a in first:
            done = self._done
            if a in done or a in self._sizes:
                continue
            usable = [b for b in self._axes if (b in first and b not in done) or b in sums]
            moves = next(self._pairs(a, usable), None)
            if moves is not None:
                self._add(moves)
                sums.update(moves)
            elif a in self._unread and self._takes({a: self._extent(a)}):
                self._add({a: 1})
        # What windows leave over moves so far.
        self._axes = [a for a in self._axes if a not in self._unread - self._done]

    def _pairs(self, a: Axis, usable: Sequence[Axis]) -> Iterator[Moves]:
        mine = [b for b in usable if self._extent(b) == self._extent(a)]
        for b in sorted(usable, key=lambda b: (b in self._done, abs(self._extent(b) - self._extent(a)))):
            if self._extent(b) == self._extent(a):
                continue
            theirs = [c for c in usable if self._extent(c) == self._extent(b)]
            for axes in ([a, b], [*mine, b], [a, *theirs], [*mine, *theirs]):
                moves: Moves = dict.fromkeys(axes, 1)
                if self._moves_freely(moves):
                    yield self._shrunk(moves, (a, b), self._moves_freely)

    def _by_steps(self) -> None:
        """Axes that move by a divisor of their extent."""
        takes = functools.partial(self._takes_far, far=(4,))
        for a in self._starts():
            mine = [b for b in self._left() if self._extent(b) == self._extent(a)]
            for step in (n for n in range(2, self._extent(a) + 1) if self._extent(a) % n == 0):
                ways: tuple[Moves, ...] = {a: step}, dict.fromkeys(mine, step)
                moves = next((moves for moves in ways if takes(moves)), None)
                if moves is not None:
                    self._add(self._shrunk(moves, {a}, takes), step)
                    break

    def _by_ratios(self) -> None:
        """Axes that move by one where others move by a multiple, as the heads of keys and queries do."""
        for a in self._starts():
            whole = self._extent(a)
            for b in (b for b in self._axes if self._extent(b) > whole and self._extent(b) % whole == 0):
                if self._join_ratio(a, b):
                    break

    def _join_ratio(self, a: Axis, b: Axis) -> bool:
        ratio = self._extent(b) // self._extent(a)
        mine = [c for c in self._left() if self._extent(c) == self._extent(a)]
        theirs = self._equals(b)
        far = _FAR[1:]
        ways: tuple[Moves, ...] = (
            {a: 1, b: ratio}, {**dict.fromkeys(mine, 1), b: ratio},
            {**dict.fromkeys(mine, 1), **dict.fromkeys(theirs, ratio)},
        )  # fmt: skip
        moves = next((moves for moves in ways if self._takes_far(moves, far)), None)
        if moves is None:
            return False
        moves = self._shrunk(moves, (a, b), lambda fewer: self._takes_far(fewer, far))
        large = next((symbol for symbol in self._symbols if b in symbol.axes), None)
        if large is not None:
            self._symbols.remove(large)
        if large is not None and large.step == self._extent(a):  # b moves by steps of a: their ratio is free
            self._symbols.append(Symbol(tuple((c, n) for c, n in moves.items() if self._extent(c) == self._extent(a))))
            self._symbols.append(Symbol(large.moves, large.step, unit=a))
        else:
            self._add(moves)
        return True

    def _in_proportion(self) -> None:
        """Axes of several extents that move in one proportion: numbers packed by two, and a scale for each group."""
        far = (3,)
        several = [a for a in self._left() if self._extent(a) > 1]
        extents = sorted({self._extent(a) for a in several})
        for size in (4, 3, 2):
            for some in itertools.combinations(extents, size):
                mine = [a for a in several if self._extent(a) in some and a not in self._done]
                common = math.gcd(*some)
                for part in (n for n in range(1, common + 1) if common % n == 0):
                    moves: Moves = {a: part * self._extent(a) // common for a in mine}
                    if moves and self._takes_far(moves, far):
                        self._add(self._shrunk(moves, (), lambda fewer: self._takes_far(fewer, far)))
                        break

    def _follow_unread(self, size: Axis) -> None:
        """Let a number that the spec does not read be the extent that it equals, because a candidate may read it."""
        own = [s for s in self._symbols if any(self._extent(a) == self._extent(size) for a in s.axes)]
        if not own or any(s.unit for s in own) or self._reads is None or self._reads(self._base, size, 1):
            return
        steps = {by for s in own for a, by in s.moves if self._extent(a) == self._extent(size)}
        if len(steps) == 1 and (len(own) == 1 or steps == {1}):
            self._symbols = [s for s in self._symbols if s not in own]
            moves = {size: steps.pop(), **{a: by for s in own for a, by in s.moves}}
            self._symbols.append(Symbol(tuple(sorted(moves.items())), own[0].step))

    def _bounded(self, symbol: Symbol) -> Symbol:
        """The symbol with its least extent, whether it may be 0, and which axes may be 1 while the others are not."""
        lead, step = symbol.lead(self._base)
        if symbol.unit is not None:
            return replace(symbol, least=symbol.step)

        def takes(steps: int) -> bool:
            smaller = {a: -steps * by for a, by in symbol.moves}
            return all(self._extent(a) + n > 0 for a, n in smaller.items()) and self._takes(smaller)

        # Down to 2 by bisection; 1 apart, because it may be broadcast.
        low, high = 0, max((self._extent(lead) - 2) // step, 0)
        if high and takes(high):
            low = high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if takes(middle) else (low, middle)
        if self._extent(lead) - step * (low + 1) == 1 and takes(low + 1):
            low += 1
        least = self._extent(lead) - step * low
        empties = {a: -self._extent(a) for a, _ in symbol.moves if self._extent(a) == self._extent(lead)}
        return replace(symbol, least=least, may_be_empty=least == step and self._takes(empties))


def shrink(takes: Callable[[Shapes], bool], shapes: Shapes) -> Shapes:
    """Shapes that are taken, in which equal extents remain equal, no others become so, and most are small.

    Smaller ones are asked first, as those that are refused cost least.
    """
    extents, used = sorted({n for shape in shapes for n in shape}), {n for shape in shapes for n in shape}
    few: dict[int, int] = {}
    for n in extents:
        if more := [m for m in _smaller(n) if m not in used]:
            few[n] = more[0]
            used.add(more[0])

    def at(to: Mapping[int, int]) -> Shapes:
        return tuple(tuple(to.get(n, n) for n in shape) for shape in shapes)

    every = (some for k in range(1, len(few) + 1) for some in itertools.combinations(few, k))
    sets = sorted(({n: few[n] for n in some} for some in every), key=lambda to: sum(map(math.prod, at(to))))
    small = next((to for to in sets[:_SETS] if takes(at(to))), {})
    for n in few.keys() - small.keys():  # a multiple of groups, or the least image of a network
        small[n] = next((m for m in _smaller(n) if m not in used and takes(at({**small, n: m}))), n)
        used.add(small[n])
    return at(small)


def _smaller(extent: int) -> list[int]:
    """Smaller extents that may take the place of one: those that cost least, and then what has its divisors."""
    halves = [extent >> k for k in range(extent.bit_length(), 0, -1) if not extent % 2**k and extent >> k >= _SMALL]
    return [n for n in (5, 7, 11, *halves) if 2 * n <= extent]  # half of 3 is 1, which is broadcast
