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

import functools
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ....reference.choice import AnswerSet, Choice
from .dyadic import Dyadic, nearest_float

#: The least and the largest value of each element.
Ends = tuple[Any, Any]
#: Which elements are wrong, and what is wrong with one.
Side = tuple[Any, Callable[[int, int], str]]
#: Which elements are wrong, which are judged, and what is wrong with one.
Faults = tuple[Any, Any, Callable[[int, int], str]]


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


class Residual(AnswerSet):
    """A floating result that is judged by its residual; values are float64."""

    by_residual = True

    @property
    def source(self) -> Residual:
        """The result whose elements these are, at their own places."""
        return self

    def put_back(self, values: Any) -> Any:
        """Values of this result at the places of its source."""
        return values

    def with_source(self, source: Residual) -> Residual:
        """The same of another source, of the same shape."""
        return source

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
        return SeenResidual(self, np.argsort(numbers, axis=None).reshape(self.shape), numbers.shape)


class SeenResidual(Residual):
    """A residual's result with its elements at other places, or at several, some with the other sign."""

    def __init__(self, whole: Residual, places: Any, shape: tuple[int, ...], signs: Any = None) -> None:
        """
        Args:
            whole: the result. places: which element of this one, counted through, stands at each place of it.
            signs: 1 or −1 of each place, which make `whole` a form of this result; None where it is the same result.
        """
        super().__init__(shape)
        self._whole, self._places = whole, places
        self._is_form, self._signs = signs is not None, 1.0 if signs is None else signs

    @property
    def source(self) -> Residual:
        return self if self._is_form else self._whole.source

    def put_back(self, values: Any) -> Any:
        return values if self._is_form else self._whole.put_back(self._form_of(values))

    def _form_of(self, values: Any) -> Any:
        return np.asarray(values, dtype=np.float64).reshape(-1)[self._places] * self._signs

    def _over_all(self, combine: np.ufunc, of_form: Any) -> Any:
        """Of each element, what is said of all places where it stands."""
        out = np.full(self.shape, combine.identity, dtype=bool)
        combine.at(out.reshape(-1), self._places.reshape(-1), of_form.reshape(-1))
        return out

    def accepts(self, values: Any) -> Any:
        return self._over_all(np.logical_and, self._whole.accepts(self._form_of(values)))

    def refutable(self, values: Any) -> Any:
        return self._over_all(np.logical_or, self._whole.refutable(self._form_of(values)))

    def likely(self) -> Any:
        form, out = self._whole.likely(), np.empty(self.shape)
        out.reshape(-1)[self._places.reshape(-1)] = (form * self._signs).reshape(-1)
        return out

    def explain(self, values: Any) -> str:
        return self._whole.explain(self._form_of(values))

    def with_source(self, source: Residual) -> Residual:
        return source if self._is_form else SeenResidual(self._whole.with_source(source), self._places, self.shape)


class MatrixResidual(Residual):
    """A residual whose result is a stack of matrices, each judged by itself."""

    def __init__(self, shape: tuple[int, ...], errors: SubstitutionErrors) -> None:
        super().__init__(shape)
        self.errors = errors
        self._last: tuple[bytes, tuple[Any, Any, list[str]]] | None = None

    @abstractmethod
    def _faults(self, at: tuple[int, ...], values: Any) -> Faults | None:
        """Of a matrix, at a place in the stack; None where nothing is judged."""

    @abstractmethod
    def never_fails(self, at: tuple[int, ...]) -> bool:
        """Whether every evaluation of the matrix at a place comes to its end, with finite numbers."""

    @property
    def status(self) -> Choice:
        """What LAPACK calls info, of each matrix: 0 where no evaluation breaks down, and else any number."""
        stack = self.shape[:-2]

        @functools.cache
        def known() -> Any:
            return np.array([self.never_fails(at) for at in np.ndindex(stack)], dtype=bool).reshape(stack)

        zeros = np.zeros(stack, dtype=np.int64)
        return Choice(stack, lambda numbers: (numbers == 0) | ~known(), lambda: (zeros, known()), known)

    def _every(self, values: Any) -> tuple[Any, Any, list[str]]:
        """What `_faults` says of all matrices, and of each that is wrong a sentence; of the last values it is known."""
        values = np.asarray(values, dtype=np.float64)
        key = values.tobytes()
        if self._last is None or self._last[0] != key:
            wrong, judged, texts = np.zeros(self.shape, dtype=bool), np.zeros(self.shape, dtype=bool), []
            for at in np.ndindex(self.shape[:-2]):
                faults = self._faults(at, values[at])
                if faults is None:
                    continue
                wrong[at], judged[at], describe = faults
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

    def _faults(self, at: tuple[int, ...], values: Any) -> Faults | None:
        n = self.shape[-1]
        if not self._symmetric[at] or self._gamma is None or n == 0:
            return None
        finite, never_fails = np.isfinite(values), self.never_fails(at)
        # An evaluation that breaks down may leave the pivot that is not above zero, and the rest as it is.
        if not finite.all() or (not never_fails and (np.diag(values) <= 0).any()):
            return ~finite & never_fails, never_fails, lambda i, j: "A is positive definite, whatever is rounded"
        factor = values.T if self.upper else values
        misplaced, low_diagonal = self._zeros & (values != 0), np.eye(n, dtype=bool) & (values <= 0)
        exact, low, high = map(Dyadic.of, (factor, self.low[at], self.high[at]))
        size = abs(exact)
        rows, diagonal = size.change(lambda x: x.sum(1)), size.change(np.diag)
        lost = rows.change(lambda x: x[:, None] + x) + diagonal + (2 * n + 2) + diagonal * diagonal * size
        residual = exact @ exact.T - (low + high).half
        allowed = size @ size.T * self._gamma + lost * (2 * Fraction(self.errors.underflow)) + (high - low).half
        outside = (abs(residual) > allowed) & np.tri(n, dtype=bool)
        wrong = misplaced | low_diagonal | (outside.T if self.upper else outside)

        def describe(i: int, j: int) -> str:
            if misplaced.any():
                return f"the element at {np.argwhere(misplaced)[0].tolist()}, beside the triangle, is not 0"
            if low_diagonal[i, j]:
                return "the diagonal is above 0"
            what = "U^T U" if self.upper else "L L^T"
            return describe_ratio(f"{what} - A", (max(i, j), min(i, j)), residual, allowed)

        return wrong, True, describe

    def never_fails(self, at: tuple[int, ...]) -> bool:
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


