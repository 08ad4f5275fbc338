"""The rank of a matrix: how many of its singular values are larger than a tolerance, as far as rounding leaves it open.

An evaluation computes values that are off by as much as `spectral` says. So a value counts for every evaluation if it
exceeds the tolerance by more than that, and for none if it is as far below it; between these any number is right. The
tolerance may be a share of the largest value, which is off itself.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .choice import Choice
from .spectral import SpectralValuesResidual

_Ends = tuple[Any, Any]


class NumericalRank(Choice):
    """How many values of each of a stack of matrices exceed the larger one of a number and a share of the largest.

    Of matrices whose values are not known every rank is right that their shape allows.
    """

    def __init__(
        self, shape: tuple[int, ...], values: Sequence[SpectralValuesResidual], absolute: _Ends, relative: _Ends
    ) -> None:
        """
        Args:
            shape: of the ranks.
            values: singular values or eigenvalues, of which magnitudes count, in every way that an evaluation may take.
            absolute, relative: the least and the largest tolerance, and share, for each matrix.
        """
        super().__init__(shape, self._accepts_ranks, lambda: (self._between[0], self._between[0] == self._between[1]))
        self._values = values
        self._tolerances = [[np.broadcast_to(end, shape) for end in ends] for ends in (absolute, relative)]

    @functools.cached_property
    def _between(self) -> _Ends:
        """The least and the largest rank of each matrix."""
        least, most = np.empty(self.shape, dtype=np.int64), np.empty(self.shape, dtype=np.int64)
        size = self._values[0].shape[-2]
        for at in np.ndindex(self.shape):
            place = at[len(at) - len(self._values[0].shape[:-2]) :]
            place = tuple(i if n > 1 else 0 for i, n in zip(place, self._values[0].shape[:-2], strict=True))
            every = [self._count(at, each.ends_of_values(place)) if size else (0, 0) for each in self._values]
            least[at], most[at] = min(low for low, _ in every), max(high for _, high in every)
        return least, most

    def _count(self, at: tuple[int, ...], ends: _Ends | None) -> tuple[int, int]:
        if ends is None:
            return 0, self._values[0].shape[-2]
        low, high = np.maximum(np.maximum(ends[0], -ends[1]), 0.0), np.maximum(-ends[0], ends[1])
        # A tolerance may be rounded to the format, and so may its product with the largest value.
        room = 4 * self._values[0].errors.unit
        absolute, relative = ([float(end[at]) for end in each] for each in self._tolerances)
        least = max(absolute[0], relative[0] * low.max()) * (1 - room) - self._values[0].errors.underflow
        most = max(absolute[1], relative[1] * high.max()) * (1 + room) + self._values[0].errors.underflow
        return int(np.sum(low > most)), int(np.sum(high > max(least, 0.0)))

    def _accepts_ranks(self, ranks: Any) -> Any:
        return (self._between[0] <= ranks) & (ranks <= self._between[1])

    def refutable(self) -> Any:
        return (self._between[0] > 0) | (self._between[1] < self._values[0].shape[-2])

    def explain(self, indices: Any) -> str:
        wrong = np.argwhere(~self._accepts_ranks(np.asarray(indices)))
        if not len(wrong):
            return ""
        at = tuple(map(int, wrong[0]))
        low, high = (int(end[at]) for end in self._between)
        count = f"{low}" if low == high else f"{low} to {high}"
        return f"evaluations count {count} singular values above the tolerance"
