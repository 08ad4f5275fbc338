"""The index of a value that occurs most often: those that some evaluation may give.

torch leaves open which of several values is given that occur equally often, and which of the elements that have it. Of
a row with a NaN, which equals nothing, every element is right.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from .ranked import Ranked, RankRange


class Modal(Ranked):
    """Indices of elements along an axis whose values may occur as often there as any."""

    def __init__(self, x: Any, axis: int) -> None:
        super().__init__(x, (axis,), RankRange(ordered=False))  # Its values go by what was chosen.

    @functools.cached_property
    def _possible(self) -> Any:
        """Which elements may have the value that occurs most often, in rows."""
        low, high = self.ends
        n = low.shape[-1]
        rows = [_may_be_modal(*pair) for pair in zip(low.reshape(-1, n), high.reshape(-1, n), strict=True)]
        return np.reshape(rows, low.shape)

    def _faults(self, indices: Any) -> Any:
        outside = (indices < 0) | (indices >= self._possible.shape[-1])
        right = np.take_along_axis(self._possible, np.where(outside, 0, indices), -1)
        return np.where(outside, 1, np.where(right, 0, 4)).astype(np.int8)

    def _choose_indices(self) -> tuple[Any, Any]:
        return self._likely_indices

    @functools.cached_property
    def _likely_indices(self) -> tuple[Any, Any]:
        values = self.values
        pairs = zip(*(each.reshape(-1, values.shape[-1]) for each in (values, self._possible)), strict=True)
        rows = [_first_modal(*pair) for pair in pairs]
        sure = np.sum(self._possible, axis=-1, keepdims=True) == 1
        return self.from_rows(np.reshape(rows, sure.shape)), self.from_rows(sure)

    def sequences(self, row: int) -> Iterator[Any]:
        """See `Decidable`."""
        likely = self.as_rows(self.likely())[row]
        others = np.flatnonzero(self._possible.reshape(-1, self._possible.shape[-1])[row])
        return iter([likely, *others[others != likely][:, None]])

    def _explain_one(self, row: tuple[int, ...], rank: int, indices: Any, fault: int) -> str:
        if fault == 1:
            return super()._explain_one(row, rank, indices, fault)
        return f"index {int(indices[rank])} has a value that occurs less often than another"


def _may_be_modal(low: Any, high: Any) -> Any:
    """Which elements of a row, each between two ends, may have the value that occurs most often."""
    if np.isnan(low).any() or np.isnan(high).any():
        return np.ones(low.shape, dtype=bool)
    exact = np.sort(low[low == high])
    surely = 1 if not exact.size else max(1, int(np.max(_counts(exact, exact, exact))))
    return _counts(np.sort(low), np.sort(high), low, high) >= surely


def _counts(lows: Any, highs: Any, low: Any, high: Any = None) -> Any:
    """How many of some intervals each of others touches; the ends of the first are ordered."""
    above = np.searchsorted(lows, low if high is None else high, side="right")
    return above - np.searchsorted(highs, low, side="left")


def _first_modal(values: Any, possible: Any) -> int:
    """The index of a value of a row that occurs most often, of those that are possible."""
    ordered = np.sort(values)
    return int(np.argmax(np.where(possible, _counts(ordered, ordered, values), -1)))
