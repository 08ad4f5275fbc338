"""Solutions by factors that are known: X with F G X = B for two triangles, and the inverse of a matrix by its factor.

N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, 2002, Theorem 8.5: what substitution computes
solves (F + ΔF) Y = B and (G + ΔG) X = Y with |ΔF| ≤ γ |F| and |ΔG| ≤ γ |G|. So F G X − B = −(ΔF G + F ΔG + ΔF ΔG) X,
and no element of that exceeds (2 γ + γ²) |F| |G| |X|, whatever the condition is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .elimination import bound_substitution, solve_middles
from .factors import SAFETY, exact_difference, middle_of
from .residual import MatrixResidual, SubstitutionErrors

_Ends = tuple[Any, Any]


class FactorSolutionResidual(MatrixResidual):
    """X with F G X = B for two triangles, of which one is below its diagonal and the other above it."""

    def __init__(
        self, factors: tuple[_Ends, _Ends], right: _Ends, first_is_lower: bool, errors: SubstitutionErrors
    ) -> None:
        """
        Args:
            factors: the least and the largest value of each element of F and G, (*, n, n), with zeros beside.
            right: those of B, (*, n, k). first_is_lower: whether F is below its diagonal. errors: of rounding.
        """
        *stack, n, columns = right[0].shape
        stack = list(np.broadcast_shapes(stack, *(each[0].shape[:-2] for each in factors)))
        super().__init__((*stack, n, columns), errors)
        self.factors: list[_Ends] = []
        for low, high in factors:
            self.factors.append((np.broadcast_to(low, (*stack, n, n)), np.broadcast_to(high, (*stack, n, n))))
        self.right = np.broadcast_to(right[0], self.shape), np.broadcast_to(right[1], self.shape)
        self._orders = [list(range(n))[:: 1 if first else -1] for first in (first_is_lower, not first_is_lower)]
        self.gamma = errors.gamma(n - 1 + errors.division)

    def _faults(self, at: tuple[int, ...], values: Any) -> tuple[Any, Any, Callable[[int, int], str]]:
        none, facts = np.zeros(values.shape, dtype=bool), self._sizes(at)
        columns = np.isfinite([end[at] for end in self.right]).all(axis=(0, 1))
        if facts is None or not values.size or not columns.any():
            return none, none, lambda i, j: ""
        right = np.maximum(*(np.abs(np.where(columns, end[at].astype(np.float64), 0.0)) for end in self.right))
        never_overflows = columns & self._never_overflow(facts, right)
        finite = columns & np.isfinite(values).all(axis=0)
        x = np.where(finite, values, 0.0)
        with np.errstate(all="ignore"):
            radius = np.where(columns, (self.right[1][at] - self.right[0][at]).astype(np.float64), 0.0)
            allowed, largest = self._allowed(facts, np.abs(x), radius)
            safe = 4 * np.maximum(largest, right.max(0, initial=0.0)) < self.errors.largest
            middles = [middle_of(each, at) for each in self.factors]
            b = np.where(columns, middle_of(self.right, at), 0.0)
            residual, outside = self._outside(at, middles, x, b, allowed)
        outside &= finite & (safe | never_overflows)

        def describe(i: int, j: int) -> str:
            if not np.isfinite(values[i, j]):
                return "no evaluation overflows there"
            text = f"F G X - B at [{i}, {j}] is {residual[i, j]:.6g}, and rounding explains {allowed[i, j]:.3g}"
            return f"{text} (a share of {abs(residual[i, j]) / allowed[i, j]:.4g})" if allowed[i, j] else text

        return outside | (never_overflows & ~np.isfinite(values)), none | (finite & safe) | never_overflows, describe

    def _outside(self, at: tuple[int, ...], middles: Sequence[Any], x: Any, b: Any, allowed: Any) -> tuple[Any, Any]:
        """What is left of the equation, and which elements of it are larger than rounding explains."""
        residual = exact_difference([*middles, x], [b])
        return residual, ~(np.abs(residual) <= allowed)

    def _sizes(self, at: tuple[int, ...]) -> tuple[list[Any], list[Any], list[Any]] | None:
        """Of both factors: the sizes, how far they may be from the middle, and the least of the diagonal.

        It is None where nothing is known, because a factor may be singular or is not finite.
        """
        sizes, radii, least = [], [], []
        for low, high in self.factors:
            low, high = low[at].astype(np.float64), high[at].astype(np.float64)
            diagonals = np.diag(low), np.diag(high)
            smallest = np.minimum(*np.abs(diagonals))
            regular = (np.sign(diagonals[0]) == np.sign(diagonals[1])) & (smallest > self.errors.underflow)
            if not (np.isfinite(low).all() and np.isfinite(high).all() and regular.all()) or self.gamma is None:
                return None
            sizes.append(np.maximum(np.abs(low), np.abs(high)))
            radii.append(high - low)
            least.append(smallest)
        return sizes, radii, least

    def _allowed(self, facts: tuple[list[Any], list[Any], list[Any]], x: Any, radius: Any) -> tuple[Any, Any]:
        """What rounding explains of F G X − B, and of each column more than all that is computed on the way.

        Args:
            facts: as `_sizes` gives them. x: the sizes of X. radius: how far B may be from its middle.
        """
        (first, second), (of_first, of_second), _ = facts
        gamma = float(self.gamma or 0) * SAFETY
        between, sizes = _product([second, x]), _product([first, second, x])
        if of_first.any() or of_second.any():
            radius = radius + _product([of_first, second, x]) + _product([first, of_second, x])
        lost = [self._lost(each, of) for each, of in ((second, x), (first, 2 * between))]
        allowed = (2 + gamma) * gamma * sizes + radius + first @ lost[0] + lost[1]
        return allowed * SAFETY, np.maximum(sizes, between).max(axis=0, initial=0.0)

    def _lost(self, triangle: Any, x: Any) -> Any:
        """What underflow may add to T X − Y in a substitution, for the sizes of a triangle and of its solution."""
        n, diagonal = len(triangle), np.diag(triangle)[:, None]
        lost = 2 * n + 1 + triangle.sum(1)[:, None] + x.sum(0)[None, :] + diagonal + diagonal**2 * x
        return 2 * self.errors.underflow * lost

    def _never_overflow(self, facts: tuple[list[Any], list[Any], list[Any]], right: Any) -> Any:
        """The columns in which no evaluation computes anything that is not finite; 4 as for one triangle, squared."""
        n = self.shape[-2]
        if self.gamma is None or n * self.gamma > 0.5:
            return np.zeros(self.shape[-1], dtype=bool)
        largest = np.zeros(self.shape[-1])
        for size, least, order in zip(facts[0], facts[2], self._orders, strict=True):
            right, way = bound_substitution(size, least, right, order)
            largest = np.maximum(largest, way)
        return 16 * largest < self.errors.largest

    def likely(self) -> Any:
        first, second = self.factors
        between = solve_middles(first, self.right)
        return solve_middles(second, (between, between))


class FactorInverseResidual(FactorSolutionResidual):
    """X with F Fᵀ X = I, by two substitutions, or as the product of the inverse of F with its transpose.

    Section 14.2: a computed inverse V of F leaves γ |V| |F| of V F = I, or γ |F| |V| of F V = I, depending on the
    method. With E and D for what is left of these, D = F E F⁻¹ and E = F⁻¹ D F, the product Vᵀ V leaves of X F Fᵀ = I
    no more than |D|ᵀ + |Vᵀ| |E| |Fᵀ| + γ |Vᵀ| |V| |F| |Fᵀ|. As E and D are small, |V| is no larger than
    |F⁻¹| (I − γ |F| |F⁻¹|)⁻¹ or (I − γ |F⁻¹| |F|)⁻¹ |F⁻¹|. The inverse is symmetric, so it is right from one side.
    """

    def __init__(self, factor: _Ends, is_lower: bool, errors: SubstitutionErrors) -> None:
        ones = np.broadcast_to(np.eye(factor[0].shape[-1]), factor[0].shape)
        mirror = np.swapaxes(factor[0], -1, -2), np.swapaxes(factor[1], -1, -2)
        super().__init__((factor, mirror), (ones, ones), is_lower, errors)

    def _sizes(self, at: tuple[int, ...]) -> tuple[list[Any], list[Any], list[Any]] | None:
        facts = super()._sizes(at)
        return facts if facts is not None and np.isfinite(self._of_inverses(at, facts)).all() else None

    def _outside(self, at: tuple[int, ...], middles: Sequence[Any], x: Any, b: Any, allowed: Any) -> tuple[Any, Any]:
        residual, outside = super()._outside(at, middles, x, b, allowed)
        facts = super()._sizes(at)
        if not outside.any() or facts is None:
            return residual, outside
        allowed += self._of_inverses(at, facts)
        sides = [~(np.abs(exact_difference([*middles, each], [b])) <= allowed) for each in (x, x.T)]
        return residual, next((each for each in sides if not each.any()), sides[0])

    def _of_inverses(self, at: tuple[int, ...], facts: tuple[list[Any], list[Any], list[Any]]) -> Any:
        """What a product of inverses may leave of F Fᵀ X − I; infinities where no bound is known."""
        n = self.shape[-1]
        gamma, unknown = self.errors.gamma(n + 1 + self.errors.division), np.full((n, n), np.inf)
        if gamma is None:
            return unknown
        size, radius, own = facts[0][0], facts[1][0], np.eye(n)
        # Rounding in the inverse here counts like that of an evaluation.
        share = float(gamma) * SAFETY + 4 * n * 2.0**-53
        inverse = np.abs(np.linalg.inv(middle_of(self.factors[0], at)))
        open_ = inverse @ radius
        left, right = share * inverse @ size + open_, share * size @ inverse + radius @ inverse
        if not max(left.sum(1).max(), right.sum(1).max()) < 0.25:
            return unknown
        inverse = np.maximum(np.linalg.solve(own - left, inverse), np.linalg.solve((own - right).T, inverse.T).T)
        inverse *= SAFETY
        of_left, of_right = inverse @ size, size @ inverse
        product = float(gamma) * inverse.T @ of_left @ size.T
        from_left = share * ((of_right @ of_right).T + inverse.T @ of_left @ size.T)
        from_right = share * (of_right.T + inverse.T @ of_left @ of_left @ size.T)
        more = (
            2 * self.errors.underflow * (4 * n + 4) * (1 + of_left.max()) * (1 + size.max()) ** 2 * (1 + inverse.max())
        )
        return (np.maximum(from_left, from_right) + product + more).T * SAFETY


def _product(parts: Sequence[Any]) -> Any:
    """A product of matrices without any rounding before its end; infinities where an element is one."""
    if not all(np.isfinite(each).all() for each in parts):
        return np.full((len(parts[0]), parts[-1].shape[1]), np.inf)
    return exact_difference(list(parts), [np.zeros((len(parts[0]), parts[-1].shape[1]))])
