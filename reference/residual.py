"""Results that are right by what they leave of their equation: Cholesky factors, solutions of triangular systems.

A factor of an ill-conditioned matrix may be off by much and still be as good as any that arithmetic gives. What is
small is its residual: L Lᵀ is near A whatever the condition, and T X is near B. N. J. Higham, Accuracy and Stability of
Numerical Algorithms, 2nd edition, 2002, proves by how much (Theorems 8.5 and 10.3), element by element and for every
order of operations, since both go back to one sum of products and a quotient (Lemma 8.4). So a `Residual` says which
results an evaluation may have given, and no number of it is known.

Residuals are computed without any rounding, as integers times a power of two. Operands may be known between ends alone,
as what a spec computes is; then the evaluation has had some operand between these, which the bound counts in full.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .elimination import bound_substitution, solve_middles


@dataclass(frozen=True)
class SubstitutionErrors:
    """The rounding errors of a sum of products and the quotient or the root that ends it.

    Attributes:
        unit: relative error of an operation. factors: relative error of each factor on top.
        division, root: how many units a quotient and the square of a root are off by.
        underflow: absolute error of an operation near zero. largest: magnitude that no evaluation makes infinite.
    """

    unit: float
    factors: float
    division: int
    root: int
    underflow: float
    largest: float

    def gamma(self, count: int, products: int = 1) -> Fraction | None:
        """γ_k = k u / (1 − k u) for k operations, with the errors of the factors of products that follow each other.

        It is None where k u is 1/2 or more.
        """
        share = count * Fraction(self.unit)
        if share >= Fraction(1, 2):
            return None
        return (1 + share / (1 - share)) * (1 + Fraction(self.factors)) ** (2 * products) - 1


class Residual:
    """A floating result that is judged by its residual.

    Attributes:
        shape: of the result.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    @abstractmethod
    def accepts(self, values: Any) -> Any:
        """Which elements an evaluation may have given.

        Args:
            values: float64, of the shape of this result.
        """

    @abstractmethod
    def refutable(self, values: Any) -> Any:
        """Where `accepts` could have refused a value."""

    @abstractmethod
    def likely(self) -> Any:
        """What arithmetic in float64 gives, for messages; NaN where it gives nothing."""

    @abstractmethod
    def explain(self, values: Any) -> str:
        """What is wrong with the first element that no evaluation may have given; empty where none is."""

    @property
    def source(self) -> Residual:
        """The result whose elements these are, at their own places."""
        return self

    def put_back(self, values: Any) -> Any:
        """Values of this result at the places of its source."""
        return values

    def moved(self, move: Callable[[Any], Any]) -> Residual:
        """The same with its elements at other places.

        Args:
            move: what takes the elements of any NumPy array of this shape to those places.

        Raises:
            ValueError: it leaves elements out, or repeats some; the others say nothing by themselves.
        """
        numbers = np.asarray(move(np.arange(int(np.prod(self.shape))).reshape(self.shape)))
        if not np.array_equal(np.sort(numbers.reshape(-1)), np.arange(int(np.prod(self.shape)))):
            raise ValueError("what is judged by its residual is judged as a whole; give all of it once")
        return _MovedResidual(self, numbers)


class _MovedResidual(Residual):
    """A residual's result with its elements at other places; `numbers`: where they come from, counted through."""

    def __init__(self, whole: Residual, numbers: Any) -> None:
        super().__init__(numbers.shape)
        self._whole, self._numbers = whole, numbers

    @property
    def source(self) -> Residual:
        return self._whole.source

    def put_back(self, values: Any) -> Any:
        return self._whole.put_back(self._back(values))

    def _back(self, values: Any) -> Any:
        back = np.empty(self._numbers.size)
        back[self._numbers.reshape(-1)] = np.reshape(values, -1)
        return back.reshape(self._whole.shape)

    def accepts(self, values: Any) -> Any:
        return self._whole.accepts(self._back(values)).reshape(-1)[self._numbers]

    def refutable(self, values: Any) -> Any:
        return self._whole.refutable(self._back(values)).reshape(-1)[self._numbers]

    def likely(self) -> Any:
        return self._whole.likely().reshape(-1)[self._numbers]

    def explain(self, values: Any) -> str:
        return self._whole.explain(self._back(values))


def moved_as(source: Residual, like: Residual) -> Residual:
    """A result with its elements at the places to which those of another one have been moved."""
    return _MovedResidual(moved_as(source, like._whole), like._numbers) if isinstance(like, _MovedResidual) else source


