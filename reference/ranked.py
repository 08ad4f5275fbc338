"""Indices that hold the first ranks of an order, or one rank of it: those that some evaluation may give.

`torch.topk`, `sort`, `max`, `argmin` and `kthvalue` order elements, and say which of them come first. Each element is
known to lie between two ends, so an order is possible if no element comes before another that surely precedes it; then
there are values between the ends that are in this order. Ties may be broken either way, as torch's documents say,
unless a stable sort was asked for. A NaN counts as the largest of all, and as the least where torch looks for that.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .choice import Decidable


@dataclass(frozen=True)
class RankRange:
    """Which ranks of an order indices are asked for.

    Attributes:
        start, count: the first rank, and how many. Where the first is not 0 it is one alone.
        descending: whether the largest element has rank 0. ordered: whether the indices come in the order of ranks.
        stable: whether of elements that are equal the one with the lower index comes first.
        nans_first: whether NaNs are the first of an ascending order. nans_win: whether a NaN has the rank whatever
            it is, as in a median.
    """

    start: int = 0
    count: int = 1
    descending: bool = True
    ordered: bool = True
    stable: bool = False
    nans_first: bool = False
    nans_win: bool = False


class Ranked(Decidable):
    """Indices of elements that hold some ranks of an order along axes.

    Attributes:
        x, axes, ranks: what is ordered, along which axes, and which ranks are asked for.
        order: the axes of `x` as they are put into rows: those that are counted through come last.
    """

    def __init__(self, x: Any, axes: tuple[int, ...], ranks: RankRange, keepdims: bool = True) -> None:
        """The elements of `x` are counted through along `axes`; without `keepdims` one rank leaves no axis."""
        self.x, self.axes, self.ranks = x, axes, ranks
        rest = tuple(i for i in range(x.ndim) if i not in axes)
        self.order, self._rest = (*rest, *axes), tuple(x.shape[i] for i in rest)
        whole = tuple(ranks.count if i == axes[0] else 1 if i in axes else n for i, n in enumerate(x.shape))
        super().__init__(whole if keepdims else self._rest, self._accepts_indices, self._choose_indices)

    def rows_of(self, values: Any) -> Any:
        """An array of the shape of `x` as rows of what is ordered: (*others, n)."""
        count = math.prod(self.x.shape[i] for i in self.axes)  # -1 stands for no number where there are no elements
        return np.reshape(np.transpose(values, self.order), (*self._rest, count))

    def in_rows(self, indices: Any) -> Any:
        """An array of the shape of the indices with the ranks along its last axis."""
        if len(self.axes) == 1 and len(self.shape) == len(self.order):
            return np.moveaxis(indices, self.axes[0], -1)
        return np.reshape(indices, (*self._rest, 1))

    def from_rows(self, rows: Any) -> Any:
        """The inverse of `in_rows`."""
        if len(self.axes) == 1 and len(self.shape) == len(self.order):
            return np.moveaxis(rows, -1, self.axes[0])
        return np.reshape(rows, self.shape)

    @property
    def is_ordered(self) -> bool:
        return self.ranks.ordered

    def as_rows(self, numbers: Any) -> Any:
        return np.reshape(self.in_rows(numbers), (-1, self.ranks.count))

    def can_take(self, table: Any) -> Any:
        return np.all((table >= 0) & (table < self.ends[0].shape[-1]), axis=-1)

    def of_table(self, table: Any) -> Any:
        return self.from_rows(np.reshape(table, (*self._rest, self.ranks.count)))

    def elements(self, indices: Any) -> Any:
        """The elements at some indices: what the operation gives beside the indices, with derivatives."""
        rows = self.in_rows(indices)
        grid = np.ogrid[tuple(slice(n) for n in rows.shape)]
        return self.from_rows(self.rows_of(self.x)[(*grid[:-1], rows)])

    @functools.cached_property
    def ends(self) -> tuple[Any, Any]:
        """The least and the largest value of each element, in rows."""
        low, high = self.x.base().ends()
        return self.rows_of(numbers_of(low)), self.rows_of(numbers_of(high))

    @property
    def values(self) -> Any:
        """The values that a reading compares, in rows."""
        return self.rows_of(numbers_of(self.x.base().comparable()))

    def _key(self, values: Any) -> Any:
        """Numbers that ascend with the rank. An infinity counts as the largest finite number, a NaN as an infinity."""
        keys = np.where(np.isnan(values), np.inf, np.minimum(values, np.finfo(values.dtype).max))
        if self.ranks.nans_first:
            keys = np.where(np.isnan(values), -np.inf, np.maximum(values, np.finfo(values.dtype).min))
        return -keys if self.ranks.descending else keys

    @functools.cached_property
    def _keys(self) -> tuple[Any, Any]:
        low, high = map(self._key, self.ends)
        return (high, low) if self.ranks.descending else (low, high)

    def _has_nans(self) -> Any:
        """Where an element is a NaN of a row in which NaNs win; None where there are none."""
        if not self.ranks.nans_win:
            return None
        nans = np.isnan(self.ends[0])
        return nans if nans.any() else None

    def _accepts_indices(self, indices: Any) -> Any:
        return self.from_rows(self._faults(self.in_rows(indices)) == 0)

    def _faults(self, indices: Any) -> Any:
        """What is wrong with each index, in rows: 0 for nothing.

        Further: 1 for no index, 2 chosen twice, 3 overtaken by one that is not chosen, 4 at a wrong rank, 5 not stable.
        """
        low, high = self._keys
        outside = (indices < 0) | (indices >= low.shape[-1])
        at = np.where(outside, 0, indices)
        twice = _repeats(indices)
        first, last = np.take_along_axis(low, at, -1), np.take_along_axis(high, at, -1)
        none, ranks = np.zeros(indices.shape, bool), self.ranks
        overtaken = passed = unstable = none
        if ranks.start:
            begin, end = (np.take_along_axis(each, at, -1) for each in places(low, high))
            passed = (begin > ranks.start) | (end < ranks.start)
        else:
            others = high.copy()
            np.put_along_axis(others, at, np.inf, -1)
            overtaken = first > np.min(others, axis=-1, keepdims=True)
            if ranks.ordered:
                later = np.minimum.accumulate(last[..., ::-1], axis=-1)[..., ::-1]
                passed = np.concatenate([first[..., :-1] > later[..., 1:], none[..., :1]], axis=-1)
        if ranks.stable:
            unstable = _breaks_ties(first, last, at)
        nans = self._has_nans()
        if nans is not None:
            some = nans.any(axis=-1, keepdims=True)
            passed = np.where(some, ~np.take_along_axis(nans, at, -1), passed)
        faults = np.zeros(indices.shape, dtype=np.int8)
        for number, wrong in reversed(list(enumerate((outside, twice, overtaken, passed, unstable), 1))):
            faults[wrong] = number
        return faults

    def _choose_indices(self) -> tuple[Any, Any]:
        likely = np.argsort(self._key(self.values), axis=-1, kind="stable")
        begin, end = (np.take_along_axis(each, likely, -1) for each in places(*self._keys))
        part = slice(self.ranks.start, self.ranks.start + self.ranks.count)
        likely, sure = likely[..., part], (begin == end)[..., part]
        nans = self._has_nans()
        if nans is not None:
            some = nans.any(axis=-1, keepdims=True)
            likely = np.where(some, np.argmax(nans, axis=-1)[..., None], likely)
            sure = np.where(some, np.sum(nans, axis=-1, keepdims=True) == 1, sure)
        return self.from_rows(likely), self.from_rows(sure)

    def explain(self, indices: Any) -> str:
        """What is wrong with the first index that no evaluation may give, in a sentence; empty where none is."""
        rows = self.in_rows(np.asarray(indices))
        faults = self._faults(rows)
        if not faults.any():
            return ""
        *row, rank = map(int, np.argwhere(faults)[0])
        return self._explain_one(tuple(row), rank, rows[tuple(row)], int(faults[(*row, rank)]))

    def _explain_one(self, row: tuple[int, ...], rank: int, indices: Any, fault: int) -> str:
        index, count = int(indices[rank]), self.ends[0].shape[-1]
        if fault == 1:
            return f"index {index} is none of the {count} that there are"
        if fault == 2:
            return f"index {index} is chosen twice"
        low, high = (each[row] for each in self.ends)
        reach = f"index {index} has {_interval(low[index], high[index])}"
        if fault == 5:
            return f"{reach}, an index before it is larger and has the same: a stable sort keeps their order"
        if self.ranks.start or self._has_nans() is not None:
            return f"{reach}, which cannot have rank {self.ranks.start + rank}"
        others = np.ones(count, bool)
        others[indices[(indices >= 0) & (indices < count)] if fault == 3 else indices[: rank + 1]] = False
        keys = np.where(others, self._keys[1][row], np.inf)
        other = int(np.argmin(keys))
        what = "is not chosen" if fault == 3 else "comes later"
        return f"{reach}; index {other}, which {what}, has {_interval(low[other], high[other])}"

    def open_rows(self) -> Any:
        return np.flatnonzero(~np.all(self.in_rows(self.sure()), axis=-1).reshape(-1))

    def sequences(self, row: int) -> Iterator[Any]:
        """Every sequence of indices that is possible in a row: the likely one, then others, from both ends in turn."""
        n = self.ends[0].shape[-1]
        low, high = (each.reshape(-1, n)[row] for each in self._keys)
        likely = self.as_rows(self.likely())[row]
        ways: list[Iterator[tuple[int, ...]]]
        yield likely
        nans = self._has_nans()
        if nans is not None and nans.reshape(-1, n)[row].any():
            ways = [iter([(int(i),) for i in np.flatnonzero(nans.reshape(-1, n)[row])])]
        elif self.ranks.start:
            begin, end = places(low, high)
            ways = [iter([(int(i),) for i in np.flatnonzero((begin <= self.ranks.start) & (self.ranks.start <= end))])]
        else:
            ways = [_orders(low, high, self.ranks, backwards) for backwards in (False, True)]
        earlier = {tuple(likely)}
        while True:
            for way in ways:
                each = next(way, None)
                if each is None:  # One way that has ended has gone through all of them.
                    return
                if each not in earlier:
                    earlier.add(each)
                    yield np.array(each)


def numbers_of(values: Any) -> Any:
    """Values as floating numbers in the same order: of exact ones, which are objects, their places among all."""
    if values.dtype != object:
        return values
    numbers, known = np.full(values.shape, np.nan), (values == values).astype(bool)
    numbers[known] = np.unique(values[known], return_inverse=True)[1]
    return numbers


def _orders(low: Any, high: Any, ranks: RankRange, backwards: bool) -> Iterator[tuple[int, ...]]:
    """Sequences of `ranks.count` numbers in which none comes before another that surely precedes it."""
    # What surely comes behind so many others that it has none of the ranks is left out.
    rest = places(low, high)[0] < ranks.count

    def possible() -> Iterator[int]:
        numbers = np.flatnonzero(rest)
        numbers = numbers[low[numbers] <= np.min(high[numbers])]
        if ranks.stable:
            exact = low[numbers] == high[numbers]
            first = np.unique(low[numbers[exact]], return_index=True)[1]
            numbers = np.sort(np.concatenate([numbers[exact][first], numbers[~exact]]))
        return iter((numbers[::-1] if backwards else numbers).tolist())

    sequence, waiting = list[int](), [possible()]
    while waiting:
        number = next(waiting[-1], None)
        if number is None:
            waiting.pop()
            if sequence:
                rest[sequence.pop()] = True
            continue
        if len(sequence) == ranks.count - 1:
            yield (*sequence, number)
            continue
        sequence.append(number)
        rest[number] = False
        waiting.append(possible())


def _repeats(indices: Any) -> Any:
    """Where an index occurs more than once along the last axis."""
    order = np.argsort(indices, axis=-1, kind="stable")
    ascending = np.take_along_axis(indices, order, -1)
    twice = np.zeros(indices.shape, dtype=bool)
    twice[..., 1:] = ascending[..., 1:] == ascending[..., :-1]
    twice[..., :-1] |= twice[..., 1:]
    return np.take_along_axis(twice, np.argsort(order, axis=-1), -1)


def _breaks_ties(low: Any, high: Any, indices: Any) -> Any:
    """Where an index comes behind a larger one of an element that is surely equal, along the last axis."""
    order = np.argsort(low, axis=-1, kind="stable")
    low, high, ascending = (np.take_along_axis(each, order, -1) for each in (low, high, indices))
    wrong = np.zeros(indices.shape, dtype=bool)
    exact = (low == high)[..., 1:] & (low == high)[..., :-1]
    wrong[..., 1:] = exact & (low[..., 1:] == low[..., :-1]) & (ascending[..., 1:] < ascending[..., :-1])
    return np.take_along_axis(wrong, np.argsort(order, axis=-1), -1)


def _interval(low: Any, high: Any) -> str:
    low, high = float(low), float(high)
    return f"{low:.9g}" if low == high or low != low else f"a number from {low:.9g} to {high:.9g}"


def places(low: Any, high: Any) -> tuple[Any, Any]:
    """The first and the last place of every element along the last axis, in ascending order.

    Before an element come surely those whose upper end is below its lower end, and after it those whose lower end is
    above its upper end.

    Args:
        low, high: ends of every element, of one shape; NaNs come last.
    """
    count = low.shape[-1]
    # All ends are sorted, lower ones before equal upper ones. Before the lower end of an element stand the upper ends
    # of all elements that surely precede it; before its upper end, the lower ends of all that may, and its own.
    order = np.argsort(np.concatenate([low, high], axis=-1), axis=-1, kind="stable")
    is_high = order >= count
    back = np.argsort(order, axis=-1, kind="stable")
    highs = np.take_along_axis(np.cumsum(is_high, axis=-1), back, -1)
    lows = np.take_along_axis(np.cumsum(~is_high, axis=-1), back, -1)
    return highs[..., :count], lows[..., count:] - 1
