"""Which drafts of a cell are judged: every one, one along a single long axis, or some of which the first is ample."""

from __future__ import annotations

import math

from ...oracles.judge.tally import regimes_of
from ...oracles.op.declaration import Draft, Sample

#: How many drafts may be passed over in search of one that suits.
PATIENCE = 160


class Every:
    """Which drafts are judged: every one. What is passed over costs next to nothing: its data is never drawn."""

    def wants(self, draft: Draft) -> bool:
        """Whether a draft is judged."""
        return True

    def took(self, draft: Draft, sample: Sample) -> bool:
        """Note that a draft was judged; whether more are wanted."""
        return True


def longest(draft: Draft) -> tuple[str, int]:
    return max(draft.extents.items(), key=lambda item: item[1])


class OneLong(Every):
    """For each axis a draft in which it is long, and every other has one element, if one is found.

    Args:
        least: elements of a long axis. It has four times as many at most, for a longer one tells no more, and its
            formula is read in seconds.
    """

    def __init__(self, least: int) -> None:
        self._extents = range(least, 4 * least + 1)
        self._left: set[str] | None = None

    def wants(self, draft: Draft) -> bool:
        if self._left is None:
            self._left = set(draft.extents)
        size = math.prod(draft.extents.values())
        alone = size in self._extents and size == max(draft.extents.values(), default=0)
        return alone and longest(draft)[0] in self._left

    def took(self, draft: Draft, sample: Sample) -> bool:
        assert self._left is not None
        self._left.discard(longest(draft)[0])
        return bool(self._left)


class Ample(Every):
    """So many drafts, of which the first is benign and has two elements or more along every axis, if one is found."""

    def __init__(self, count: int) -> None:
        self._left, self._passed, self._found = count, 0, False

    def wants(self, draft: Draft) -> bool:
        self._passed += not self._found
        ample = min(draft.extents.values(), default=2) > 1 and "benign" in regimes_of(draft.regime)
        self._found |= ample or self._passed > PATIENCE
        return self._found

    def took(self, draft: Draft, sample: Sample) -> bool:
        self._left -= 1
        return self._left > 0
