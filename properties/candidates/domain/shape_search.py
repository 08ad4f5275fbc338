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

from .symbols import Axis, ExtentLimit, Moves, ShapeDomain, Shapes, Symbol

#: A move that is taken by one may be a special case, so it is asked again by these; by the second one where an extent
#: is so many times as large: what windows leave over ends there, and elsewhere a kernel may be longer than its signal.
_FAR, _NEAR = (2, 5), 4
#: Extents that take the place of 1: the first that no axis has.
_LIFTS = (3, 5, 7, 11, 13, 17)
#: Sets of equal extents are grown up to this size, among at most so many axes.
_GROWN, _AMONG = 3, 12
#: An axis beside which another may be larger is made so many steps longer; the other is asked for so many steps more.
_LONGER, _FARTHEST = 6, 1024
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
        self._unread, self._note = set[Axis](), ""

    def run(self, tops: Shapes = ()) -> ShapeDomain:
        """The symbols; axes of none keep their extents. ValueError where the spec refuses the given call.

        tops: shapes that are taken, and perhaps no larger ones; empty where that is not asked.
        """
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
        note, symbols = self._note, tuple(self._symbols)
        limits = tuple(limit for symbol in symbols if tops for limit in self._limits_of(symbol, tops))
        # What nobody has asked is no limit.
        return ShapeDomain(self._start, self._base, symbols, constant, note, () if self._note else limits)

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
        equals = ((self._equals(a), a, n) for a, n in moves.items())
        ways = ((some, n) for b, a, n in equals for some in (b, [c for c in b if c[1] == a[1]]))
        return not any(self._takes(dict.fromkeys(some, -n)) for some, n in ways)

    def _add(self, moves: Mapping[Axis, int], step: int = 1, unit: Axis | None = None) -> None:
        """Add a symbol; those that share an axis with it become part of it."""
        every: dict[Axis, int] = dict(moves)
        if unit is None and step == 1:
            for symbol in [s for s in self._symbols if not set(s.axes).isdisjoint(every)]:
                own = dict(symbol.moves)
                if self._takes({**own, **every}):
                    self._symbols.remove(symbol)
                    every = {**own, **every}
                elif not self._takes({a: own.get(a, 0) + every.get(a, 0) for a in own | every}):
                    return  # no sum of the two
        self._symbols.append(Symbol(tuple(sorted(every.items())), step, unit=unit))

    def _shrunk(self, moves: Moves, core: Iterable[Axis], takes: Callable[[Moves], bool]) -> Moves:
        """The moves without those axes that need not move."""
        for b in [b for b in moves if b not in set(core)]:
            fewer = {c: n for c, n in moves.items() if c != b}
            moves = fewer if fewer and takes(fewer) else moves
        return moves

    def _lift_ones(self) -> None:
        """Make extents of 1 larger: all of them, or at one place, or one by one those that the spec takes."""
        other = next((n for n in _LIFTS if all(n not in shape for shape in self._base)), 1)
        ones, lifted = [a for a in self._axes if self._extent(a) == 1], list[Axis]()
        places = ([a for a in ones if a[1] == d] for d in sorted({d for _, d in ones}))  # as batches of one
        for group in (ones, *places, *([a] for a in ones)):
            more = list(dict.fromkeys([*lifted, *group]))
            if len(more) > len(lifted) and self._takes(dict.fromkeys(more, other - 1)):
                lifted = more
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
        numbers = [b for b in others if b in self._sizes]
        same = [b for b in others if b[1] == place and b not in numbers]
        sets = [(*same, *number) for number in ((), *((b,) for b in numbers))] if same else []
        for size in range(1, _GROWN + 1 if len(others) <= _AMONG else 1):
            sets += itertools.combinations(others, size)
        for more in (*sets, others):
            axes = {*core, *more}
            moves: Moves = dict.fromkeys(sorted(axes.union(*(tie for tie in self._ties if tie & axes))), 1)
            if len(moves) < len(together) and self._moves_freely(moves):
                return self._shrunk(moves, core, self._moves_freely)
        return None

    def _with_others(self) -> None:
        """Axes that move with one of another extent: a sum of extents, or offsets, one more than groups."""
        # What is declared of one tensor, and moves with others only.
        sums = {axis for symbol in self._declared if not self._takes(dict(symbol.moves)) for axis in symbol.axes}
        first = list(self._left())
        for a in first:
            if a in (done := self._done) or a in self._sizes:
                continue
            usable = [b for b in self._axes if (b in first and b not in done) or b in sums]
            moves = next(self._pairs(a, usable), None)
            if moves is not None:
                self._add(moves)
                sums.update(moves)
            elif a in self._unread and self._is_read_beside(a):
                self._add({a: 1})
        # What windows leave over moves so far.
        self._axes = [a for a in self._axes if a not in self._unread - self._done]

    def _is_read_beside(self, a: Axis) -> bool:
        """Whether more of an axis is read where another symbol is larger, too, as of a buffer or scales of blocks."""
        sizes = ((s, 2**power) for s in self._symbols for power in range(8))
        ways = ({a: self._extent(a), **{b: times * self._extent(b) for b in s.axes}} for s, times in sizes)
        return any(self._takes(m) and (self._reads is None or self._reads(self._at(m), a, m[a])) for m in ways)

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
                    moves = self._shrunk(moves, {a}, takes)
                    # A number for each step is broadcast where there is one.
                    for b in [b for b in self._left() if self._extent(b) == 1 and self._extent(a) == step]:
                        moves = more if self._takes(more := {**moves, b: 1}) else moves
                    self._add(moves, step)
                    break

    def _by_ratios(self) -> None:
        """Axes that move by one where others move by a multiple, as the heads of keys and queries do."""
        for a in self._starts():
            whole = self._extent(a)
            for b in (b for b in self._axes if self._extent(b) > whole and self._extent(b) % whole == 0):
                if self._join_ratio(a, b):
                    break

    def _join_ratio(self, a: Axis, b: Axis) -> bool:
        whole, theirs, far = self._extent(a), self._equals(b), _FAR[1:]
        ratio, mine = self._extent(b) // whole, [c for c in self._left() if self._extent(c) == whole]
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
        other: Moves = {c: 1 if self._extent(c) == whole else ratio + whole + 1 for c in moves}
        # The ratio is free where b moves by steps of a, or takes multiples of another a, as bytes of two numbers do.
        if large is not None and (large.step == whole or (whole % large.step == 0 and self._takes(other))):
            self._symbols.append(Symbol(tuple((c, n) for c, n in moves.items() if self._extent(c) == whole)))
            self._symbols.append(Symbol(tuple((c, n * whole // large.step) for c, n in large.moves), whole, unit=a))
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

        low = _most_steps(takes, max((self._extent(lead) - 2) // step, 0))  # 1 apart, because it may be broadcast.
        if self._extent(lead) - step * (low + 1) == 1 and takes(low + 1):
            low += 1
        least = self._extent(lead) - step * low
        empties = {a: -self._extent(a) for a, _ in symbol.moves if self._extent(a) == self._extent(lead)}
        return replace(symbol, least=least, may_be_empty=least == step and self._takes(empties))

    def _limits_of(self, symbol: Symbol, tops: Shapes) -> Iterator[ExtentLimit]:
        """How large it is at most: as a number, or beside one other symbol, as a window ends with its signal."""
        axis, step = symbol.lead(self._base)
        beyond = max(tops[axis[0]][axis[1]], *(2 * n for n in itertools.chain(*self._base))) + 1
        steps = -((self._extent(axis) - beyond) // step)

        def takes(n: int, beside: Moves | None = None) -> bool:
            return self._takes({**{a: n * by for a, by in symbol.moves}, **(beside or {})})

        tied = symbol.unit is not None or any(s.unit in symbol.axes for s in self._symbols)
        if tied or takes(steps):
            return
        most = _most_steps(takes, steps)
        limit = self._extent(axis) + most * step
        longer = {s: {a: _LONGER * by for a, by in s.moves} for s in self._symbols if s is not symbol and not s.unit}
        usable = [s for s, moves in longer.items() if takes(most + 1, moves)]
        if not usable and not takes(most + 1, dict(itertools.chain(*(moves.items() for moves in longer.values())))):
            yield ExtentLimit(axis, limit, axis)
        if len(usable) == 1:  # A sum of several is no limit of one.
            (other, by), moves = usable[0].lead(self._base), longer[usable[0]]
            far = _FARTHEST if takes(most + _LONGER + 1, moves) else _LONGER + 1
            more = _most_steps(lambda n: takes(most + n, moves), far)
            times, rest = divmod(more * step, _LONGER * by)
            if times and not rest and more < far:
                yield ExtentLimit(axis, limit - times * self._extent(other), other, times)


def _most_steps(takes: Callable[[int], bool], high: int) -> int:
    """How many steps are taken, up to some, by bisection."""
    low = high if high and takes(high) else 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if takes(middle) else (low, middle)
    return low


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
