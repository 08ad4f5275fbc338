"""Integers that are drawn at random: any that a draw may give.

A dropped element is 0 or 1 in a mask, a sample is any word that has a probability, and a number that is rounded by
chance has one of two neighbours. What is computed from them is right by what was drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .choice import Decidable


class Draw(Decidable):
    """Integers of which a draw gives any between two bounds; each is a row of its own.

    Attributes:
        low, high: the bounds, arrays of integers.
    """

    def __init__(self, low: Any, high: Any, possible: Any = None, distinct: bool = False) -> None:
        """
        Args:
            low, high: see above. possible: (*rows, n), which of the numbers below n a draw gives; None for all.
            distinct: whether those along the last axis are different ones.
        """
        self.low, self.high = np.broadcast_arrays(low, high)
        self._possible, self._distinct = possible, distinct
        super().__init__(self.low.shape, self._accepts_numbers, self._choose_number)

    def _accepts_numbers(self, numbers: Any) -> Any:
        right = (self.low <= numbers) & (numbers <= self.high)
        if self._possible is not None:
            right &= np.take_along_axis(self._possible, np.where(right, numbers, 0), -1)
        if self._distinct:
            same = numbers[..., :, None] == numbers[..., None, :]
            right &= np.sum(same, axis=-1) == 1
        return right

    def _choose_number(self) -> tuple[Any, Any]:
        if self._possible is None:
            return self.high, self.low == self.high
        ranked = np.argsort(~self._possible, axis=-1, kind="stable")
        likely = np.take(ranked, np.arange(self.shape[-1]) if self._distinct else [0] * self.shape[-1], axis=-1)
        return likely, np.broadcast_to(self._possible.sum(-1, keepdims=True) == 1, self.shape)

    def as_rows(self, numbers: Any) -> Any:
        return np.reshape(numbers, (-1, 1))

    def of_table(self, table: Any) -> Any:
        return np.reshape(table, self.shape)

    def can_take(self, table: Any) -> Any:
        return (table[:, 0] >= self.low.reshape(-1)) & (table[:, 0] <= self.high.reshape(-1))

    def open_rows(self) -> Any:
        return np.flatnonzero(~self.sure().reshape(-1))

    def tosses(self, rows: Any) -> bool:
        """Whether these rows, which a mask gives, are draws of 0 or 1."""
        return not self.low.reshape(-1)[rows].any() and bool((self.high.reshape(-1)[rows] == 1).all())

    def tables(self) -> Iterator[Any] | None:
        if self._possible is not None:
            return None
        steps = range(int(np.max(self.high - self.low, initial=0)) + 1)
        return (np.maximum(self.high - step, self.low).reshape(-1, 1) for step in steps)

    def explain(self, indices: Any) -> str:
        wrong = np.argwhere(~self.accepts(indices))
        if not len(wrong):
            return ""
        number = int(np.asarray(indices)[tuple(wrong[0])])
        if not self.low.min() <= number <= self.high.max():
            return f"{number} is not from {self.low.min()} to {self.high.max()}"
        return f"{number} is drawn twice, or has no probability"

    def sequences(self, row: int) -> Iterator[Any]:
        low, high = self.low.reshape(-1)[row], self.high.reshape(-1)[row]
        numbers = np.arange(high, low - 1, -1)
        if self._possible is not None:
            extent = (*self.shape, self._possible.shape[-1])
            possible = np.broadcast_to(self._possible[..., None, :], extent).reshape(-1, extent[-1])[row]
            numbers = np.flatnonzero(possible)
        return iter(numbers[:, None])
