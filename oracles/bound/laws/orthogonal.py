"""Residuals of Q and R, the orthogonal and the triangular factor: Q R is near A, and Q has orthonormal columns.

N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, 2002, Theorem 19.4: with the share η of
`reflections` there is an exact orthogonal Q₀ such that R = Q₀ᵀ (A + ΔA) and Q = Q₀ + ΔQ, where no column of ΔA exceeds
η times that of A, and no column of ΔQ exceeds η. Signs are free, and so are the columns of Q that A leaves open.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .dyadic import exact_difference
from .elimination import SAFETY
from .factors import FactorResidual, middle_of
from .reflections import reflections
from .residual import Ends, SubstitutionErrors


class OrthogonalFactorResidual(FactorResidual):
    """Q: its columns are orthonormal, and Q times the upper triangle of Qᵀ A is near A.

    Or R: zeros below its diagonal, and Q R is near A; without Q, Rᵀ R is near Aᵀ A.
    """

    def __init__(self, role: str, shape: tuple[int, ...], ends: Ends, errors: SubstitutionErrors) -> None:
        """`role`: Q or R."""
        m, n = ends[0].shape[-2:]
        super().__init__(role, shape, ends, reflections(m, n, errors), errors)

    def _factor(self, a: Any) -> Any:
        q, r = np.linalg.qr(a, mode="complete")
        return q[:, : self.shape[-1]] if self.role == "Q" else r[: self.shape[-2]]

    def _wrong(self, at: tuple[int, ...], values: Any, norms: Any, spread: Any) -> tuple[Any, str]:
        wrong = self._wrong_columns if self.role == "Q" else self._wrong_triangle
        return wrong(at, values, norms, spread)

    def _wrong_columns(self, at: tuple[int, ...], values: Any, norms: Any, spread: Any) -> tuple[Any, str]:
        share, columns = self.share or 0.0, values.shape[1]
        gram = exact_difference([values.T, values], [np.eye(columns)])
        wrong = np.abs(gram) > (2 * share + share**2) * SAFETY
        if wrong.any():
            i, j = map(int, np.argwhere(wrong)[0])
            return np.broadcast_to(wrong.any(0), values.shape), (
                f"Q^T Q - I at [{i}, {j}] is {gram[i, j]:.6g}, and rounding explains {2 * share:.3g}"
            )
        a = middle_of(self.ends, at)
        # The triangle differs from that of Q₀ᵀ A by at most η (1 + √n) of A's norms, and Q has a norm of at most
        # 1 + η √n.
        root = math.sqrt(columns)
        longest = 1 + share * root
        allowed = share * norms * (1 + root * (1 + share) + longest * (1 + root)) + spread * (1 + longest**2)
        # The triangle is computed here in float64, whose error is less than one rounding of each of its products.
        allowed = allowed + norms * root * (len(a) + 2) * 2.0**-52
        residual = exact_difference([values, np.triu(values.T @ a)], [a])
        return _columns_outside(residual, allowed, "Q triu(Q^T A) - A", values.shape, columns)

    def _wrong_triangle(self, at: tuple[int, ...], values: Any, norms: Any, spread: Any) -> tuple[Any, str]:
        share, a = self.share or 0.0, middle_of(self.ends, at)
        misplaced = np.tri(len(values), values.shape[1], k=-1, dtype=bool) & (values != 0)
        if misplaced.any():
            return misplaced, f"the element at {np.argwhere(misplaced)[0].tolist()}, below the diagonal, is not 0"
        q = self._other("Q", at)
        if q is None:
            gram = exact_difference([values.T, values], [a.T, a])
            allowed = (
                (2 * share + share**2) * np.outer(norms, norms) + np.outer(spread, norms) + np.outer(norms, spread)
            )
            wrong = np.abs(gram) > allowed * SAFETY
            i, j = map(int, np.argwhere(wrong)[0]) if wrong.any() else (0, 0)
            text = f"R^T R - A^T A at [{i}, {j}] is {gram[i, j]:.6g}, and rounding explains {allowed[i, j]:.3g}"
            return np.broadcast_to(wrong.any(0), values.shape), text
        allowed = share * norms * (1 + math.sqrt(len(values)) * (1 + share)) + spread * (1 + share * len(values))
        residual = exact_difference([q, values], [a])
        return _columns_outside(residual, allowed, "Q R - A", values.shape, values.shape[1])


def _columns_outside(residual: Any, allowed: Any, what: str, shape: tuple[int, ...], columns: int) -> tuple[Any, str]:
    """Which columns of a residual are longer than allowed; those of a factor are as wrong as the first of A's."""
    norms = np.sqrt((residual**2).sum(0))
    wrong = norms > allowed * SAFETY
    if not wrong.any():
        return np.zeros(shape, dtype=bool), ""
    j = int(np.argmax(wrong))
    mask = np.zeros(shape, dtype=bool)
    mask[:, min(j, columns - 1)] = True
    text = f"the length of column {j} of {what} is {norms[j]:.6g}, and rounding explains {allowed[j]:.3g}"
    return mask, f"{text} (a share of {norms[j] / allowed[j]:.4g})" if allowed[j] else text
