"""Solutions of least squares, shortest solutions and pseudoinverses, which are right by what they leave of equations.

By reflections, or rotations, and substitution an evaluation gives the X for which (A + ΔA) X is nearest to B + ΔB
(N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, 2002, Theorem 20.3). By singular values it
does so, too: with A + ΔA = U₀ S V₀ᵀ and ‖ΔA‖ ≤ η ‖A‖ (`spectral`), a computed Uᵀ b is U₀ᵀ (b + Δb), and V y, for a y,
is (V₀ + F) y, which makes U₀ S (V₀ + F)⁻¹ of the matrix.

Let r = b − A x, and r' = (b + Δb) − (A + ΔA) x, to which all columns of A + ΔA are orthogonal. Then, with A = Q R,
r = r' − Δb + ΔA x, Aᵀ r = −ΔAᵀ r' + Aᵀ (ΔA x − Δb), and R⁻ᵀ Aᵀ r = −R⁻ᵀ ΔAᵀ r' + Qᵀ (ΔA x − Δb). The norm of this,
which is how far A x is from the point of A that is nearest to b, and each element of Aᵀ r have bounds by those of ΔA
and Δb, therefore. Solutions of the normal equations, which lose the digits of A's condition, exceed the first of these
where they do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .dyadic import exact_difference
from .elimination import SAFETY
from .factors import middle_of
from .reflections import bidiagonalization, diagonalization, reflections
from .residual import Ends, EquationResidual, Side, SubstitutionErrors


@dataclass(frozen=True)
class _Facts:
    """What is known of a matrix of full rank, or of its transpose if it has fewer rows than columns.

    Attributes:
        a: its middle, in float64, of shape (m, n) with m ≥ n. triangle: R of it.
        lengths: of its columns, at most. norm: its Frobenius norm, at most.
        largest, least: its singular values, at most and at least.
        spread: how far its columns may be from those of the middle.
    """

    a: Any
    triangle: Any
    lengths: Any
    norm: float
    largest: float
    least: float
    spread: Any


@dataclass(frozen=True)
class _Moves:
    """How far an evaluation may have moved A and B.

    Attributes:
        columns: the lengths of the columns of ΔA. matrix: its Frobenius norm, or None for what the columns have.
        right: of ΔB, as a share of each column of B.
    """

    columns: Any
    matrix: float | None
    right: float


@dataclass(frozen=True)
class _Path:
    """How far an evaluation of the shortest solution may be off, with A + ΔA = U T Vᵀ.

    Attributes:
        columns: the lengths of the rows of ΔA. matrix: its Frobenius norm, or None for what the rows have.
        product: of ΔT y and T Vᵀ δ together, as a share of ‖T‖ ‖y‖. right: of Δb, as a share of b.
        end: of δ, as a share of y.
    """

    columns: Any
    matrix: float | None
    product: float
    right: float
    end: float


class LeastSquaresResidual(EquationResidual):
    """X for which A X is as near to B as it can be, for a matrix of at least as many rows as columns and of full rank.

    Where A may be of lower rank for some evaluation, nothing is judged; nor is a result that is not finite where the
    square of an element overflows or underflows.
    """

    def __init__(
        self, matrix: Ends, right: Ends, errors: SubstitutionErrors, tolerance: tuple[float, float] = (0.0, 0.0),
        is_symmetric: bool = False,
    ) -> None:  # fmt: skip
        """
        Args:
            matrix, right: the least and the largest value of each element of A, (*, m, n), and B, (*, m, k).
            errors: of rounding.
            tolerance: up to which number, and to which share of the largest, a singular value may count as zero.
            is_symmetric: whether an evaluation may use that A is.
        """
        stack = np.broadcast_shapes(matrix[0].shape[:-2], right[0].shape[:-2])
        (m, n), columns = matrix[0].shape[-2:], right[0].shape[-1]
        super().__init__((*stack, n, columns), right, errors)
        low, high = (np.broadcast_to(end, (*stack, m, n)) for end in matrix)
        if m < n:
            low, high, m, n = np.swapaxes(low, -1, -2), np.swapaxes(high, -1, -2), n, m
        self._matrix = low, high
        self._tolerance, self._turned = tolerance, reflections(m, n, errors)
        shares = bidiagonalization(m, n, errors), diagonalization(n, errors) if is_symmetric else (Fraction(0),) * 2
        self._shares: tuple[float, float] | None = None
        if shares[0] is not None and shares[1] is not None:
            self._shares = max(map(float, (shares[0][0], shares[1][0]))), max(map(float, (shares[0][1], shares[1][1])))

    def _judged(self, right: Ends) -> Any:
        # LAPACK scales B as a whole.
        size = np.maximum(*(np.abs(end.astype(np.float64)) for end in right))
        return np.array([np.isfinite(size).all() and self._is_in_range(column) for column in size.T], dtype=bool)

    def _never_overflow(self, at: tuple[int, ...], facts: _Facts, right: Ends) -> Any:
        return self._in_range(facts, np.zeros(self.shape[-2:]), right)  # No solution is larger than B makes it.

    def _in_range(self, facts: _Facts, x: Any, right: Ends) -> Any:
        """What an evaluation computes is no larger than its solution, and what the elements of A make of it."""
        size = np.maximum(*(np.abs(end.astype(np.float64)) for end in right))
        with np.errstate(all="ignore"):
            largest = facts.norm * (1 + np.abs(x).sum(0)) + 2 * len(size) * size.max(0) / min(facts.least, 1.0)
            return 16 * largest * max(1, 1 / facts.least) < self.errors.largest

    def _sides(self, at: tuple[int, ...], facts: _Facts, x: Any, right: Ends) -> list[Side]:
        with np.errstate(all="ignore"):
            b, spread = middle_of(right, ()), right[1].astype(np.float64) - right[0]
            share, text = self._excess(at, facts, x, b, np.sqrt((spread**2).sum(0)))
        return [(np.broadcast_to(~(share <= 1), x.shape), lambda i, j: text(j))]

    def _excess(
        self, at: tuple[int, ...], facts: _Facts, x: Any, b: Any, spread: Any
    ) -> tuple[Any, Callable[[int], str]]:
        """How many times what rounding explains each column leaves, and a sentence about one."""
        # Aᵀ A X − Aᵀ B; a product of it with the inverse of R is off by few roundings of each step, and by those of R.
        normal = exact_difference([facts.a.T, facts.a, x], [facts.a.T, b])
        rest = np.sqrt((exact_difference([facts.a, x], [b]) ** 2).sum(0)) * SAFETY
        inverse = np.linalg.inv(facts.triangle)
        loss = 1 + 2 * self._own_loss(facts)
        apart = np.sqrt(((inverse.T @ normal) ** 2).sum(0)) / loss
        lengths_of_b = np.sqrt((b**2).sum(0)) * SAFETY + spread
        shares, columns = [], []
        for moves in self._moves(facts):
            along = moves.columns @ np.abs(x)
            if moves.matrix is not None:
                along = np.minimum(along, moves.matrix * np.sqrt((x**2).sum(0)) + facts.spread @ np.abs(x))
            off = along + moves.right * lengths_of_b + spread
            turn = float(np.linalg.norm(np.abs(inverse.T) @ moves.columns)) * loss
            if moves.matrix is not None:
                of_spread = float(np.linalg.norm(np.abs(inverse.T) @ facts.spread)) * loss
                turn = min(turn, moves.matrix / facts.least + of_spread)
            lost = self._lost(facts, x, b)
            allowed = (off + turn * (rest + off) + lost / facts.least) * SAFETY
            each = (np.outer(moves.columns, rest + off) + np.outer(facts.lengths, off) + lost) * SAFETY
            shares.append(np.maximum(_times_allowed(apart, allowed), _times_allowed(np.abs(normal), each).max(0)))
            columns.append(allowed)
        share = np.minimum(*shares)
        allowed = np.maximum(*columns)

        def text(column: int) -> str:
            return (
                f"A x is {apart[column]:.6g} from the nearest point to column {column} of B, and rounding explains"
                f" {allowed[column]:.3g} (what it leaves of the normal equations is a share of {share[column]:.4g})"
            )

        return share, text

    def _lost(self, facts: _Facts, x: Any, b: Any) -> Any:
        """What underflow may add to an element of the normal equations."""
        m, n = facts.a.shape
        size = 1 + facts.norm + np.abs(x).sum(0) + np.abs(b).sum(0)
        return 2 * self.errors.underflow * (4 * m + 4 * n) * size * (1 + facts.norm) ** 2 * max(1.0, 1 / facts.least)

    def _moves(self, facts: _Facts) -> tuple[_Moves, _Moves]:
        """Of reflections and substitution, and of singular values."""
        assert self._turned is not None
        assert self._shares is not None
        m, n = facts.a.shape
        gammas = [self.errors.gamma(count) for count in (n - 1 + self.errors.division, m, n, 1 + self.errors.division)]
        substitution, of_rows, of_columns, quotient = (float(each or 1) * SAFETY for each in gammas)
        turned = float(self._turned) * SAFETY
        share = (1 + turned) ** 2 * (1 + substitution) - 1
        first = _Moves(share * facts.lengths + facts.spread, None, turned)
        of_matrix, of_vectors = (each * SAFETY for each in self._shares)
        root = math.sqrt(n)
        loss = (of_vectors + of_rows * (1 + of_vectors)) * root, (of_vectors + of_columns * (1 + of_vectors)) * root
        if not loss[1] < 0.5:
            return first, first
        ends = quotient + (1 + quotient) * loss[1] / (1 - loss[1])
        size = (of_matrix + (1 + of_matrix) * ends) * facts.norm * SAFETY
        return first, _Moves(size + facts.spread, size, loss[0])

    def _own_loss(self, facts: _Facts) -> float:
        """By which share the norm of what the inverse of R makes of a vector may be off in float64."""
        m, n = facts.a.shape
        return float((40 * m * n + 40 * n * n) * 2.0**-53 * facts.norm / facts.least)

    def _is_in_range(self, x: Any) -> bool:
        """Whether the squares of elements are far from underflow and from overflow."""
        with np.errstate(all="ignore"):
            least = np.min(x, where=x > 0, initial=1.0) ** 2 * self.errors.unit**2
            most = 16 * x.size * np.max(x, initial=0.0) ** 2
        return bool(least >= self.errors.underflow and most <= self.errors.largest)

    def facts(self, at: tuple[int, ...]) -> _Facts | None:
        """Of a matrix that has full rank for all evaluations; else None."""
        low, high = (end[at].astype(np.float64) for end in self._matrix)
        size = np.maximum(np.abs(low), np.abs(high))
        if self._shares is None or self._turned is None or not np.isfinite(size).all() or not self._is_in_range(size):
            return None
        a, spread = middle_of(self._matrix, at), np.sqrt(((high - low) ** 2).sum(0)) * SAFETY
        lengths = np.sqrt((size**2).sum(0)) * SAFETY
        norm, apart = float(np.sqrt((lengths**2).sum())) * SAFETY, float(np.sqrt((spread**2).sum())) * SAFETY
        values = np.linalg.svd(a, compute_uv=False)
        # NumPy's values are off by less than those of an evaluation may be, and by as little as in float64.
        off = (40 * len(a) + 40 * len(values)) * len(values) * 2.0**-53 * norm + apart
        least, largest = float(values[-1]) - off, float(values[0]) + off
        moved = max(self._shares[0], float(self._turned)) * 2 * norm
        if not least - moved > max(self._tolerance[0], self._tolerance[1] * (largest + moved), 4 * moved):
            return None
        facts = _Facts(a, np.linalg.qr(a)[1], lengths, norm, largest, least, spread)
        return facts if self._own_loss(facts) < 0.125 else None

    def likely(self) -> Any:
        out = np.full(self.shape, np.nan)
        for at in np.ndindex(self.shape[:-2]):
            a, b = middle_of(self._matrix, at), middle_of(self.right, at)
            if np.isfinite(a).all() and np.isfinite(b).all():
                out[at] = np.linalg.lstsq(a if len(a) == len(b) else a.T, b, rcond=None)[0]
        return out


class LeastNormResidual(LeastSquaresResidual):
    """The shortest X with A X = B, for a matrix of fewer rows than columns and of full rank.

    An evaluation makes a triangle or a diagonal of A by orthogonal transformations: A + ΔA = U T Vᵀ, where U = I and
    T = Rᵀ if Aᵀ = Q R is taken (Higham, section 21.1 and Theorem 21.4). It computes c = Uᵀ (b + Δb), y with
    (T + ΔT) y = c, and x = V y + δ. So A x − b = Δb − U ΔT y + U T Vᵀ δ − ΔA x, and x = (A + ΔA)ᵀ z + δ for
    z = U T⁻ᵀ y, which is no further from the space of the rows of A than ‖ΔAᵀ z‖ + ‖δ‖. Other solutions are not in that
    space, and solutions of the normal equations, Aᵀ (A Aᵀ)⁻¹ b, are refused where A x − b exceeds the first of these.
    """

    def __init__(
        self, matrix: Ends, right: Ends, errors: SubstitutionErrors, tolerance: tuple[float, float] = (0.0, 0.0)
    ) -> None:
        m, n = matrix[0].shape[-2:]
        # An evaluation with pivots counts the values of the m columns that these choose, of which the least may be
        # smaller than A's by this (C. L. Lawson and R. J. Hanson, Solving Least Squares Problems, 1995, Theorem 6.31).
        loss = math.sqrt((n - m + 1) * (4.0 ** min(m, 500) + 6 * m - 1)) / 3
        super().__init__(matrix, right, errors, (loss * tolerance[0], loss * tolerance[1]))

    def _excess(
        self, at: tuple[int, ...], facts: _Facts, x: Any, b: Any, spread: Any
    ) -> tuple[Any, Callable[[int], str]]:
        residual = np.abs(exact_difference([facts.a.T, x], [b]))
        lost, length, of_b = self._lost(facts, x, b), _lengths(x) * SAFETY, _lengths(b) * SAFETY
        apart, z, of_inverse = self._parts(facts, x)
        every = []
        for path in self._paths(facts):
            y = length / (1 - path.end)
            of_right = path.right * of_b + (1 + path.right) * spread
            if path.matrix is None:
                off = np.outer(path.columns, length) + np.outer(facts.lengths, path.product * y) + of_right
                size, turn, moved = residual, float(path.columns @ of_inverse), path.columns @ z
            else:
                off = (path.matrix * length + facts.norm * path.product * y + of_right)[None, :]
                size, turn, moved = _lengths(residual)[None, :], path.matrix / facts.least, _lengths(z)
                moved = path.matrix * moved
            leaves = _times_allowed(size, (off + lost) * SAFETY).max(0)
            space = ((moved + turn * path.end * y) / (1 - turn) + path.end * y + lost / facts.least) * SAFETY
            every.append(
                (leaves, _times_allowed(apart, space), space) if turn < 0.5 else (leaves * 0, apart * 0, space)
            )
        if not every:  # Nothing is known of so many operations.
            return np.zeros(x.shape[1]), lambda column: ""
        shares = [np.maximum(leaves, outside) for leaves, outside, _ in every]

        def text(column: int) -> str:
            leaves, outside, space = (
                each[column] for each in every[int(np.argmin([share[column] for share in shares]))]
            )
            if leaves >= outside:
                most = residual[:, column].max()
                return f"column {column} of A X - B has {most:.6g}, {leaves:.4g} of what rounding explains"
            return (
                f"column {column} is {apart[column]:.6g} from the space of A's rows, and rounding explains {space:.3g}"
            )

        return np.min(shares, axis=0), text

    def _parts(self, facts: _Facts, x: Any) -> tuple[Any, Any, Any]:
        """How far each x is from the space of A's rows, at least, |z| of the Aᵀ z nearest to it, and A⁺'s lengths."""
        q, r = np.linalg.qr(facts.a)
        inverse, own = np.linalg.inv(r), 2 * self._own_loss(facts)
        z = inverse @ (q.T @ x)
        # x − Aᵀ z is small where x is right, and without any rounding; so what float64 makes of it is off by little.
        rest = exact_difference([x], [facts.a, z])
        along, most = q.T @ rest, own * _lengths(rest)
        apart = np.maximum(_lengths(rest - q @ along) - most, 0.0)
        of_inverse = np.sqrt((inverse**2).sum(1)) * (1 + own)
        return apart, np.abs(z) + np.outer(of_inverse, _lengths(along) + most), of_inverse

    def _paths(self, facts: _Facts) -> list[_Path]:
        """By reflections of Aᵀ alone, by those on both sides of A, and by singular values."""
        assert self._turned is not None
        assert self._shares is not None
        n, m = facts.a.shape
        gammas = [self.errors.gamma(count) for count in (m - 1 + self.errors.division, m, n, 1 + self.errors.division)]
        substitution, of_rows, of_columns, quotient = (float(each or 1) * SAFETY for each in gammas)
        turned, root, apart = float(self._turned) * SAFETY, math.sqrt(m), float(np.linalg.norm(facts.spread)) * SAFETY
        # Q or Z may be made first, and be a factor of a product then.
        end = (turned + of_rows * (1 + turned)) * root
        of_matrix, of_vectors = (each * SAFETY for each in self._shares)
        ends = [(of_vectors + each * (1 + of_vectors)) * root for each in (of_rows, of_columns)]
        both = (1 + turned) ** 2 - 1
        rows = turned * facts.lengths + facts.spread
        out = [_Path(rows, None, (1 + turned) * (substitution + end), 0.0, end)]
        for share, rounded, right, last in ((both, substitution, end, end), (of_matrix, quotient, *ends)):
            out.append(_Path(None, share * facts.norm + apart, (1 + share) * (rounded + last), right, last))
        return out if all(path.end < 0.5 for path in out) else []


class PseudoinverseResidual(LeastSquaresResidual):
    """A⁺ of a matrix of full rank and at least as many rows as columns, as singular values or least squares give it.

    By singular values it is that of A + ΔA but for a Δ with ‖Δ‖ ≤ δ, because ‖V‖ and ‖U‖ are near 1, and a product with
    n terms is off by γ √n of the norms. So ‖A⁺ A − I‖ is no larger than ‖(A + ΔA)⁺‖ ‖ΔA‖ + δ ‖A‖ = ρ, and A A⁺ is
    symmetric but for 2 ρ; both together say what A⁺ is (E. H. Moore and R. Penrose).
    """

    def __init__(
        self, matrix: Ends, errors: SubstitutionErrors, tolerance: tuple[float, float] = (0.0, 0.0),
        is_symmetric: bool = False,
    ) -> None:  # fmt: skip
        m = matrix[0].shape[-2]
        ones = np.broadcast_to(np.eye(m), (*matrix[0].shape[:-2], m, m))
        super().__init__(matrix, (ones, ones), errors, tolerance, is_symmetric)

    def _excess(
        self, at: tuple[int, ...], facts: _Facts, x: Any, b: Any, spread: Any
    ) -> tuple[Any, Callable[[int], str]]:
        shares, text = super()._excess(at, facts, x, b, spread)
        if (shares <= 1).all():
            return shares, text
        assert self._shares is not None
        (m, n), (of_matrix, of_vectors) = facts.a.shape, (each * SAFETY for each in self._shares)
        product = float(self.errors.gamma(n + 1 + self.errors.division) or 1) * SAFETY
        moved = of_matrix * facts.norm + float(np.linalg.norm(facts.spread))
        of_inverse = 1 / (facts.least - moved)
        loss = of_vectors * math.sqrt(n)
        delta = (2 * loss + loss**2 + product * math.sqrt(n) * (1 + loss) ** 2) * math.sqrt(n) * of_inverse
        lost = float(np.max(self._lost(facts, x, b))) * (1 + of_inverse)
        allowed = (of_inverse * moved + delta * facts.largest + lost) * SAFETY
        distance = float(np.linalg.norm(exact_difference([x, facts.a], [np.eye(n)])))
        skew = float(np.linalg.norm(exact_difference([facts.a, x], [x.T, facts.a.T])))
        share = max(distance, skew / 2) / allowed
        if share <= 1:
            return np.full(m, share), text
        words = f"the norm of A+ A - I is {distance:.6g}, and A A+ is {skew:.6g} from its transpose; rounding explains"
        return np.full(m, share), lambda column: f"{words} {allowed:.3g}, and twice that"


def _lengths(x: Any) -> Any:
    """Of columns."""
    return np.sqrt((x**2).sum(0))


def _times_allowed(sizes: Any, allowed: Any) -> Any:
    """How many times what is allowed; infinities where that is nothing."""
    return np.where(sizes == 0, 0.0, sizes / np.where(allowed > 0, allowed, np.finfo(np.float64).tiny))
