"""Orthogonal and triangular factors, which are right together: Q R is near A, and Q has orthonormal columns.

N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, 2002, Theorem 19.4: with the share η of
`reflections` there is an exact orthogonal Q₀ such that R = Q₀ᵀ (A + ΔA) and Q = Q₀ + ΔQ, where no column of ΔA exceeds
η times that of A, and no column of ΔQ exceeds η. Signs are free, and so are the columns of Q that A leaves open.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from .reflections import reflections
from .residual import MatrixResidual, Residual, SubstitutionErrors, integers_of, moved_as

#: More than sums in float64 of numbers of one sign can be off by here.
_SAFETY = 1 + 2.0**-20


class _FactorOfColumns(MatrixResidual):
    """Q or R of a stack of matrices.

    Attributes:
        other: the values of the other factor, where a spec gives that as well.
    """

    other: Any = None

    def __init__(self, shape: tuple[int, ...], ends: tuple[Any, Any], errors: SubstitutionErrors) -> None:
        """`ends`: the least and the largest value of each element of A, of shape (*, m, n)."""
        super().__init__(shape, errors)
        self.ends = ends
        m, n = ends[0].shape[-2:]
        share = reflections(m, n, errors)
        self._share = None if share is None else float(share) * _SAFETY

    def _sizes(self, at: tuple[int, ...]) -> tuple[Any, Any] | None:
        """The largest norm of each column of A, and how far it may be from the middle; None where nothing is known.

        A norm may be a root of a sum of squares. So what is squared has to be far from underflow and from overflow.
        """
        low, high = (each[at].astype(np.float64) for each in self.ends)
        size, errors = np.maximum(np.abs(low), np.abs(high)), self.errors
        if self._share is None or not np.isfinite(size).all():
            return None
        with np.errstate(all="ignore"):
            least = np.min(size, where=size > 0, initial=1.0) ** 2 * errors.unit**2
            if least < errors.underflow or 16 * size.size * np.max(size, initial=0.0) ** 2 > errors.largest:
                return None
            return np.sqrt((size**2).sum(0)) * _SAFETY, np.sqrt(((high - low) ** 2).sum(0)) * _SAFETY

    def _faults(self, at: tuple[int, ...], values: Any) -> tuple[Any, Any, Callable[[int, int], str]]:
        none, sizes = np.zeros(values.shape, dtype=bool), self._sizes(at)
        if sizes is None or not values.size:
            return none, none, lambda i, j: ""
        if not np.isfinite(values).all():
            return ~np.isfinite(values), ~none, lambda i, j: "no evaluation overflows there"
        wrong, text = self._wrong(at, values, *sizes)
        return wrong, ~none, lambda i, j: text

    @abstractmethod
    def _wrong(self, at: tuple[int, ...], values: Any, norms: Any, spread: Any) -> tuple[Any, str]:
        """Which elements of a factor are wrong, and why.

        Args:
            at: the place of the matrix in the stack. values: of the factor.
            norms, spread: of the columns of A, as `_sizes` gives them.
        """

    def _middle(self, at: tuple[int, ...]) -> Any:
        low, high = (each[at].astype(np.float64) for each in self.ends)
        return low / 2 + high / 2

    def beside(self, other: Any) -> _FactorOfColumns:
        """The same factor where the values of the other one are known."""
        joined = copy.copy(self)
        joined.other, joined._last = other, None
        return joined

    def likely(self) -> Any:
        out = np.full(self.shape, np.nan)
        for at in np.ndindex(self.shape[:-2]):
            a = self._middle(at)
            if np.isfinite(a).all():
                q, r = np.linalg.qr(a, mode="complete")
                out[at] = q[:, : out.shape[-1]] if isinstance(self, OrthogonalResidual) else r[: out.shape[-2]]
        return out


class OrthogonalResidual(_FactorOfColumns):
    """Q: its columns are orthonormal, and the upper triangle of Qᵀ A makes A of them."""

    def _wrong(self, at: tuple[int, ...], values: Any, norms: Any, spread: Any) -> tuple[Any, str]:
        share, columns = self._share or 0.0, values.shape[1]
        gram = exact_difference([values.T, values], np.eye(columns))
        wrong = np.abs(gram) > (2 * share + share**2) * _SAFETY
        if wrong.any():
            i, j = map(int, np.argwhere(wrong)[0])
            return np.broadcast_to(wrong.any(0), values.shape), (
                f"Q^T Q - I at [{i}, {j}] is {gram[i, j]:.6g}, and rounding explains {2 * share:.3g}"
            )
        a = self._middle(at)
        # The triangle is that of Q₀ᵀ A but for η (1 + √n), and Q no larger than 1 + η √n.
        root = math.sqrt(columns)
        longest = 1 + share * root
        allowed = share * norms * (1 + root * (1 + share) + longest * (1 + root)) + spread * (1 + longest**2)
        # Where float64 rounds the triangle, that is off by less than a rounding of each of its products.
        allowed = allowed + norms * root * (len(a) + 2) * 2.0**-52
        residual = exact_difference([values, np.triu(values.T @ a)], a)
        return _columns_outside(residual, allowed, "Q triu(Q^T A) - A", values.shape, columns)


class TriangularFactorResidual(_FactorOfColumns):
    """R: zeros below its diagonal, and Q R is near A; without Q, Rᵀ R is near Aᵀ A."""

    def _wrong(self, at: tuple[int, ...], values: Any, norms: Any, spread: Any) -> tuple[Any, str]:
        share, a, below = self._share or 0.0, self._middle(at), np.tri(len(values), values.shape[1], k=-1, dtype=bool)
        misplaced = below & (values != 0)
        if misplaced.any():
            return misplaced, f"the element at {np.argwhere(misplaced)[0].tolist()}, below the diagonal, is not 0"
        if self.other is None or not np.isfinite(self.other[at]).all():
            gram = exact_difference([values.T, values], a, a)
            allowed = (
                (2 * share + share**2) * np.outer(norms, norms) + np.outer(spread, norms) + np.outer(norms, spread)
            )
            wrong = np.abs(gram) > allowed * _SAFETY
            i, j = map(int, np.argwhere(wrong)[0]) if wrong.any() else (0, 0)
            text = f"R^T R - A^T A at [{i}, {j}] is {gram[i, j]:.6g}, and rounding explains {allowed[i, j]:.3g}"
            return np.broadcast_to(wrong.any(0), values.shape), text
        allowed = share * norms * (1 + math.sqrt(len(values)) * (1 + share)) + spread * (1 + share * len(values))
        residual = exact_difference([self.other[at], values], a)
        return _columns_outside(residual, allowed, "Q R - A", values.shape, values.shape[1])


def _columns_outside(residual: Any, allowed: Any, what: str, shape: tuple[int, ...], columns: int) -> tuple[Any, str]:
    """Which columns of a residual are longer than allowed; those of a factor are as wrong as the first of A's."""
    norms = np.sqrt((residual**2).sum(0))
    wrong = norms > allowed * _SAFETY
    if not wrong.any():
        return np.zeros(shape, dtype=bool), ""
    j = int(np.argmax(wrong))
    mask = np.zeros(shape, dtype=bool)
    mask[:, min(j, columns - 1)] = True
    text = f"the length of column {j} of {what} is {norms[j]:.6g}, and rounding explains {allowed[j]:.3g}"
    return mask, f"{text} (a share of {norms[j] / allowed[j]:.4g})" if allowed[j] else text


def exact_difference(factors: Sequence[Any], *others: Any) -> Any:
    """A product of two matrices less a third one, or less the product of the transposed third one and a fourth one.

    Nothing is rounded before the end.
    """
    arrays, unit = integers_of(*factors, *others)
    first, second, *rest = arrays
    minus = rest[0] * unit if len(rest) == 1 else rest[0].T @ rest[1]
    whole = first @ second - minus
    return np.array([float(Fraction(x, unit * unit)) for x in whole.reshape(-1)]).reshape(whole.shape)


def join_factors(readings: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Readings of several results, where those that are factors of one matrix know each other's values.

    Args:
        readings: of any kind. values: float64 of each result, or None where it has not the shape of its reading.
    """
    factors: list[tuple[int, _FactorOfColumns, Any]] = []
    for i, (reading, own) in enumerate(zip(readings, values, strict=True)):
        source = reading.source if isinstance(reading, Residual) else None
        if isinstance(source, _FactorOfColumns) and own is not None:
            factors.append((i, source, reading.put_back(own)))
    out = list(readings)
    for i, source, _ in factors:
        for _, other, theirs in factors:
            if other is not source and other.ends is source.ends and type(other) is not type(source):
                out[i] = moved_as(source.beside(theirs), readings[i])
    return out