class EquationResidual(MatrixResidual):
    """X that solves equations with the columns of B, of which each is judged by itself.

    A column that is not finite is wrong where no evaluation can overflow, and not judged elsewhere.
    """

    def __init__(self, shape: tuple[int, ...], right: Ends, errors: SubstitutionErrors) -> None:
        """
        Args:
            shape: of X, (*, n, k). right: the least and the largest value of each element of B. errors: of rounding.
        """
        super().__init__(shape, errors)
        rows = (*shape[:-2], right[0].shape[-2], shape[-1])
        self.right = np.broadcast_to(right[0], rows), np.broadcast_to(right[1], rows)

    @abstractmethod
    def facts(self, at: tuple[int, ...]) -> Any:
        """What bounds what is left of the equation with the matrix at a place; None where nothing does."""

    def never_fails(self, at: tuple[int, ...]) -> bool:
        return self.facts(at) is not None

    @abstractmethod
    def _sides(self, at: tuple[int, ...], facts: Any, x: Any, right: Ends) -> list[Side]:
        """The wrong elements of each equation of which X has to solve one, and a sentence about one of these.

        Args:
            at: the place of the matrix. facts: of it. x: finite. right: the ends of B there.
        """

    @abstractmethod
    def _in_range(self, facts: Any, x: Any, right: Ends) -> Any:
        """The columns in which an evaluation with this result cannot have overflowed; the arguments are as above."""

    @abstractmethod
    def _never_overflow(self, at: tuple[int, ...], facts: Any, right: Ends) -> Any:
        """The columns in which no evaluation computes anything that is not finite; the arguments are as above."""

    def _judged(self, right: Ends) -> Any:
        """The columns of B of which anything is known."""
        return np.isfinite(right).all(axis=(0, 1))

    def _faults(self, at: tuple[int, ...], values: Any) -> Faults | None:
        facts, right = self.facts(at) if values.size else None, (self.right[0][at], self.right[1][at])
        columns = self._judged(right)
        if facts is None or not columns.any():
            return None
        right = np.where(columns, right[0], 0.0), np.where(columns, right[1], 0.0)
        never_overflows = columns & self._never_overflow(at, facts, right)
        finite = columns & np.isfinite(values).all(axis=0)
        x = np.where(finite, values, 0.0)
        decided = never_overflows | (finite & self._in_range(facts, x, right))
        sides = [(outside & finite & decided, text) for outside, text in self._sides(at, facts, x, right)]
        wrong = next((each for each, _ in sides if not each.any()), sides[0][0])
        wrong |= never_overflows & ~np.isfinite(values)

        def describe(i: int, j: int) -> str:
            return sides[0][1](i, j) if np.isfinite(values[i, j]) else "no evaluation overflows there"

        return wrong, decided, describe


def describe_ratio(what: str, at: tuple[int, int], residual: Dyadic, allowed: Dyadic) -> str:
    """A sentence about what is left of an equation at a place, and how much of that rounding explains."""
    size, most = (each.change(lambda x: Fraction(x[at])) for each in (residual, allowed))
    text = f"{what} at {list(at)} is {float(size.floats()):.6g}, and rounding explains"
    if not most.numbers:
        return f"{text} nothing"
    share = nearest_float(abs(size.numbers) / most.numbers * Fraction(most.unit, size.unit))
    return f"{text} {float(most.floats()):.3g} (a share of {share:.4g})"