class MatrixResidual(Residual):
    """A residual whose result is a stack of matrices, each judged by itself."""

    def __init__(self, shape: tuple[int, ...], errors: SubstitutionErrors) -> None:
        super().__init__(shape)
        self.errors = errors
        self._last: tuple[bytes, tuple[Any, Any, list[str]]] | None = None

    @abstractmethod
    def _faults(self, at: tuple[int, ...], values: Any) -> tuple[Any, Any, Callable[[int, int], str]]:
        """Of a matrix: which elements are wrong, which are judged, and what is wrong with one.

        Args:
            at: which of the stack. values: the matrix.
        """

    def _every(self, values: Any) -> tuple[Any, Any, list[str]]:
        """What `_faults` says of all matrices, and of each that is wrong a sentence; of the last values it is known."""
        values = np.asarray(values, dtype=np.float64)
        key = values.tobytes()
        if self._last is None or self._last[0] != key:
            wrong, judged, texts = np.empty(self.shape, dtype=bool), np.empty(self.shape, dtype=bool), []
            for at in np.ndindex(self.shape[:-2]):
                wrong[at], judged[at], describe = self._faults(at, values[at])
                if wrong[at].any():
                    i, j = map(int, np.argwhere(wrong[at])[0])
                    texts.append(describe(i, j))
            self._last = (key, (wrong, judged, texts))
        return self._last[1]

    def accepts(self, values: Any) -> Any:
        return ~self._every(values)[0]

    def refutable(self, values: Any) -> Any:
        return self._every(values)[1]

    def explain(self, values: Any) -> str:
        return next(iter(self._every(values)[2]), "")


class CholeskyResidual(MatrixResidual):
    """A triangle L with L Lᵀ = A, or U with Uᵀ U = A: zeros beside it, and a diagonal above zero.

    |L Lᵀ − A| ≤ γ |L| |Lᵀ| (Theorem 10.3). An element is a sum of n − 1 products at most, with a quotient or a root, so
    γ is that of n − 1 operations and those of the quotient or the root; the theorem's n + 1 has a correctly rounded
    root and no reciprocals. No evaluation may break down where D⁻¹ A D⁻¹, with D² the diagonal of A, has no eigenvalue
    below n γ / (1 − γ) (Theorem 10.7). That is so if Cholesky of this matrix less a multiple of the identity, in
    float64, comes to its end (S. M. Rump, Verification of positive definiteness, BIT 46, 2006). Elsewhere a result that
    is not finite is not judged. Nor is one of a matrix that is not symmetric, because either triangle may be read.
    """

    def __init__(self, ends: tuple[Any, Any], upper: bool, errors: SubstitutionErrors) -> None:
        """`ends`: the least and the largest value of each element of A, of shape (*, n, n)."""
        low, high = map(np.asarray, ends)
        super().__init__(low.shape, errors)
        self.low = np.minimum(low, np.swapaxes(low, -1, -2))
        self.high = np.maximum(high, np.swapaxes(high, -1, -2))
        meet = (low <= np.swapaxes(high, -1, -2)) & np.isfinite(low) & np.isfinite(high)
        self._symmetric, self.upper = np.all(meet, axis=(-2, -1)), upper
        n = self.shape[-1]
        self._gamma = errors.gamma(n - 1 + max(errors.division, errors.root))
        below = np.tri(n, dtype=bool)
        self._zeros = (below if upper else below.T) & ~np.eye(n, dtype=bool)

    def _faults(self, at: tuple[int, ...], values: Any) -> tuple[Any, Any, Callable[[int, int], str]]:
        none, n = np.zeros(values.shape, dtype=bool), self.shape[-1]
        if not self._symmetric[at] or self._gamma is None or n == 0:
            return none, none, lambda i, j: ""
        finite, never_fails = np.isfinite(values), self.never_fails(at)
        # An evaluation that breaks down may leave the pivot that is not above zero, and the rest as it is.
        if not finite.all() or (not never_fails and (np.diag(values) <= 0).any()):
            return ~finite & never_fails, none | never_fails, lambda i, j: "A is positive definite, whatever is rounded"
        factor = values.T if self.upper else values
        misplaced, low_diagonal = self._zeros & (values != 0), np.eye(n, dtype=bool) & (values <= 0)
        (exact,), unit = integers_of(factor)
        ends, unit_of_ends = integers_of(self.low[at], self.high[at])
        # All numbers from here on are integers, in units of the product of both units.
        size, absolute = np.abs(exact), Fraction(self.errors.underflow) * 2
        twice = 2 * (exact @ exact.T) * unit_of_ends - sum(ends) * unit**2
        sizes, known = (size @ size.T) * unit_of_ends, (ends[1] - ends[0]) * unit**2
        rows, diagonal = size.sum(1), np.diag(size)
        lost = (2 * n + 2) * unit**2 + unit * (rows[:, None] + rows[None, :] + diagonal[None, :])
        lost = absolute * unit_of_ends * (lost + Fraction(1, unit) * diagonal[None, :] ** 2 * size)
        allowed = 2 * (self._gamma * sizes + lost) + known
        outside = (np.abs(twice) > allowed) & (np.tri(n, dtype=bool))
        wrong = misplaced | low_diagonal | (outside.T if self.upper else outside)

        def describe(i: int, j: int) -> str:
            if misplaced.any():
                return f"the element at {np.argwhere(misplaced)[0].tolist()}, beside the triangle, is not 0"
            if low_diagonal[i, j]:
                return "the diagonal is above 0"
            row, column = max(i, j), min(i, j)
            what = "U^T U" if self.upper else "L L^T"
            return describe_ratio(f"{what} - A", (row, column), twice, allowed, 2 * unit * unit * unit_of_ends)

        return wrong, ~none, describe

    def never_fails(self, at: tuple[int, ...]) -> bool:
        """Whether every evaluation comes to its end, with finite numbers."""
        low, high, n = self.low[at].astype(np.float64), self.high[at].astype(np.float64), self.shape[-1]
        if not self._symmetric[at] or self._gamma is None or n == 0:
            return False
        gamma, least, most = float(self._gamma), np.diag(low).min(), np.diag(high).max()
        underflow = self.errors.underflow
        if not (least > underflow and 2 * most < self.errors.largest and n * gamma < 0.25):
            return False
        # Scaled by the least diagonal, which is smaller than that of any A between the ends by 1 + 2 r at most.
        roots = np.sqrt(np.diag(low))
        middle, radius = ((high / 2 + sign * low / 2) / roots[:, None] / roots[None, :] for sign in (1, -1))
        lost = n * 4 * underflow * (2 * n + 2 + (2 * n + 1 + most) * np.sqrt(most)) / least
        shift = (n * gamma / (1 - gamma) + lost) * (1 + 2 * float(np.diag(radius).max()))
        # Here the matrix is scaled with four roundings in each element, and the factor has the error of the theorem.
        shift += 2 * float(radius.sum(1).max()) + (8 * n + 2 * n * (n + 2)) * 2.0**-53
        try:
            with np.errstate(all="ignore"):
                done = np.linalg.cholesky(middle - shift * np.eye(n))
        except np.linalg.LinAlgError:
            return False
        return bool(np.isfinite(done).all())

    def likely(self) -> Any:
        out = np.full(self.shape, np.nan)
        with np.errstate(all="ignore"):
            middle = (self.low / 2 + self.high / 2).astype(np.float64)
        for at in np.ndindex(self.shape[:-2]):
            try:
                lower = np.linalg.cholesky(middle[at])
                out[at] = lower.T if self.upper else lower
            except np.linalg.LinAlgError:
                continue
        return out


