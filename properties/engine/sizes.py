"""Which drafts of SIZE are judged: every axis at every band of sizes at which kernels change their algorithm."""

from __future__ import annotations

import math

from ...oracles.judge.judge import Judge
from ...oracles.judge.tally import regimes_of
from ...oracles.op.declaration import Draft, Sample
from ..declaring import strategies
from .draft_filters import PATIENCE, Readable, longest, size_of

#: How many drafts in a row may be passed over before an axis that was never long is given up.
SIZES_PATIENCE = 40
#: How many samples of a size with numbers far apart may hardly be judged before there are no more of them.
HARDLY = 2

#: Elements of a vector, at most: larger ones take seconds to judge.
_VECTOR = 2**18


def _is_outlying(draft: Draft) -> bool:
    return strategies.OUTLYING in regimes_of(draft.regime)


class Sizes(Readable):
    """Drafts with one axis at a size where kernels change their algorithm: every axis, and every band of sizes in turn.

    Other axes have more than one element together, because what goes wrong between two rows needs two; only of an axis
    and a band of which no such draft was seen is one taken whose long axis is alone. Beside these a first row of the
    longest band that is alone is taken where it is drawn on the way, because kernels have code for a vector.

    Two of three samples along an axis have numbers far from the others in one row, because the ordinary samples, of all
    regimes, are too small for the code that is asked here. Those that can hardly be judged do not count, and end after
    `HARDLY`.

    Attributes:
        count: how many. extents: the extents that were judged, by axis.
    """

    def __init__(self, judge: Judge, count: int, *bands: frozenset[int]) -> None:
        super().__init__(judge)
        self.count, self.extents = count, dict[str, set[int]]()
        self._outlying = HARDLY if count > 1 else 0
        # Sizes that take seconds to judge are left to long profiles, and so is 65,536 but for float32, unless the
        # caller names the bands.
        most = math.inf if not judge.light else 2**17 if judge.contract.stores.name == "float32" else 2**16 - 2
        self._bands = bands or tuple(frozenset(band) for band in strategies.SIZE_BANDS if band[0] < most)
        self._samples = self._passed = 0
        self._never: set[str] = set()
        self._has_vector = False
        self._crossed: set[tuple[str, frozenset[int]]] = set()

    def wants(self, draft: Draft) -> bool:
        if not draft.extents:
            return True
        name, extent = longest(draft)
        for axis in draft.extents:
            self.extents.setdefault(axis, set())
        if self._is_vector(draft):
            return self.is_readable(draft)
        own, band = self.extents[name], next((band for band in self._bands if extent in band), frozenset[int]())
        # Axes take turns, and so do the bands of each axis. Some axes are never long, so the search has an end.
        if self._passed >= SIZES_PATIENCE:
            self._never |= {axis for axis in self.extents if not self.extents[axis]}
        behind = len(own) <= min((len(self.extents[axis]) for axis in self.extents.keys() - self._never), default=0)
        rarest = min(len(own & other) for other in self._bands)
        crossed = len(draft.extents) == 1 or size_of(draft) > extent
        if crossed:
            self._crossed.add((name, band))
        wanted = self._outlying > 0 and len(own) % 3 < 2 and strategies.OUTLYING in draft.declared.get("regime", ())
        fitting = _is_outlying(draft) == wanted or self._passed >= PATIENCE // 2
        due = behind and len(own & band) == rarest and crossed and fitting
        if self._passed >= PATIENCE:
            due = crossed or (name, band) not in self._crossed
        suits = extent in band - own and due and self.is_readable(draft)
        self._passed = 0 if suits else self._passed + 1
        return suits

    def _is_vector(self, draft: Draft) -> bool:
        """Whether a draft is the one long row alone that is asked beside the samples of every band."""
        name, extent = longest(draft)
        is_alone = len(draft.extents) > 1 and size_of(draft) == extent and name == next(iter(draft.extents))
        is_long = extent in self._bands[-1] and extent < _VECTOR
        return is_alone and is_long and not self._has_vector and self.count > 1

    def took(self, draft: Draft, sample: Sample) -> bool:
        if draft.extents and self._is_vector(draft):
            self._has_vector = True
            return self._samples < self.count
        if draft.extents:
            name, extent = longest(draft)
            self.extents.setdefault(name, set()).add(extent)
        if self._outlying and _is_outlying(draft) and self._judge.tally.last_share < 0.5:
            self._outlying -= 1
        else:
            self._samples += 1
        return self._samples < self.count
