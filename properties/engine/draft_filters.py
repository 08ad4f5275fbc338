"""Which drafts of a cell are judged: every one, one along a single long axis, or some of which the first is ample."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...oracles.judge.judge import Judge
from ...oracles.judge.tally import regimes_of
from ...oracles.op.declaration import Draft, Sample
from ...oracles.specs import SpecFormula
from ...oracles.specs.work import exceeds
from ..declaring.kinds import largest_of

#: How many drafts may be passed over in search of one that suits.
PATIENCE = 160
#: The fewest elements that fill a block of most kernels, and of how many rows they are where the op has rows.
FILLED, MIDDLING = 1024, 8
#: Operations and steps of a spec, at most, in a short profile: to trace and read them takes some ten seconds.
_OPERATIONS = 6000


class Every:
    """Which drafts are judged: every one. A draft that is passed over costs next to nothing, as it gets no data."""

    def wants(self, draft: Draft) -> bool:
        """Whether a draft is judged."""
        return True

    def took(self, draft: Draft, sample: Sample) -> bool:
        """Note that a draft was judged, and return whether more are wanted."""
        return True


def longest(draft: Draft) -> tuple[str, int]:
    """The name and the extent of a draft's longest axis."""
    return max(draft.extents.items(), key=lambda item: item[1], default=("", 0))


def size_of(draft: Draft) -> int:
    """Its elements, all axes multiplied."""
    return math.prod(draft.extents.values())


class Readable(Every):
    """Drafts that the spec of an op can be read at, whatever else they must be: in loops a long axis has many steps.

    Attributes:
        too_long: by axis the least extent that has too many.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge, self.too_long = judge, dict[str, int]()

    def is_readable(self, draft: Draft) -> bool:
        """Whether a call of the spec has few enough operations and steps there."""
        formula, (name, extent) = self._judge.op.reference, longest(draft)
        readable = extent < self.too_long.get(name, extent + 1)
        most = _OPERATIONS if self._judge.light else 8 * _OPERATIONS
        if readable and isinstance(formula, SpecFormula) and exceeds(formula.spec, draft.sample(0).args, most):
            self.too_long[name], readable = extent, False
            text = f"{extent} and more not asked, where the reference takes too many steps"
            self._judge.tally.note_first(f"{name} of ", text)
        return readable


class Filled(Every):
    """Large drafts that fill the blocks of kernels and are no longer, of benign data first, then of other data.

    What is wrong in a kernel may be wrong in the last thread's last element alone, which a small sample leaves empty.

    Attributes:
        largest, samples: elements of the largest floating tensor that was judged, and how many drafts were.

    Args:
        count: how many drafts. most: the most elements of a draft.
    """

    def __init__(self, count: int, most: int) -> None:
        self.count, self.most = count, most
        self.largest = self.samples = self._passed = 0

    def wants(self, draft: Draft) -> bool:
        size = size_of(draft)
        is_thick = len(draft.extents) < 2 or size >= MIDDLING * longest(draft)[1]
        is_next = ("benign" in regimes_of(draft.regime)) == (self.samples == 0)
        suits = FILLED <= size <= self.most and ((is_thick and is_next) or self._passed >= PATIENCE)
        self._passed = 0 if suits else self._passed + 1
        return suits

    def took(self, draft: Draft, sample: Sample) -> bool:
        self.largest, self.samples = max(self.largest, largest_of(sample)), self.samples + 1
        return self.samples < self.count


class OneLong(Every):
    """For each axis one draft in which that axis is long, as far as there is one.

    Args:
        least: elements of a long axis. It has four times as many at most, for a longer one tells no more, and its
            formula is read in seconds.
        alone: whether every other axis has one element. axes: those that are known, as not every draft has all.
    """

    def __init__(self, least: int, alone: bool = True, axes: Iterable[str] = ()) -> None:
        self._extents, self._alone = range(least, 4 * least + 1), alone
        self._axes, self._long = set(axes), set[str]()

    def wants(self, draft: Draft) -> bool:
        self._axes |= draft.extents.keys()
        size = size_of(draft)
        name, extent = longest(draft)
        return extent in self._extents and name not in self._long and (extent == size or not self._alone)

    def took(self, draft: Draft, sample: Sample) -> bool:
        self._long.add(longest(draft)[0])
        return self._long != self._axes


class Ample(Every):
    """`count` drafts, of which the first is benign and has two elements or more along every axis.

    If none of `PATIENCE` drafts is so, any will do.
    """

    def __init__(self, count: int) -> None:
        self._remaining, self._passed, self._has_ample = count, 0, False

    def wants(self, draft: Draft) -> bool:
        self._passed += not self._has_ample
        ample = min(draft.extents.values(), default=2) > 1 and "benign" in regimes_of(draft.regime)
        self._has_ample |= ample or self._passed > PATIENCE
        return self._has_ample

    def took(self, draft: Draft, sample: Sample) -> bool:
        self._remaining -= 1
        return self._remaining > 0
