"""Solutions of systems of equations, and inverses, which are right by what they leave of A X = B.

N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, 2002: an elimination with partial pivoting of
the rows or of the columns of A, and substitution, leaves γ |L| |U| |X| with the γ of 3 n operations (Theorem 9.4), and
elimination above the diagonal as well, by Gauss and Jordan, 8 n u |L| |U| |U⁻¹| |U| |X| to first order (Theorem 14.5).
Reflections leave columns whose norms are a share of those of A times |X| (Theorem 19.5, `reflections`). An inverse by
any of these is right from the right, or from the left: |X A − I| has the same bounds with X on the other side (section
14.3). What |L| and |U| may be follows from A (`elimination`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from .elimination import SAFETY, Elimination, eliminate, solve_middles
from .reflections import reflections
from .residual import MatrixResidual, SubstitutionErrors, describe_ratio, integers_of

#: Which elements are wrong; a residual, doubled, and its bound, doubled, as integers; and how many of these make 1.
Side = tuple[Any, Any, Any, int]


@dataclass(frozen=True)
class Bounds:
    """What an evaluation may leave of A X = B.

    Attributes:
        right, left: of A X − B per |X|, and of X A − I, after an elimination.
        columns, rows: of the 2-norm of a column of A X − B per |X|, and of a row of X A − I, after reflections.
        lost: of underflow, a share of an operation's.
        eliminated: of both after an elimination with substitution, and not by Gauss and Jordan.
        largest: how much larger than X and 1 what is computed on the way is. reciprocal: the largest of a pivot.
    """

    right: Any
    left: Any
    columns: Any
    rows: Any
    lost: float
    largest: float
    reciprocal: float
    eliminated: Any


def merge_eliminations(rows: Elimination | None, columns: Elimination | None, three: float, eight: float) -> Any:
    """Bounds per |X| on both sides, and what `Bounds` has as numbers; None where nothing is bounded.

    Args:
        rows, columns: of A by pivots of rows, and of its transpose. three, eight: γ of so many chains of operations.
    """
    if rows is None or columns is None or not eight * max(rows.skeel, columns.skeel) <= 0.25:
        return None  # What is of higher order than the first would not be small against that.
    plain = np.maximum(three * rows.factors, three * columns.factors.T)
    jordan = [eight * each.condition / (1 - eight * each.skeel) ** 2 * SAFETY for each in (rows, columns)]
    largest = max(float(each.condition.sum(1).max()) for each in (rows, columns))
    numbers = max(rows.lost, columns.lost), largest, max(rows.reciprocal, columns.reciprocal)
    return np.maximum(plain, jordan[0]), np.maximum(plain, jordan[1].T), *numbers, plain


class SolutionResidual(MatrixResidual):
    """X with A X = B.

    Where A may be singular, or more sequences of pivots are possible than are followed, nothing is judged; nor is a
    result that is not finite where an evaluation may overflow.
    """

    def __init__(self, matrix: tuple[Any, Any], right: tuple[Any, Any], errors: SubstitutionErrors) -> None:
        """
        Args:
            matrix, right: the least and the largest value of each element of A, (*, n, n), and B, (*, n, k).
            errors: of rounding.
        """
        stack = np.broadcast_shapes(matrix[0].shape[:-2], right[0].shape[:-2])
        n, columns = right[0].shape[-2:]
        super().__init__((*stack, n, columns), errors)
        self.matrix = [np.broadcast_to(each, (*stack, n, n)) for each in matrix]
        self.right = [np.broadcast_to(each, self.shape) for each in right]

    def never_fails(self, at: tuple[int, ...]) -> bool:
        """Whether no elimination meets a pivot of zero."""
        return self.bounds(at) is not None

    def bounds(self, at: tuple[int, ...]) -> Bounds | None:
        """Of a matrix: what bounds the residual; None where nothing does."""
        low, high = (each[at] for each in self.matrix)
        n = len(low)
        chain, turned = n - 1 + self.errors.division, reflections(n, n, self.errors)
        gammas = [self.errors.gamma(count * chain, count) for count in (1, 3, 8)]
        if turned is None or None in gammas or not (np.isfinite(low).all() and np.isfinite(high).all()):
            return None
        one, three, eight = (float(each or 0) * SAFETY for each in gammas)
        with np.errstate(all="ignore"):
            middle = (low / 2 + high / 2).astype(np.float64)
            radius = np.maximum(np.abs(high - middle), np.abs(middle - low)).astype(np.float64) * SAFETY
            most = np.abs(middle) + radius
            lost = (2 * n + 2) * 2 * self.errors.underflow
            rows, columns = eliminate(middle, radius + lost, one), eliminate(middle.T, radius.T + lost, one)
        # Reflections of A and of B, and substitution.
        share = float((1 + turned) ** 2 * (1 + Fraction(three)) - 1)
        lengths = [share * np.sqrt((each**2).sum(0)) * SAFETY for each in (most, most.T)]
        eliminations = merge_eliminations(rows, columns, three, eight)
        return None if eliminations is None else Bounds(*eliminations[:2], *lengths, *eliminations[2:])

    def _faults(self, at: tuple[int, ...], values: Any) -> tuple[Any, Any, Callable[[int, int], str]]:
        none, bounds = np.zeros(values.shape, dtype=bool), self.bounds(at) if values.size else None
        right = [each[at] for each in self.right]
        columns = np.isfinite(right).all(axis=(0, 1))
        if bounds is None or not columns.any():
            return none, none, lambda i, j: ""
        never_overflows = columns & self._never_overflow(at, right, bounds)
        finite = columns & np.isfinite(values).all(axis=0)
        sides = self._sides(at, np.where(finite, values, 0.0), [np.where(columns, each, 0.0) for each in right], bounds)
        # What the evaluation has computed on its way was no larger than this.
        largest = self._largest(np.abs(values).max(axis=0, initial=0.0), right, bounds)
        decided = never_overflows | (finite & (largest < self.errors.largest))
        wrongs = [each & finite & decided for each, *_ in sides]
        wrong = next((each for each in wrongs if not each.any()), wrongs[0])
        wrong |= never_overflows & ~np.isfinite(values)

        def describe(i: int, j: int) -> str:
            if not np.isfinite(values[i, j]):
                return "no evaluation overflows there"
            return describe_ratio("A X - B", (i, j), *sides[0][1:])

        return wrong, none | decided, describe

    def _sides(self, at: tuple[int, ...], values: Any, right: list[Any], bounds: Bounds) -> list[Side]:
        """The residuals of which one has to be within its bound."""
        return [self._side([each[at] for each in self.matrix], values, right, bounds)]

    def _side(self, matrix: list[Any], values: Any, right: list[Any], bounds: Bounds) -> Side:
        """A X − B, for a matrix and a right side between two ends, without any rounding.

        A column is right where an elimination explains each of its elements, or reflections explain its norm.
        """
        (x,), unit = integers_of(values)
        (low, high), unit_of_matrix = integers_of(*matrix)
        (share, share_of_norm), unit_of_share = integers_of(bounds.right, bounds.columns)
        ends, unit_of_right = integers_of(*right)
        # All numbers from here on are integers, in units of the product of all units, but for the share's.
        size, both = np.abs(x), unit * unit_of_matrix
        twice = ((low + high) @ x) * unit_of_right - sum(ends) * both
        open_ = ((high - low) @ size) * unit_of_right + (ends[1] - ends[0]) * both
        lost = 4 * Fraction(self.errors.underflow) * Fraction(bounds.lost) * unit_of_matrix * unit_of_right
        lost = lost * (size.sum(0)[None, :] + unit) + open_
        scale = Fraction(2 * unit_of_matrix * unit_of_right, unit_of_share)
        allowed, longest = scale * (share @ size) + lost, scale * (share_of_norm @ size) + lost.sum(0)
        wrong = (np.abs(twice) > allowed) & ((twice**2).sum(0) > longest**2)
        return wrong, twice, allowed, 2 * both * unit_of_right

    def _largest(self, x: Any, right: list[Any], bounds: Bounds) -> Any:
        """More than all that evaluations compute on their way to columns whose largest elements are x."""
        with np.errstate(all="ignore"):
            size = np.maximum(*(np.abs(each).astype(np.float64).max(axis=0, initial=0.0) for each in right))
            return 4 * np.maximum(bounds.largest * np.maximum(x, 1), size + bounds.reciprocal)

    def _never_overflow(self, at: tuple[int, ...], right: list[Any], bounds: Bounds) -> Any:
        """The columns in which no evaluation computes anything that is not finite.

        Where the bound per |X| has a norm of 1/4 at most behind the inverse of A, which float64 gives well then, a
        solution is no larger than 4/3 of the largest that A⁻¹ makes of B.
        """
        with np.errstate(all="ignore"):
            low, high = (each[at].astype(np.float64) for each in self.matrix)
            inverse = np.abs(np.linalg.inv(low / 2 + high / 2))
            most = np.maximum(np.maximum(bounds.right, bounds.left), np.maximum(bounds.columns, bounds.rows[:, None]))
            errors = inverse @ (most + (high - low))
            if not errors.sum(1).max() < 0.25:
                return np.zeros(self.shape[-1], dtype=bool)
            size = np.maximum(*(np.abs(each).astype(np.float64) for each in right))
            x = 2 * np.maximum((inverse @ size).max(0, initial=0.0), inverse.max())
            return self._largest(x, right, bounds) < self.errors.largest

    def likely(self) -> Any:
        return solve_middles(self.matrix, self.right)


class InverseResidual(SolutionResidual):
    """X with A X = I, or X A = I: one of them is near."""

    def __init__(self, matrix: tuple[Any, Any], errors: SubstitutionErrors) -> None:
        ones = np.broadcast_to(np.eye(matrix[0].shape[-1]), matrix[0].shape)
        super().__init__(matrix, (ones, ones), errors)

    def _sides(self, at: tuple[int, ...], values: Any, right: list[Any], bounds: Bounds) -> list[Side]:
        from_right = super()._sides(at, values, right, bounds)
        matrix = [each[at].T for each in self.matrix]
        mirror = replace(bounds, right=bounds.left.T, columns=bounds.rows)
        wrong, twice, allowed, unit = self._side(matrix, values.T, right, mirror)
        return [*from_right, (wrong.T, twice.T, allowed.T, unit)]
