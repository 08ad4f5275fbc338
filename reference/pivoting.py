"""A permutation and two triangles, which are right together: P L U is near A, as eliminations with pivots give them.

N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, 2002, Theorem 9.3: |P L U − A| ≤ γ P |L| |U|
with the γ of as many operations as there are pivots, whatever their order is, since an element of L or U is a sum of
products and a quotient (Lemma 8.4). With partial pivoting no multiplier exceeds 1, but for the rounding of a quotient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .dyadic import exact_difference
from .elimination import SAFETY, eliminate
from .factors import FactorResidual, middle_of
from .residual import Ends, Faults, SubstitutionErrors


class EliminationFactorResidual(FactorResidual):
    """P, L or U of a stack of matrices; one that is given without both others is not judged but for its zeros and ones.

    A result that is not finite is wrong where no pivot can be zero, on any order of pivots that some evaluation takes.
    """

    #: What is right together.
    roles: tuple[str, ...] = ("P", "L", "U")

    def __init__(self, role: str, ends: Ends, errors: SubstitutionErrors) -> None:
        """`role`: one of `roles`."""
        *stack, m, n = ends[0].shape
        rank = min(m, n)
        shape = {"P": (m, m), "L": (m, rank), "U": (rank, n), "LU": (m, n), "pivots": (rank, 1)}[role]
        super().__init__(role, (*stack, *shape), ends, errors.gamma(max(rank - 1, 0) + errors.division), errors)

    def _sizes(self, at: tuple[int, ...]) -> tuple[Any, Any] | None:
        low, high = (each[at].astype(np.float64) for each in self.ends)
        size = np.maximum(np.abs(low), np.abs(high))
        if self.share is None or not 2 * size.max(initial=0.0) < self.errors.largest:
            return None
        return size, high - low

    def _never_fails(self, at: tuple[int, ...]) -> bool:
        a, radius = middle_of(self.ends, at), (self.ends[1][at] - self.ends[0][at]).astype(np.float64)
        m, rank = len(a), min(a.shape)
        with np.errstate(all="ignore"):
            # The columns of A that have pivots, and others that are far from these.
            others = np.linalg.svd(a)[0][:, rank:] * np.abs(a).max()
            radius = np.hstack([radius[:, :rank], np.zeros(others.shape)]) + (2 * m + 2) * 2 * self.errors.underflow
            bounds = eliminate(np.hstack([a[:, :rank], others]), radius, self.share or 0.0)
            # What is left of A doubles in each step at most.
            largest = np.exp2(m + 1.0) * np.abs(a).max()
        return bounds is not None and max(bounds.reciprocal, largest) < self.errors.largest

    def _faults(self, at: tuple[int, ...], values: Any) -> Faults | None:
        faults = super()._faults(at, values)
        is_whole = all(self._other(role, at) is not None for role in self.roles if role != self.role)
        return faults if faults is None or is_whole else (faults[0], faults[1] & faults[0], faults[2])

    def _wrong(self, at: tuple[int, ...], values: Any, norms: Any, spread: Any) -> tuple[Any, str]:
        """`norms`: the sizes of the elements of A; `spread`: of each."""
        breaks, text = self._breaks_of_form(values)
        if breaks.any():
            i, j = map(int, np.argwhere(breaks)[0])
            return breaks, f"{text}, and not {values[i, j]:.9g} at [{i}, {j}]"
        parts = [values if role == self.role else self._other(role, at) for role in self.roles]
        if any(part is None for part in parts):
            return breaks, ""
        p, lower, upper = self._matrices(parts)
        sizes, pivot = np.abs(p) @ np.abs(lower) @ np.abs(upper), 1 + np.abs(upper).max(initial=0.0)
        lost = 2 * self.errors.underflow * (2 * lower.shape[1] + 4) * pivot * pivot
        allowed = ((self.share or 0.0) * sizes + spread + lost) * SAFETY
        residual = exact_difference([p, lower, upper], [middle_of(self.ends, at)])
        # Where a sum on the way may have overflowed, which all products together exceed, nothing is said.
        outside = ~(np.abs(residual) <= allowed) & (2 * (sizes + norms) < self.errors.largest)
        if not outside.any():
            return breaks, ""
        i, j = map(int, np.argwhere(outside)[0])
        text = f"P L U - A at [{i}, {j}] is {residual[i, j]:.6g}, and rounding explains {allowed[i, j]:.3g}"
        return np.broadcast_to(self._suspects(p, lower, outside), values.shape), text

    def _matrices(self, parts: list[Any]) -> tuple[Any, Any, Any]:
        """P, L and U of the values of all roles."""
        return parts[0], parts[1], parts[2]

    def _suspects(self, p: Any, lower: Any, outside: Any) -> Any:
        """The elements of which some element of P L U − A is made that is too large."""
        rows, columns = outside.any(1), outside.any(0)
        return {"P": rows[:, None], "L": (np.abs(p).T @ rows > 0)[:, None], "U": columns[None, :]}[self.role]

    def _breaks_of_form(self, values: Any) -> tuple[Any, str]:
        """The elements that are wrong whatever A is, and what they should be."""
        m, n = values.shape
        if self.role == "P":
            sums = (values.sum(0) != 1)[None, :] | (values.sum(1) != 1)[:, None]
            return sums | ((values != 0) & (values != 1)), "a permutation has a 1 in each row and column"
        if self.role == "U":
            return np.tri(m, n, k=-1, dtype=bool) & (values != 0), "below the diagonal of U are zeros"
        is_right = np.where(np.eye(m, n, dtype=bool), values == 1, np.abs(values) <= self._most)
        is_right &= (values == 0) | np.tri(m, n, dtype=bool)
        return (
            ~is_right,
            "L has ones, zeros above them, and multipliers of pivots that are the largest of their columns",
        )

    @property
    def _most(self) -> float:
        """The largest multiplier, where pivots are the largest of their columns."""
        return 1 + 2 * (self.errors.division + 1) * self.errors.unit + 2 * self.errors.factors

    def _factor(self, a: Any) -> Any:
        order, work, _ = self._eliminate(a)
        m, rank = len(a), min(a.shape)
        if self.role == "P":
            return np.eye(m)[order].T
        return np.tril(work, -1)[:, :rank] + np.eye(m, rank) if self.role == "L" else np.triu(work)[:rank]

    def _eliminate(self, a: Any) -> tuple[Any, Any, Any]:
        """The order of the rows, L and U in one, and the pivots' rows, by partial pivoting in float64."""
        (m, n), order, work = a.shape, np.arange(len(a)), np.array(a)
        pivots = np.zeros((min(m, n), 1))
        for k in range(min(m, n)):
            pivot = k + int(np.argmax(np.abs(work[k:, k])))
            pivots[k] = pivot + 1
            for each in (order, work):
                each[[k, pivot]] = each[[pivot, k]]
            if work[k, k] != 0:
                work[k + 1 :, k] /= work[k, k]
                work[k + 1 :, k + 1 :] -= np.outer(work[k + 1 :, k], work[k, k + 1 :])
        return order, work, pivots


