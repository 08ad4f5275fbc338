"""Which drafts of a cell are judged: every one, one along a single long axis, or some of which the first is ample."""

from __future__ import annotations

import math

from ...oracles.judge.tally import regimes_of
from ...oracles.op.declaration import Draft, Sample

#: How many drafts may be passed over in search of one that suits.
PATIENCE = 160


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
    return max(draft.extents.items(), key=lambda item: item[1])


class OneLong(Every):
    """For each axis one draft in which that axis is long and every other has one element, as far as there is one.

    Args:
        least: elements of a long axis. It has four times as many at most, for a longer one tells no more, and its
            formula is read in seconds.
    """

    def __init__(self, least: int) -> None:
        self._extents = range(least, 4 * least + 1)
        self._axes: set[str] | None = None

    def wants(self, draft: Draft) -> bool:
        if self._axes is None:
            self._axes = set(draft.extents)
        size = math.prod(draft.extents.values())
        alone = size in self._extents and size == max(draft.extents.values(), default=0)
        return alone and longest(draft)[0] in self._axes

    def took(self, draft: Draft, sample: Sample) -> bool:
        assert self._axes is not None
        self._axes.discard(longest(draft)[0])
        return bool(self._axes)


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