class TriangularResidual(MatrixResidual):
    """X with T X = B for a triangle T.

    |T X − B| ≤ γ |T| |X| (Theorem 8.5), where γ is that of n − 1 operations and a quotient, which is the product with a
    rounded reciprocal perhaps. No evaluation overflows where the solution of the comparison matrix of T for |B|, which
    bounds all that it computes (section 8.2), is far from it. Elsewhere a result that is not finite is not judged.
    """

    def __init__(
        self, matrix: tuple[Any, Any], right: tuple[Any, Any], upper: bool, unit_diagonal: bool,
        errors: SubstitutionErrors,
    ) -> None:  # fmt: skip
        """
        Args:
            matrix, right: the least and the largest value of each element of T, (*, n, n), and B, (*, n, k).
            upper: which triangle of T counts. unit_diagonal: whether its diagonal counts as ones. errors: rounding.
        """
        stack = np.broadcast_shapes(matrix[0].shape[:-2], right[0].shape[:-2])
        n, columns = right[0].shape[-2:]
        super().__init__((*stack, n, columns), errors)
        counts = np.tri(n, dtype=bool).T if upper else np.tri(n, dtype=bool)
        triangle = [np.where(counts, each, 0.0) for each in matrix]
        if unit_diagonal:
            triangle = [np.where(np.eye(n, dtype=bool), 1.0, each) for each in triangle]
        self.matrix = [np.broadcast_to(each, (*stack, n, n)) for each in triangle]
        self.right = [np.broadcast_to(each, self.shape) for each in right]
        self._gamma = errors.gamma(n - 1 + errors.division)
        self._order = list(range(n))[:: -1 if upper else 1]

    def _faults(self, at: tuple[int, ...], values: Any) -> tuple[Any, Any, Callable[[int, int], str]]:
        none, n = np.zeros(values.shape, dtype=bool), self.shape[-2]
        matrix, right = [each[at] for each in self.matrix], [each[at] for each in self.right]
        diagonals = [np.diagonal(each) for each in matrix]
        smallest = np.minimum(np.abs(diagonals[0]), np.abs(diagonals[1]))
        regular = np.all((np.sign(diagonals[0]) == np.sign(diagonals[1])) & (smallest > self.errors.underflow))
        known = np.isfinite(matrix).all() and regular and self._gamma is not None
        columns = np.isfinite(right).all(axis=(0, 1)) & bool(known)
        if not columns.any() or n == 0:
            return none, none, lambda i, j: ""
        finite = columns & np.isfinite(values).all(axis=0)
        never_overflows = columns & self._never_overflow(matrix, right)
        used, unit = integers_of(np.where(finite, values, 0.0))
        (low, high), unit_of_matrix = integers_of(*matrix)
        ends, unit_of_right = integers_of(*(np.where(columns, each, 0.0) for each in right))
        # All numbers from here on are integers, in units of the product of all units.
        x, t = used[0], np.maximum(np.abs(low), np.abs(high))
        size, absolute = np.abs(x), Fraction(self.errors.underflow) * 2
        both = unit * unit_of_matrix
        twice = ((low + high) @ x) * unit_of_right - sum(ends) * both
        sizes = (t @ size) * unit_of_right
        open_ = ((high - low) @ size) * unit_of_right + (ends[1] - ends[0]) * both
        diagonal = np.diag(t)[:, None]
        lost = (2 * n + 1) * both + t.sum(1)[:, None] * unit + size.sum(0)[None, :] * unit_of_matrix
        lost = absolute * unit_of_right * (lost + diagonal * unit + Fraction(1, unit_of_matrix) * diagonal**2 * size)
        allowed = 2 * (self._gamma * sizes + lost) + open_
        # What the evaluation has computed on its way was no larger than this.
        largest = sizes + np.maximum(np.abs(ends[0]), np.abs(ends[1])) * both
        safe = np.all(2 * largest < Fraction(self.errors.largest) * both * unit_of_right, axis=0)
        outside = (np.abs(twice) > allowed) & finite & (safe | never_overflows)
        wrong = outside | (never_overflows & ~np.isfinite(values))

        def describe(i: int, j: int) -> str:
            if not np.isfinite(values[i, j]):
                return "no evaluation overflows there"
            return describe_ratio("T X - B", (i, j), twice, allowed, 2 * both * unit_of_right)

        return wrong, none | (finite & safe) | never_overflows, describe

    def _never_overflow(self, matrix: list[Any], right: list[Any]) -> Any:
        """The columns in which no evaluation computes anything that is not finite.

        In n rows an evaluation, and these sums as well, grow beyond the exact bound by a factor of (1 + γ)^n each,
        which is e^(1/2) at most where n γ is 1/2 at most; so 4 is more than both.
        """
        n = self.shape[-2]
        assert self._gamma is not None
        if n * self._gamma > Fraction(1, 2):
            return np.zeros(self.shape[-1], dtype=bool)
        size, b = (np.maximum(np.abs(low), np.abs(high)).astype(np.float64) for low, high in (matrix, right))
        least = np.minimum(*(np.abs(np.diagonal(each)).astype(np.float64) for each in matrix))
        return 4 * bound_substitution(size, least, b, self._order)[1] < self.errors.largest

    def likely(self) -> Any:
        return solve_middles(self.matrix, self.right)


