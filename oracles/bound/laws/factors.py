"""Factors of a matrix that are right together, such as Q and R: each is judged beside the values of the others."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from .elimination import SAFETY
from .residual import Ends, Faults, MatrixResidual, Residual, SubstitutionErrors


class FactorResidual(MatrixResidual):
    """A factor of each of a stack of matrices.

    Attributes:
        role: which factor it is.
        ends: the least and the largest value of each element of A, of shape (*, m, n); the factors of one A share it.
        share: what transformations may add to A, as a share of its columns; None where it is no small number.
        others: the values of the other factors of A by their roles, as far as a spec gives them.
    """

    others: Mapping[str, Any] = {}

    def __init__(
        self, role: str, shape: tuple[int, ...], ends: Ends, share: Fraction | None,
        errors: SubstitutionErrors,
    ) -> None:  # fmt: skip
        super().__init__(shape, errors)
        self.role, self.ends = role, ends
        self.share = None if share is None else float(share) * SAFETY

    def _sizes(self, at: tuple[int, ...]) -> tuple[Any, Any] | None:
        """The largest norm of each column of A, and how far it may be from the middle; None where nothing is known.

        A norm may be a root of a sum of squares. So what is squared has to be far from underflow and from overflow.
        """
        low, high = (each[at].astype(np.float64) for each in self.ends)
        size, errors = np.maximum(np.abs(low), np.abs(high)), self.errors
        if self.share is None or not np.isfinite(size).all():
            return None
        with np.errstate(all="ignore"):
            least = np.min(size, where=size > 0, initial=1.0) ** 2 * errors.unit**2
            if least < errors.underflow or 16 * size.size * np.max(size, initial=0.0) ** 2 > errors.largest:
                return None
            return np.sqrt((size**2).sum(0)) * SAFETY, np.sqrt(((high - low) ** 2).sum(0)) * SAFETY

    def _faults(self, at: tuple[int, ...], values: Any) -> Faults | None:
        sizes = self._sizes(at)
        if sizes is None or not values.size:
            return None
        if not np.isfinite(values).all():
            never_fails = self._never_fails(at)
            return ~np.isfinite(values) & never_fails, never_fails, lambda i, j: "no evaluation overflows there"
        with np.errstate(all="ignore"):
            wrong, text = self._wrong(at, values, *sizes)
        return wrong, True, lambda i, j: text

    def never_fails(self, at: tuple[int, ...]) -> bool:
        return self._sizes(at) is not None and self._never_fails(at)

    def _never_fails(self, at: tuple[int, ...]) -> bool:
        """Whether every evaluation gives finite numbers, where the sizes of A are known."""
        return True

    @abstractmethod
    def _wrong(self, at: tuple[int, ...], values: Any, norms: Any, spread: Any) -> tuple[Any, str]:
        """Which elements of a factor are wrong, and why.

        Args:
            at: the place of the matrix in the stack. values: of the factor.
            norms, spread: of the columns of A, as `_sizes` gives them.
        """

    def _other(self, role: str, at: tuple[int, ...]) -> Any:
        """The finite values of another factor; None where it is not known."""
        values = self.others.get(role)
        return None if values is None or not np.isfinite(values[at]).all() else values[at]

    def beside(self, others: Mapping[str, Any]) -> FactorResidual:
        """The same factor where the values of other ones are known."""
        joined = copy.copy(self)
        joined.others, joined._last = others, None
        return joined

    def likely(self) -> Any:
        out = np.full(self.shape, np.nan)
        for at in np.ndindex(self.shape[:-2]):
            a = middle_of(self.ends, at)
            if np.isfinite(a).all() and out[at].size:
                out[at] = self._factor(a)
        return out

    @abstractmethod
    def _factor(self, a: Any) -> Any:
        """This factor of a finite matrix in float64."""


def middle_of(ends: Ends, at: tuple[int, ...]) -> Any:
    """The middle of each element of a matrix in a stack, in float64; twice its radius covers the rounding of it."""
    low, high = (each[at].astype(np.float64) for each in ends)
    with np.errstate(invalid="ignore"):
        return low / 2 + high / 2


def join_factors(readings: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Readings of several results, where those that are factors of one matrix know each other's values.

    Args:
        readings: of any kind. values: float64 of each result, or None where it has not the shape of its reading.
    """
    factors: list[tuple[int, FactorResidual, Any]] = []
    for i, (reading, own) in enumerate(zip(readings, values, strict=True)):
        source = reading.source if isinstance(reading, Residual) else None
        if isinstance(source, FactorResidual) and own is not None:
            factors.append((i, source, reading.put_back(own)))
    out = list(readings)
    for i, source, _ in factors:
        others = {each.role: theirs for _, each, theirs in reversed(factors) if each.ends is source.ends}
        others.pop(source.role)
        out[i] = readings[i].with_source(source.beside(others))
    return out