class PackedFactorResidual(EliminationFactorResidual):
    """L and U in one matrix, or the rows, counted from 1, with which each row in turn has been exchanged."""

    roles = ("LU", "pivots")

    def _matrices(self, parts: list[Any]) -> tuple[Any, Any, Any]:
        m, n = parts[0].shape
        rank = min(m, n)
        p = np.eye(m)[order_of(parts[1][:, 0], m)].T
        return p, np.tril(parts[0], -1)[:, :rank] + np.eye(m, rank), np.triu(parts[0])[:rank]

    def _suspects(self, p: Any, lower: Any, outside: Any) -> Any:
        """All pivots, or the elements on the way to one that is too large."""
        rows = (p.T @ outside.any(1) > 0)[:, None] & np.tri(len(lower), outside.shape[1], k=-1, dtype=bool)
        return np.ones((1, 1), dtype=bool) if self.role == "pivots" else rows | outside.any(0)[None, :]

    def _breaks_of_form(self, values: Any) -> tuple[Any, str]:
        m, n = self.ends[0].shape[-2:]
        if self.role == "pivots":
            rows = np.arange(1, len(values) + 1)[:, None]
            return ~((values >= rows) & (values <= m) & (values == np.floor(values))), "a pivot is of a row below"
        return np.tri(m, n, k=-1, dtype=bool) & ~(np.abs(values) <= self._most), "no multiplier of a pivot is above 1"

    def _wrong(self, at: tuple[int, ...], values: Any, norms: Any, spread: Any) -> tuple[Any, str]:
        pivots = self._other("pivots", at)
        form = PackedFactorResidual("pivots", self.ends, self.errors)
        if pivots is not None and form._breaks_of_form(pivots)[0].any():
            return np.zeros(values.shape, dtype=bool), ""  # The pivots are told.
        return super()._wrong(at, values, norms, spread)

    def _factor(self, a: Any) -> Any:
        _, work, pivots = self._eliminate(a)
        return work if self.role == "LU" else pivots


def order_of(pivots: Any, size: int) -> Any:
    """The order of rows after exchanges of each in turn with the one of a number, counted from 1."""
    order = np.arange(size)
    for k, row in enumerate(np.asarray(pivots, dtype=np.int64) - 1):
        order[[k, row]] = order[[row, k]]
    return order