def integers_of(*arrays: Any) -> tuple[list[Any], int]:
    """Finite numbers as integers, arrays of Python's, and how many of them make 1: a power of two."""
    ratios = [[number.as_integer_ratio() for number in np.asarray(each).reshape(-1)] for each in arrays]
    unit = max((denominator for row in ratios for _, denominator in row), default=1)
    out = []
    for row, each in zip(ratios, arrays, strict=True):
        whole = np.empty(len(row), dtype=object)
        whole[:] = [numerator * (unit // denominator) for numerator, denominator in row]
        out.append(whole.reshape(np.shape(each)))
    return out, unit


def describe_ratio(what: str, at: tuple[int, int], numbers: Any, allowed: Any, unit: int) -> str:
    """A sentence about one residual; numbers and bounds in integers, of which so many make 1."""
    size, most = abs(Fraction(numbers[at])), Fraction(allowed[at])
    text = f"{what} at {list(at)} is {nearest_float(Fraction(numbers[at]) / unit):.6g}, and rounding explains"
    return (
        f"{text} {nearest_float(most / unit):.3g} (a share of {nearest_float(size / most):.4g})"
        if most
        else f"{text} nothing"
    )


def nearest_float(x: Fraction) -> float:
    """The nearest float; an infinity for what is larger than all."""
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf
