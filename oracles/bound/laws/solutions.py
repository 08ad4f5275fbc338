"""Solutions of systems of equations, and inverses, which are right by what they leave of A X = B.

N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, 2002: an elimination with partial pivoting of
the rows or of the columns of A, and substitution, leaves γ |L| |U| |X| with the γ of 3 n operations (Theorem 9.4), and
elimination above the diagonal as well, by Gauss and Jordan, 8 n u |L| |U| |U⁻¹| |U| |X| to first order (Theorem 14.5).
Reflections leave columns whose norms are a share of those of A times |X| (Theorem 19.5, `reflections`). An inverse by
any of these is right from the right, or from the left: |X A − I| has the same bounds with X on the other side (section
14.3). What |L| and |U| may be follows from A (`elimination`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from .dyadic import Dyadic
from .elimination import SAFETY, Elimination, eliminate, solve_middles
from .reflections import reflections
from .residual import Ends, EquationResidual, Side, SubstitutionErrors, describe_ratio


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


class SolutionResidual(EquationResidual):
    """X with A X = B; or an inverse, with A X = I or X A = I, since one of them is near.

    Where A may be singular, or more sequences of pivots are possible than are followed, nothing is judged; nor is a
    result that is not finite where an evaluation may overflow.
    """

    #: Of how many blocks of rows X is made, each of which is transposed by itself; A has as many of columns.
    _blocks = 1

    def __init__(self, matrix: Ends, right: Ends | None, errors: SubstitutionErrors) -> None:
        """
        Args:
            matrix, right: the least and the largest value of each element of A, (*, n, n), and B, (*, n, k); without
                B of the inverse.
            errors: of rounding.
        """
        self._is_inverse = right is None
        right = (self._one_of(matrix[0]),) * 2 if right is None else right
        stack = np.broadcast_shapes(matrix[0].shape[:-2], right[0].shape[:-2])
        n, columns = right[0].shape[-2:]
        super().__init__((*stack, n, columns), right, errors)
        self.matrix = [np.broadcast_to(each, (*stack, n, n)) for each in matrix]

    def _one_of(self, a: Any) -> Any:
        """The B of an inverse: ones, and zeros in all blocks but the first."""
        n = a.shape[-1]
        return np.broadcast_to(np.eye(n, n // self._blocks), (*a.shape[:-1], n // self._blocks))

    def _transposed(self, x: Any) -> Any:
        return np.concatenate([block.T for block in np.split(x, self._blocks)])

    def facts(self, at: tuple[int, ...]) -> Bounds | None:
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

    def _in_range(self, facts: Bounds, x: Any, right: Ends) -> Any:
        return self._largest(np.abs(x).max(axis=0, initial=0.0), right, facts) < self.errors.largest

    def _sides(self, at: tuple[int, ...], facts: Bounds, x: Any, right: Ends) -> list[Side]:
        matrix = [each[at] for each in self.matrix]
        sides = [self._side(matrix, x, right, facts)]
        if self._is_inverse:
            transposed = [np.hstack([*map(self._transposed, np.hsplit(each, self._blocks))]) for each in matrix]
            mirror = replace(facts, right=facts.left.T, columns=facts.rows)
            outside, text = self._side(transposed, self._transposed(x), right, mirror)
            sides.append((self._transposed(outside), text))
        return sides

    def _side(self, matrix: Sequence[Any], values: Any, right: Ends, bounds: Bounds) -> Side:
        """A X − B, for a matrix and a right side between two ends.

        A column is right where an elimination explains each of its elements, or reflections explain its norm.
        """
        x, low, high, least, most = map(Dyadic.of, (values, *matrix, *right))
        size, underflow = abs(x), Fraction(self.errors.underflow) * Fraction(bounds.lost)
        lost = (size.change(_sum) + 1) * (2 * underflow) + (high - low).half @ size + (most - least).half
        residual = (low + high).half @ x - (least + most).half
        allowed = Dyadic.of(bounds.right) @ size + lost
        longest = Dyadic.of(bounds.columns) @ size + lost.change(_sum)
        wrong = (abs(residual) > allowed) & ((residual * residual).change(_sum) > longest * longest)
        return wrong, lambda i, j: describe_ratio("A X - B", (i, j), residual, allowed)

    def _largest(self, x: Any, right: Ends, bounds: Bounds) -> Any:
        """More than all that evaluations compute on their way to columns whose largest elements are x."""
        with np.errstate(all="ignore"):
            size = np.maximum(*(np.abs(each).astype(np.float64).max(axis=0, initial=0.0) for each in right))
            return 4 * np.maximum(bounds.largest * np.maximum(x, 1), size + bounds.reciprocal)

    def _never_overflow(self, at: tuple[int, ...], facts: Bounds, right: Ends) -> Any:
        """The columns in which no evaluation computes anything that is not finite.

        Where the bound per |X| has a norm of 1/4 at most behind the inverse of A, which float64 gives well then, a
        solution is no larger than 4/3 of the largest that A⁻¹ makes of B.
        """
        with np.errstate(all="ignore"):
            low, high = (each[at].astype(np.float64) for each in self.matrix)
            inverse = np.abs(np.linalg.inv(low / 2 + high / 2))
            most = np.maximum(np.maximum(facts.right, facts.left), np.maximum(facts.columns, facts.rows[:, None]))
            errors = inverse @ (most + (high - low))
            if not errors.sum(1).max() < 0.25:
                return np.zeros(self.shape[-1], dtype=bool)
            size = np.maximum(*(np.abs(each).astype(np.float64) for each in right))
            x = 2 * np.maximum((inverse @ size).max(0, initial=0.0), inverse.max())
            return self._largest(x, right, facts) < self.errors.largest

    def likely(self) -> Any:
        return solve_middles(self.matrix, self.right)


def _sum(numbers: Any) -> Any:
    """Of each column."""
    return np.asarray(numbers.sum(0))
