"""Which drafts become the samples of a cell: those that together have every declared value, and the most pairs of them.

A cell has few samples, and none of them might have a value that is rare among drafts. So many more drafts are drawn,
which costs no data and no call, and picked greedily. First come drafts with declared values that no sample has had yet,
values of names with many values before the others, because these need the most samples; then drafts with new pairs of
values; and then any draft.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...oracles.judge.tally import Tally
from ...oracles.op.declaration import Draft
from .drafting import Drafts, DrawnDraft

Pair = tuple[str, str]
#: How many drafts are drawn for each sample of a cell, and at least for the cell.
DRAFTS_EACH, DRAFTS_LEAST = 4, 48
#: The largest number of drafts that are drawn in search of a declared value that no draft has.
SEARCHED = 1200
#: The weight of a declared value relative to a pair of values, and of an owed value relative to another value.
_VALUE = 1e5
#: A cell with this many samples for each value of a name owes all values of the name, and is weak without one.
SAMPLES_EACH = 2
#: How many samples more than planned a cell has at most, where the planned ones lack an owed value.
EXTRA = 6
#: How many values a reason names.
MOST_NAMES = 6


class Cover:
    """Picks drafts for the samples of one cell.

    Attributes:
        declared: by name, the values that a sample can have. picked: how many drafts were picked.
    """

    def __init__(self, drafts: Drafts, samples: int, seed: int) -> None:
        """
        Args:
            drafts: to pick from. samples: the planned number of samples. seed: decides between equally good drafts.
        """
        lists = _lists_of(drafts, max(DRAFTS_EACH * samples, DRAFTS_LEAST))
        self._drafts, self.declared, self._names, self._values, self._pairs = lists
        self._rng = np.random.default_rng(seed)
        self._new_values, self._new_pairs = np.ones(self._values.shape[1]), np.ones(self._pairs.shape[1])
        self._unpicked = np.ones(len(self._drafts))
        # Values that a cell of this many samples owes come before all others.
        owed = {name: SAMPLES_EACH * len(values) <= samples for name, values in self.declared.items()}
        self._owed = np.array([owed[name] for name in self._names], float)
        self.picked = 0

    def picks(self, count: int) -> Iterator[DrawnDraft]:
        """`count` drafts, and a few more if these lack an owed value; none twice while there are others."""
        for number in range(count + EXTRA if self._drafts else 0):
            if number >= count and not self._owed @ self._new_values:
                return
            if not self._unpicked.any():
                self._unpicked[:] = 1
            at = int(np.argmax(np.where(self._unpicked > 0, self._gain(), -1.0)))
            self._unpicked[at] = 0
            self._new_values[self._values[at] > 0] = 0
            self._new_pairs[self._pairs[at] > 0] = 0
            self.picked += 1
            yield self._drafts[at]

    def _gain(self) -> npt.NDArray[np.float64]:
        """The weight of the new values and pairs of each draft; ties are broken at random."""
        missing: dict[str, float] = {}
        for name, new in zip(self._names, self._new_values, strict=True):
            missing[name] = missing.get(name, 0.0) + float(new)
        weights = self._new_values * np.array([missing[name] for name in self._names]) * (1.0 + _VALUE * self._owed)
        gain: npt.NDArray[np.float64] = _VALUE * (self._values @ weights) + self._pairs @ self._new_pairs
        return gain + self._rng.random(len(gain))

    def pairs(self) -> tuple[int, int]:
        """How many pairs of values the picked drafts have, and how many all drafts."""
        return int(np.count_nonzero(self._new_pairs == 0)), len(self._new_pairs)

    def unmet(self, pairs: frozenset[Pair]) -> list[Pair]:
        """The declared values that are not in `pairs`."""
        return [
            (name, value) for name, values in self.declared.items() for value in values if (name, value) not in pairs
        ]


@functools.lru_cache(maxsize=4)  # cells of one op and dtype, which come one after the other, pick from the same drafts
def _lists_of(drafts: Drafts, count: int) -> tuple[Any, ...]:
    """Drafts, declared values, and names and tables of the values and pairs that the drafts have."""
    some, declared = _draw_enough(drafts, count)
    values = [sorted(one.draft.values) for one in some]
    names = [name for name, _ in dict.fromkeys(itertools.chain.from_iterable(values))]
    return some, declared, names, _table(values), _table([list(itertools.combinations(of, 2)) for of in values])


def _draw_enough(drafts: Drafts, count: int) -> tuple[Sequence[DrawnDraft], dict[str, tuple[str, ...]]]:
    """`count` drafts, and more while no draft has some declared value; and all declared values."""
    candidates = drafts.first(count)
    while True:
        pairs = {pair for one in candidates for pair in one.draft.values}
        declared = _declared([one.draft for one in candidates])
        lacking = any((name, value) not in pairs for name, values in declared.items() for value in values)
        if not lacking or len(candidates) >= SEARCHED or len(candidates) < count:
            return candidates, declared
        count += count // 2
        candidates = drafts.first(count)


def _declared(drafts: Sequence[Draft]) -> dict[str, tuple[str, ...]]:
    declared: dict[str, dict[str, None]] = {}
    for draft in drafts:
        for name, values in draft.declared.items():
            declared.setdefault(name, {}).update(dict.fromkeys(values))
    return {name: tuple(values) for name, values in declared.items()}


def _table(rows: Sequence[Sequence[Hashable]]) -> npt.NDArray[np.float32]:
    """A table of ones and zeros: which row has which of the items of all rows, in the order of their first row."""
    columns = {x: i for i, x in enumerate(dict.fromkeys(itertools.chain.from_iterable(rows)))}
    table = np.zeros((len(rows), len(columns)), np.float32)
    for i, of in enumerate(rows):
        table[i, [columns[x] for x in of]] = 1
    return table


@dataclass(frozen=True)
class ValueCover:
    """Which of the declared values the samples of a cell had, in words.

    Attributes:
        text: phrases for the reason of a verdict. lacking: why the cell is weak; empty if it is not.
    """

    text: tuple[str, ...] = ()
    lacking: str = ""


def coverage(cover: Cover, tally: Tally) -> ValueCover:
    """Compare the values that the samples of a cell had with the declared ones.

    A cell of few samples cannot have every value. So a missing value makes a cell weak only if there were twice as many
    samples as its name has values; otherwise it is mentioned.
    """
    unmet = cover.unmet(tally.sampled_values())
    unjudged = sorted(tally.starved_values())
    missing = [pair for pair in unmet if SAMPLES_EACH * len(cover.declared[pair[0]]) <= cover.picked]
    reasons = [(f"no element could be judged with {_describe_pairs(unjudged)}", unjudged)]
    reasons += [(f"no sample had {_describe_pairs(missing)}", missing)]
    lacking = "; ".join(text for text, pairs in reasons if pairs)
    declared = sum(len(values) for values in cover.declared.values())
    sampled, pairs = cover.pairs()
    words = f"{declared - len(unmet)} of {declared} declared values and {sampled} of {pairs} pairs of them"
    return ValueCover((words + (f" (not {_describe_pairs(unmet)})" if unmet else ""),), lacking)


def _describe_pairs(pairs: Sequence[Pair]) -> str:
    named = ", ".join(f"{name} {value}" for name, value in pairs[:MOST_NAMES])
    return named + (f" and {len(pairs) - MOST_NAMES} more" if len(pairs) > MOST_NAMES else "")
