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

#: What is right together: three factors, or the rows, counted from 1, with which each row in turn has been exchanged,
#: and L and U in one matrix.
_TOGETHER = (("P", "L", "U"), ("pivots", "LU"))


class EliminationFactorResidual(FactorResidual):
    """P, L or U of a stack of matrices, or two of them packed, as LAPACK has them.

    One that is given without the others is not judged but for its zeros and ones. A result that is not finite is wrong
    where no pivot can be zero, on any order of pivots that some evaluation takes.
    """

    def __init__(self, role: str, ends: Ends, errors: SubstitutionErrors) -> None:
        """`role`: one of `_TOGETHER`."""
        *stack, m, n = ends[0].shape
        rank = min(m, n)
        shape = {"P": (m, m), "L": (m, rank), "U": (rank, n), "LU": (m, n), "pivots": (rank, 1)}[role]
        super().__init__(role, (*stack, *shape), ends, errors.gamma(max(rank - 1, 0) + errors.division), errors)
        self._roles = next(roles for roles in _TOGETHER if role in roles)

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
        is_whole = all(self._other(role, at) is not None for role in self._roles if role != self.role)
        return faults if faults is None or is_whole else (faults[0], faults[1] & faults[0], faults[2])

    def _wrong(self, at: tuple[int, ...], values: Any, norms: Any, spread: Any) -> tuple[Any, str]:
        """`norms`: the sizes of the elements of A; `spread`: of each."""
        pivots = self._other("pivots", at) if self.role == "LU" else None
        if pivots is not None and self._breaks_of_form("pivots", pivots)[0].any():
            return np.zeros(values.shape, dtype=bool), ""  # The pivots are told.
        breaks, text = self._breaks_of_form(self.role, values)
        if breaks.any():
            i, j = map(int, np.argwhere(breaks)[0])
            return breaks, f"{text}, and not {values[i, j]:.9g} at [{i}, {j}]"
        parts = [values if role == self.role else self._other(role, at) for role in self._roles]
        if any(part is None for part in parts):
            return breaks, ""
        p, lower, upper = parts if len(parts) == 3 else _unpacked(*parts)
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

    def _suspects(self, p: Any, lower: Any, outside: Any) -> Any:
        """The elements of which some element of P L U − A is made that is too large; all pivots."""
        rows, columns = outside.any(1), outside.any(0)[None, :]
        of_lower = (np.abs(p).T @ rows > 0)[:, None]
        packed = (of_lower & np.tri(len(lower), outside.shape[1], k=-1, dtype=bool)) | columns
        every = {"P": rows[:, None], "L": of_lower, "U": columns, "LU": packed, "pivots": np.ones((1, 1), dtype=bool)}
        return every[self.role]

    def _breaks_of_form(self, role: str, values: Any) -> tuple[Any, str]:
        """The elements that are wrong whatever A is, and what they should be."""
        m, n = values.shape
        below = np.tri(m, n, k=-1, dtype=bool)
        if role == "P":
            sums = (values.sum(0) != 1)[None, :] | (values.sum(1) != 1)[:, None]
            return sums | ((values != 0) & (values != 1)), "a permutation has a 1 in each row and column"
        if role == "U":
            return below & (values != 0), "below the diagonal of U are zeros"
        if role == "pivots":
            rows, last = np.arange(1, m + 1)[:, None], self.ends[0].shape[-2]
            return ~((values >= rows) & (values <= last) & (values == np.floor(values))), "a pivot is of a row below"
        if role == "LU":
            return below & ~(np.abs(values) <= self._most), "no multiplier of a pivot is above 1"
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
        work, pivots = _eliminate(a)
        p, lower, upper = _unpacked(pivots, work)
        return {"P": p, "L": lower, "U": upper, "LU": work, "pivots": pivots}[self.role]


def _eliminate(a: Any) -> tuple[Any, Any]:
    """L and U in one, and the pivots' rows, by partial pivoting in float64."""
    (m, n), work = a.shape, np.array(a)
    pivots = np.zeros((min(m, n), 1))
    for k in range(min(m, n)):
        pivot = k + int(np.argmax(np.abs(work[k:, k])))
        pivots[k] = pivot + 1
        work[[k, pivot]] = work[[pivot, k]]
        if work[k, k] != 0:
            work[k + 1 :, k] /= work[k, k]
            work[k + 1 :, k + 1 :] -= np.outer(work[k + 1 :, k], work[k, k + 1 :])
    return work, pivots


def _unpacked(pivots: Any, packed: Any) -> tuple[Any, Any, Any]:
    """P, L and U."""
    m, rank = len(packed), len(pivots)
    p = np.eye(m)[order_of(pivots[:, 0], m)].T
    return p, np.tril(packed, -1)[:, :rank] + np.eye(m, rank), np.triu(packed)[:rank]


def order_of(pivots: Any, size: int) -> Any:
    """The order of rows after exchanges of each in turn with the one of a number, counted from 1."""
    order = np.arange(size)
    for k, row in enumerate(np.asarray(pivots, dtype=np.int64) - 1):
        order[[k, row]] = order[[row, k]]
    return order
