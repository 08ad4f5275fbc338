"""Elimination with partial pivoting: how large the factors may be that an evaluation computes.

N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, 2002, bounds the residual of a solution by
the factors L and U that the evaluation has computed (Theorems 9.3, 9.4 and 14.5). How much larger than A these are, the
growth, has no useful bound a priori. So A is eliminated here, along every sequence of pivots that an evaluation with
partial pivoting may take, and the factors of all of these are bounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: More sequences of pivots than this are not followed; then the growth is not known, and nothing is judged.
_MOST_SEQUENCES = 32
#: More than sums and products in float64 of numbers of one sign can be off by here.
SAFETY = 1 + 2.0**-20


@dataclass(frozen=True)
class Elimination:
    """What bounds every elimination of a matrix with partial pivoting, over all its evaluations.

    Attributes:
        factors: |L| |U|, element by element, with the rows of the matrix in their own order.
        condition: |L| |U| |U⁻¹| |U| in the same way, for elimination above the diagonal.
        skeel: the norm of |U⁻¹| |U|, the largest sum of a row.
        lost: a residual's share of underflow: of an operation's, for a solution whose elements sum to one.
        reciprocal: the largest 1 / |u| of a pivot u.
    """

    factors: Any
    condition: Any
    skeel: float
    lost: float
    reciprocal: float


@dataclass(frozen=True)
class _Stage:
    """A matrix after some steps.

    Attributes:
        order: of its rows. work: L and U, packed, and what is left. radii: of all that. most: no multiplier exceeds it.
    """

    order: Any
    work: Any
    radii: Any
    steps: int
    most: float

    def with_pivot(self, row: int) -> _Stage:
        """After another step, with a row of what is left as the pivot."""
        k, order, work, radii = self.steps, self.order.copy(), self.work.copy(), self.radii.copy()
        for each in (order, work, radii):
            each[[k, row]] = each[[row, k]]
        pivot, least = work[k, k], abs(work[k, k]) - radii[k, k]
        column = work[k + 1 :, k] / pivot
        radii[k + 1 :, k] = (radii[k + 1 :, k] + np.abs(column) * radii[k, k]) / least
        work[k + 1 :, k] = column
        work[k + 1 :, k + 1 :] -= np.outer(column, work[k, k + 1 :])
        return _Stage(order, work, radii, k + 1, self.most)

    def largest_factors(self) -> tuple[Any, Any]:
        """Bounds of L, (n, k), whose elements are no larger than `most`, and U, (k, n)."""
        k = self.steps
        size = np.abs(self.work) + self.radii
        return np.tril(np.minimum(size, self.most), -1)[:, :k] + np.eye(len(size))[:, :k], np.triu(size)[:k]


def eliminate(matrix: Any, radius: Any, gamma: float, of_parts: bool = False) -> Elimination | None:
    """Bound the factors of all eliminations with partial pivoting of all matrices that are near a given one.

    The computed factors are the exact ones of A + E with |E| ≤ γ |L| |U| (Theorem 9.3), and so is what is left after k
    steps. Let S be that of A, and S' that of B = A + E. Then [−A₂₁ A₁₁⁻¹, I] A = [0, S] and B [−B₁₁⁻¹ B₁₂; I] is
    [0; S'], so S' − S = [−A₂₁ A₁₁⁻¹, I] E [−B₁₁⁻¹ B₁₂; I]. A row may be the pivot if no other is surely larger.

    Args:
        matrix: float64 or complex128, (n, n). radius: how far from it the elements may be. gamma: γ of n operations
            and a quotient. of_parts: whether the largest is that by the sum of the sizes of both parts, as in LAPACK.

    Returns:
        The bound; None where there are too many sequences of pivots, or a matrix may be singular.
    """
    n = len(matrix)
    # The arithmetic here makes errors of its own, which count like those of an evaluation.
    is_complex, widest = np.iscomplexobj(matrix), math.sqrt(2) if of_parts else 1.0
    gamma = (gamma + (8 * (n + 8) if is_complex else 2 * (n + 4)) * 2.0**-53) * SAFETY
    # A multiplier by a rounded reciprocal may exceed the largest by as much.
    most = widest * SAFETY * (1 + gamma if is_complex else 1.0)
    work = np.array(matrix, np.complex128 if is_complex else np.float64)
    stages, every, followed = [_Stage(np.arange(n), work, np.zeros((n, n)), 0, most)], [], 0
    with np.errstate(all="ignore"):
        while stages:
            stage = stages.pop()
            if stage.steps == n:
                one = _bound_of(stage)
                if one is None:
                    return None
                every.append(one)
                continue
            k, spread = stage.steps, _spread_left(stage, radius[stage.order], gamma)
            if spread is None:
                return None
            stage.radii[k:, k:] = spread
            column, open_ = stage.work[k:, k], widest * spread[:, 0]
            size = np.abs(column.real) + np.abs(column.imag) if of_parts else np.abs(column)
            low, high = size - open_, size + open_
            likely = np.flatnonzero(high >= low.max())
            followed += len(likely) - 1
            if not low[likely].min() > 0 or followed > _MOST_SEQUENCES:
                return None
            stages += [stage.with_pivot(k + int(row)) for row in likely]
    columns = zip(*((each.factors, each.condition) for each in every), strict=True)
    factors, condition = (np.max(each, axis=0) for each in columns)
    skeel, lost, reciprocal = (
        max(float(getattr(each, name)) for each in every) for name in ("skeel", "lost", "reciprocal")
    )
    return Elimination(factors, condition, skeel, lost, reciprocal)


def _spread_left(stage: _Stage, radius: Any, gamma: float) -> Any:
    """How far what is left after some steps may be from what it is here; None where no bound is known."""
    k, work = stage.steps, stage.work
    lower, upper = stage.largest_factors()
    errors = lower @ upper
    errors[k:, k:] += np.abs(work[k:, k:])
    errors = gamma * errors + radius
    if not k:
        return errors / (1 - gamma)
    inverses = np.linalg.inv(np.tril(work[:k, :k], -1) + np.eye(k)), np.linalg.inv(np.triu(work[:k, :k]))
    inverse = np.abs(inverses[1] @ inverses[0])
    share = inverse @ errors[:k, :k]
    if not share.sum(1).max() < 0.25:
        return None
    right = np.abs(inverses[1] @ work[:k, k:])
    right += np.linalg.solve(np.eye(k) - share, inverse @ (errors[:k, k:] + errors[:k, :k] @ right))
    of_rows = np.abs(work[k:, :k] @ inverses[0]) @ errors[:k] + errors[k:]
    return (of_rows[:, :k] @ right + of_rows[:, k:]) * SAFETY / (1 - gamma)


def _bound_of(stage: _Stage) -> Elimination | None:
    """What bounds all evaluations along one sequence of pivots; None where U may be singular."""
    n = len(stage.work)
    lower, upper = stage.largest_factors()
    inverse = np.abs(np.linalg.inv(np.triu(stage.work)))
    share = inverse @ np.triu(stage.radii)
    if not np.diag(share).max() < 0.5:
        return None
    inverse = np.linalg.solve(np.eye(n) - share, inverse) * SAFETY
    factors, skeel = lower @ upper * SAFETY, inverse @ upper
    condition = factors @ skeel * SAFETY
    if not np.isfinite(condition).all():
        return None
    size = 1 + upper.sum(1).max() + upper.sum(0).max() + np.diag(upper).max() ** 2
    lost = (2 * n + 2) * size * (1 + (lower + factors @ inverse).sum(1).max())
    reciprocal = 1 / (np.abs(np.diag(stage.work)) - np.diag(stage.radii)).min()
    back = np.argsort(stage.order)
    return Elimination(factors[back], condition[back], float(skeel.sum(1).max()), float(lost), float(reciprocal))


def bound_substitution(size: Any, least: Any, right: Any, order: Sequence[int]) -> tuple[Any, Any]:
    """What solves the comparison matrix of a triangle, which bounds all that substitution computes (section 8.2).

    Args:
        size: of the elements of the triangle, (n, n). least: of those of its diagonal. right: sizes, (n, k).
        order: of the rows.

    Returns:
        The solution, and of each column the largest number on the way, that of a reciprocal among these.
    """
    bound, largest = np.zeros(right.shape), np.zeros(right.shape[1])
    with np.errstate(all="ignore"):
        for row in order:
            total = right[row] + size[row] @ bound
            bound[row] = total / least[row]
            largest = np.maximum(largest, np.maximum(total, np.maximum(bound[row], size[row, row] * bound[row])))
        return bound, np.maximum(largest, np.max(1 / least, initial=0.0))


def solve_middles(matrix: Sequence[Any], right: Sequence[Any]) -> Any:
    """What solves A X = B in float64, for A and B in the middle of their ends; NaN where A is singular.

    Args:
        matrix, right: the least and the largest values of A, (*, n, n), and of B, (*, n, k).
    """
    out = np.full(right[0].shape, np.nan)
    with np.errstate(all="ignore"):
        a, b = ((low / 2 + high / 2).astype(np.float64) for low, high in (matrix, right))
    for at in np.ndindex(a.shape[:-2]):
        try:
            out[at] = np.linalg.solve(a[at], b[at])
        except np.linalg.LinAlgError:
            continue
    return out
