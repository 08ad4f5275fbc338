"""Eigenvalues, singular values and their vectors, which are right together: U diag(S) Vᵀ is near A, and U orthonormal.

With the shares η and ν of `diagonalization` or `bidiagonalization` there are exact orthogonal U₀ and V₀, the same for a
symmetric A, such that A + ΔA = U₀ diag(S) V₀ᵀ, ‖ΔA‖ ≤ η ‖A‖, U = U₀ + ΔU, and ‖ΔU‖ ≤ ν √k for k columns, in the
Frobenius norm. No value of A + ΔA is further from that of A than ‖ΔA‖ (Weyl; G. H. Golub and C. F. Van Loan, Matrix
Computations, 4th edition, 2013, Corollaries 8.1.6 and 8.6.2), whatever the gaps are. Vectors of values that are near to
each other may turn within their space, and so nothing is said of them but what the product and the norms say.

The exact values are not trusted to a library: Û diag(ŝ) V̂ᵀ − A and both deviations from orthonormality are computed
without any rounding for what NumPy gives in float64. The nearest orthonormal Q of Û is no further from it than
‖Ûᵀ Û − I‖, so the values of A are those of a matrix with exactly the values ŝ, up to the norms of these differences.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from .dyadic import exact_difference
from .elimination import SAFETY
from .factors import FactorResidual, middle_of
from .reflections import bidiagonalization, diagonalization
from .residual import SubstitutionErrors


class Spectrum:
    """What is known of the eigenvalues or the singular values of a stack of matrices.

    Attributes:
        ends: the least and the largest value of each element of A; eigenvalues are those of a symmetric matrix.
        is_symmetric: whether eigenvalues are meant, in ascending order, and not singular values.
        errors: of rounding. shares: η and ν; None where they are no small numbers.
    """

    def __init__(self, ends: tuple[Any, Any], is_symmetric: bool, errors: SubstitutionErrors) -> None:
        self.ends, self.is_symmetric, self.errors = ends, is_symmetric, errors
        m, n = ends[0].shape[-2:]
        self.shares = diagonalization(n, errors) if is_symmetric else bidiagonalization(m, n, errors)
        self._values: dict[tuple[int, ...], tuple[Any, float] | None] = {}

    def values(self, at: tuple[int, ...]) -> tuple[Any, float] | None:
        """The values of the middle of a finite matrix in order, and how far each may be off; None if not proven."""
        if at not in self._values:
            self._values[at] = self._prove(middle_of(self.ends, at))
        return self._values[at]

    def decompose(self, a: Any, full: bool = False) -> tuple[Any, Any, Any]:
        """U, S and V as NumPy gives them; `full`: with as many singular vectors as A has rows and columns."""
        if self.is_symmetric:
            values, vectors = np.linalg.eigh(a)
            return vectors, values, vectors
        left, values, right = np.linalg.svd(a, full_matrices=full)
        return left, values, right.T

    def _prove(self, a: Any) -> tuple[Any, float] | None:
        try:
            left, values, right = self.decompose(a)
        except np.linalg.LinAlgError:
            return None
        if not all(np.isfinite(each).all() for each in (left, values, right)):
            return None
        deviations = [_norm(exact_difference([each.T, each], [np.eye(len(values))])) for each in (left, right)]
        if not max(deviations) < 0.5:
            return None
        residual = _norm(exact_difference([left, values, right.T], [a]))
        return values, (residual + np.abs(values).max(initial=0.0) * _of_product(*deviations)) * SAFETY


class SpectralResidual(FactorResidual):
    """Values or vectors of a spectrum: values, as a column, are in order, and each near its exact one.

    Vectors are orthonormal, and A V is near V diag(w), or U diag(S) Vᵀ near A. Where the values are not given, the
    exact ones take their place. Where the singular vectors of the other side are not given, U diag(S)² Uᵀ is near A Aᵀ.
    """

    def __init__(self, role: str, spectrum: Spectrum, shape: tuple[int, ...] = ()) -> None:
        """`role`: S for the values, U for vectors that are columns, Vh for rows. shape: of vectors."""
        share, vectors = spectrum.shares or (None, Fraction(0))
        *stack, m, n = spectrum.ends[0].shape
        super().__init__(role, shape or (*stack, min(m, n), 1), spectrum.ends, share, spectrum.errors)
        self.spectrum, self._of_vectors = spectrum, float(vectors) * SAFETY

    def _sizes(self, at: tuple[int, ...]) -> tuple[Any, Any] | None:
        sizes = super()._sizes(at)
        return None if sizes is None or self.spectrum.values(at) is None else sizes

    def _exact(self, at: tuple[int, ...], norms: Any, spread: Any) -> tuple[Any, float, float]:
        """The values of the middle of A, how far they may be off, and what rounding and ends may add to that."""
        facts = self.spectrum.values(at)
        assert facts is not None
        assert self.share is not None
        return *facts, self.share * _norm(norms) + _norm(spread)

    def near(self, at: tuple[int, ...]) -> tuple[Any, Any] | None:
        """The exact values, as a column, and how far an evaluation may be from them; None where they are not known."""
        sizes = self._sizes(at)
        exact, radius, off = (None, 0.0, 0.0) if sizes is None else self._exact(at, *sizes)
        return None if exact is None else (exact[:, None], (off + radius) * SAFETY)

    def _factor(self, a: Any) -> Any:
        full = self.role != "S" and self.shape[-2] == self.shape[-1]
        left, values, right = self.spectrum.decompose(a, full)
        return {"U": left, "S": values[:, None], "Vh": right.T}[self.role]

    def _wrong(self, at: tuple[int, ...], values: Any, norms: Any, spread: Any) -> tuple[Any, str]:
        wrong = self._wrong_values if self.role == "S" else self._wrong_vectors
        return wrong(at, values, norms, spread)

    def _wrong_values(self, at: tuple[int, ...], values: Any, norms: Any, spread: Any) -> tuple[Any, str]:
        numbers, (exact, radius, off) = values[:, 0], self._exact(at, norms, spread)
        wrong, text = np.zeros(len(values), dtype=bool), "eigenvalues ascend"
        if self.spectrum.is_symmetric:
            wrong[1:] = np.diff(numbers) < 0
        else:
            wrong, text = numbers < 0, "singular values descend, and are not negative"
            wrong[1:] |= np.diff(numbers) > 0
        if not wrong.any():
            errors, allowed = np.abs(numbers - exact), (off + radius) * SAFETY
            wrong = errors > allowed
            i = int(np.argmax(wrong))
            text = f"the value at {i} is off by {errors[i]:.6g}, and {_explain(errors[i], allowed)}"
        return wrong[:, None], text

    def _loss(self, columns: int) -> float:
        """How far so many vectors may be from exact ones."""
        return self._of_vectors * math.sqrt(columns)

    def _wrong_vectors(self, at: tuple[int, ...], values: Any, norms: Any, spread: Any) -> tuple[Any, str]:
        # From here on vectors are columns, and A is as seen from their side.
        own, a = (values, middle_of(self.ends, at)) if self.role == "U" else (values.T, middle_of(self.ends, at).T)
        columns, loss = own.shape[1], self._loss(own.shape[1])
        residual = exact_difference([own.T, own], [np.eye(columns)])
        allowed, what = (2 * loss + loss**2) * SAFETY, "U^T U - I" if self.role == "U" else "Vh Vh^T - I"
        parts = residual
        if _norm(residual) <= allowed or self._is_nearly_orthogonal(residual, allowed):
            facts = self._exact(at, norms, spread)
            if self.spectrum.is_symmetric:
                residual, allowed, what = self._pairs(at, own, a, facts)
                parts = residual
            else:
                residual, allowed, what = self._product(at, own, a, facts)
                parts = residual.T @ own
        size, lengths = _norm(residual), np.sqrt((parts**2).sum(0))
        # Where the whole is too long, some vector has its share of that; such vectors are wrong.
        longest = min(allowed / math.sqrt(columns), lengths.max())
        wrong = np.broadcast_to(~(lengths < longest) if not size <= allowed else lengths < 0, own.shape)
        text = f"the norm of {what} is {size:.6g}, and {_explain(size, allowed)}"
        return wrong if self.role == "U" else wrong.T, text

    def combine(self, other: SpectralResidual, at: tuple[int, ...], ends: Any) -> Any:
        """Ends of all evaluations of U diag(d) Vᵀ, U and V these vectors and other ones by columns; d between `ends`.

        With A' the matrix that an evaluation diagonalizes, uᵢᵀ (F − F') vⱼ is (dᵢ − d'ⱼ) uᵢᵀ vⱼ, and uᵢᵀ (A − A') vⱼ is
        (λᵢ − λ'ⱼ) uᵢᵀ vⱼ for symmetric matrices. So of pairs that are apart ‖F − F'‖ is no more than the largest
        quotient of both differences times ‖A − A'‖, and of each other vⱼ no more than the largest difference, since the
        squares of uᵢᵀ vⱼ add up to 1. Singular values are, with both signs, eigenvalues of [[0, A], [Aᵀ, 0]], whose
        other ones are 0.
        """
        sizes, d = self._sizes(at), (ends[0] / 2 + ends[1] / 2)
        a, vectors = middle_of(self.ends, at), (self, other)
        if sizes is None or not np.isfinite(ends).all():
            return np.array([-np.inf, np.inf])[:, None, None]
        values, radius, off = self._exact(at, *sizes)
        half, distance, twice = (ends[1] - ends[0]) / 2 * SAFETY, (radius + off) * SAFETY, 1
        left, _, right = self.spectrum.decompose(a)
        left, right = ((left if each.role == "U" else right) for each in vectors)
        most, points, images = np.abs(d) + half, values, d
        if not self.spectrum.is_symmetric:
            mirror, zeros, twice = 1 if self.role == other.role else -1, np.zeros(abs(a.shape[0] - a.shape[1])), 2
            points, images = np.concatenate([values, -values, zeros]), np.concatenate([d, mirror * d, zeros])
            half = np.concatenate([half, half, zeros])
        gaps, moves = np.abs(points[:, None] - points), np.abs(images[:, None] - images) + half
        slope = np.max(moves / (gaps - distance), where=gaps > 2 * distance, initial=0.0)
        near = np.max(moves, axis=0, where=gaps <= 2 * distance, initial=0.0)
        losses = [each._loss(len(d)) + _norm(u.T @ u - np.eye(len(d))) + len(u) * len(d) * 2.0**-50
                  for each, u in zip(vectors, (left, right), strict=True)]  # fmt: skip
        norm = np.sqrt(twice * (slope * distance) ** 2 + (near**2).sum()) + most.max() * _of_product(*losses)
        share = float(self.errors.gamma(sum(a.shape) + len(d) + 4, 3) or 1) + (len(d) + 4) * 2.0**-52
        middle, off = (left * d) @ right.T, (norm + share * (np.abs(left) * most) @ np.abs(right.T)) * SAFETY
        return np.stack([middle - off, middle + off])

    def _is_nearly_orthogonal(self, gram: Any, allowed: float) -> bool:
        """Whether eigenvectors have length 1 and are as orthogonal as the method of multiple representations gives.

        LAPACK's xSYEVR computes each vector by itself in this way. I. S. Dhillon and B. N. Parlett, Multiple
        representations to compute orthogonal eigenvectors of symmetric tridiagonal matrices, Linear Algebra Appl. 387,
        2004: inner products of vectors are of the order of n u / gap, because eigenvalues closer than the relative gap
        are computed from another representation, which separates them. xSTEMR has gaps of 3e-3 in float32 and 1e-3 in
        float64. A factor of 4 is assumed: in 190,000 matrices of 2 to 32 rows with clusters the largest was 1.7, except
        in one float32 matrix, whose vectors had an error of 0.01, which is refused.

        Args:
            gram: VᵀV − I. allowed: the error of the lengths.
        """
        if not self.spectrum.is_symmetric:
            return False
        gap = 3e-3 if self.errors.unit > 2.0**-30 else 1e-3
        between = allowed + 4 * len(gram) * self.errors.unit / gap
        return bool((np.abs(gram) <= np.where(np.eye(len(gram), dtype=bool), allowed, between)).all())

    def _pairs(self, at: tuple[int, ...], own: Any, a: Any, facts: tuple[Any, float, float]) -> tuple[Any, float, str]:
        """What eigenvectors V leave of A V − V diag(w), how long rounding lets that be, and its name."""
        exact, radius, off = facts
        values, loss = self._other("S", at), self._loss(len(exact))
        allowed = off * (1 + loss) + 2 * (np.abs(exact).max(initial=0.0) + radius + off) * loss
        if values is None:
            values = exact[:, None]
            allowed += 2 * (radius + off) * math.sqrt(len(exact))
        return exact_difference([a, own], [own, values[:, 0]]), allowed * SAFETY, "A V - V diag(w)"

    def _product(
        self, at: tuple[int, ...], own: Any, a: Any, facts: tuple[Any, float, float]
    ) -> tuple[Any, float, str]:
        """What singular vectors leave of A, how long rounding lets that be, and its name; `facts` as of `_exact`."""
        exact, radius, off = facts
        count, values = len(exact), self._other("S", at)
        other = self._other("Vh" if self.role == "U" else "U", at)
        other = other.T if self.role == "U" and other is not None else other
        loss, loss_of_other = (self._loss(count if each is None else each.shape[1]) for each in (own, other))
        largest = np.abs(exact).max(initial=0.0) + radius + off
        allowed, of_values = off + largest * _of_product(loss, loss_of_other), (radius + off) * math.sqrt(count)
        own = own[:, :count]
        if other is not None:
            first = [own, exact if values is None else values[:, 0], other[:, :count].T]
            allowed += 0.0 if values is not None else of_values * (1 + loss) * (1 + loss_of_other)
            return exact_difference(first, [a]), allowed * SAFETY, "U diag(S) Vh - A"
        most = largest * (1 + loss)
        allowed = allowed**2 + 2 * most * ((1 + loss_of_other) * allowed + (1 + loss) * of_values)
        allowed += most**2 * (2 * loss_of_other + loss_of_other**2)
        name = "U diag(S)^2 U^T - A A^T" if self.role == "U" else "Vh^T diag(S)^2 Vh - A^T A"
        return exact_difference([own, exact, exact, own.T], [a, a.T]), allowed * SAFETY, name


def _norm(x: Any) -> float:
    return float(np.sqrt(np.sum(np.square(x))))


def _of_product(left: float, right: float) -> float:
    """How far a product of two matrices of norm 1 is off if they are."""
    return left + right + left * right


def _explain(size: float, allowed: float) -> str:
    text = f"rounding explains {allowed:.3g}"
    return f"{text} (a share of {size / allowed:.4g})" if allowed else text
