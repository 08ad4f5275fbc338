"""Solutions by substitution: X with T X = B for a triangle T, or F G X = B for two, and inverses by a known factor.

N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, 2002, Theorem 8.5: what substitution computes
solves (F + ΔF) Y = B and (G + ΔG) X = Y with |ΔF| ≤ γ |F| and |ΔG| ≤ γ |G|, where γ is that of n − 1 operations and a
quotient, which is the product with a rounded reciprocal perhaps. So F G X − B = −(ΔF G + F ΔG + ΔF ΔG) X, and no
element of that exceeds ((1 + γ)² − 1) |F| |G| |X|, whatever the condition is; of one triangle it is γ |T| |X|.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np

from .dyadic import Dyadic
from .elimination import SAFETY, bound_substitution, solve_middles
from .factors import middle_of
from .residual import Ends, EquationResidual, Side, SubstitutionErrors, describe_ratio

#: The ends of each triangle.
_Facts = list[Ends]


class SubstitutionResidual(EquationResidual):
    """X with F G X = B for triangles: any number of them, each of which is below its diagonal or above it.

    No evaluation overflows where the solution of the comparison matrix of T for |B|, which bounds all that it computes
    (section 8.2), is far from it. Elsewhere a result that is not finite is not judged.
    """

    def __init__(
        self, factors: Sequence[Ends], right: Ends, are_lower: Sequence[bool], errors: SubstitutionErrors
    ) -> None:
        """
        Args:
            factors: the least and the largest value of each element of F and G, (*, n, n), with zeros beside.
            right: those of B, (*, n, k). are_lower: whether each is below its diagonal. errors: of rounding.
        """
        *stack, n, columns = right[0].shape
        stack = list(np.broadcast_shapes(stack, *(each[0].shape[:-2] for each in factors)))
        super().__init__((*stack, n, columns), right, errors)
        shape = (*stack, n, n)
        self.factors = [(np.broadcast_to(low, shape), np.broadcast_to(high, shape)) for low, high in factors]
        self._orders = [list(range(n))[:: 1 if is_lower else -1] for is_lower in are_lower]
        self.gamma = errors.gamma(n - 1 + errors.division)

    def facts(self, at: tuple[int, ...]) -> _Facts | None:
        """The ends of the triangles; None where one may be singular or is not finite."""
        facts = [(low[at], high[at]) for low, high in self.factors]
        for low, high in facts:
            diagonals = np.diag(low), np.diag(high)
            regular = np.sign(diagonals[0]) == np.sign(diagonals[1])
            regular &= np.minimum(*np.abs(diagonals)) > self.errors.underflow
            if not (np.isfinite(low).all() and np.isfinite(high).all() and regular.all()):
                return None
        return None if self.gamma is None else facts

    def _sides(self, at: tuple[int, ...], facts: _Facts, x: Any, right: Ends) -> list[Side]:
        residual, allowed = self._residual(facts, x, right)
        name = "T X - B" if len(facts) == 1 else "F G X - B"
        outside = abs(residual) > allowed
        return [(outside, lambda i, j: describe_ratio(name, (i, j), residual, allowed))]

    def _residual(self, facts: _Facts, x: Any, right: Ends) -> tuple[Dyadic, Dyadic]:
        """What is left of the equation, and how much of that rounding and the ends explain."""
        low_b, high_b = map(Dyadic.of, right)
        product, gamma = Dyadic.of(x), self.gamma or Fraction(0)
        size, known, lost = abs(product), product * 0, product * 0
        for k, ends in enumerate(reversed(facts)):
            # What is computed between two substitutions is no larger than twice the product.
            low, high = map(Dyadic.of, ends)
            triangle = Dyadic.of(np.maximum(*np.abs(ends)))
            lost = triangle @ lost + self._lost(triangle, size * 2 if k else size)
            known = triangle @ known + (high - low).half @ size
            product, size = (low + high).half @ product, triangle @ size
        allowed = size * ((1 + gamma) ** len(facts) - 1) + lost + known + (high_b - low_b).half
        return product - (low_b + high_b).half, allowed

    def _lost(self, triangle: Dyadic, x: Dyadic) -> Dyadic:
        """What underflow may add to T X − Y in a substitution, for the sizes of a triangle and of its solution."""
        diagonal = triangle.change(lambda t: np.diag(t)[:, None])
        sums = triangle.change(lambda t: t.sum(1)[:, None]) + x.change(lambda each: each.sum(0))
        whole = sums + (2 * len(triangle.numbers) + 1) + diagonal + diagonal * diagonal * x
        return whole * Dyadic.of(2 * self.errors.underflow)

    def _in_range(self, facts: _Facts, x: Any, right: Ends) -> Any:
        with np.errstate(all="ignore"):
            sizes = [np.abs(x)]
            for ends in reversed(facts):
                sizes.append(np.maximum(*np.abs(ends)) @ sizes[-1])
            # What the evaluation has computed on its way was no larger than this.
            way = [2 * each for each in sizes[1:-1]] + [sizes[-1] + np.maximum(*np.abs(right))]
            return np.all(2 * SAFETY * np.max(way, axis=0) < self.errors.largest, axis=0)

    def _never_overflow(self, at: tuple[int, ...], facts: _Facts, right: Ends) -> Any:
        """The columns in which no evaluation computes anything that is not finite.

        In n rows an evaluation, and these sums as well, grow beyond the exact bound by a factor of (1 + γ)^n each,
        which is e^(1/2) at most where n γ is 1/2 at most; so 4 is more than both.
        """
        n = self.shape[-2]
        if self.gamma is None or n * self.gamma > Fraction(1, 2):
            return np.zeros(self.shape[-1], dtype=bool)
        bound, largest = np.maximum(*np.abs(right)).astype(np.float64), np.zeros(self.shape[-1])
        for ends, order in zip(facts, self._orders, strict=True):
            size = np.abs(np.array(ends, dtype=np.float64))
            least = np.diagonal(size, axis1=1, axis2=2).min(0)
            bound, way = bound_substitution(size.max(0), least, bound, order)
            largest = np.maximum(largest, way)
        return 4.0 ** len(facts) * largest < self.errors.largest

    def likely(self) -> Any:
        return reduce(lambda ends, each: (solve_middles(each, ends),) * 2, self.factors, self.right)[0]


class FactorInverseResidual(SubstitutionResidual):
    """X with F Fᵀ X = I, by two substitutions, or as the product of the inverse of F with its transpose.

    Section 14.2: a computed inverse V of F leaves γ |V| |F| of V F = I, or γ |F| |V| of F V = I, depending on the
    method. With E and D for what is left of these, D = F E F⁻¹ and E = F⁻¹ D F, the product Vᵀ V leaves of X F Fᵀ = I
    no more than |D|ᵀ + |Vᵀ| |E| |Fᵀ| + γ |Vᵀ| |V| |F| |Fᵀ|. As E and D are small, |V| is no larger than
    |F⁻¹| (I − γ |F| |F⁻¹|)⁻¹ or (I − γ |F⁻¹| |F|)⁻¹ |F⁻¹|. The inverse is symmetric, so it is right from one side.
    """

    def __init__(self, factor: Ends, is_lower: bool, errors: SubstitutionErrors) -> None:
        ones = np.broadcast_to(np.eye(factor[0].shape[-1]), factor[0].shape)
        mirror = np.swapaxes(factor[0], -1, -2), np.swapaxes(factor[1], -1, -2)
        super().__init__((factor, mirror), (ones, ones), (is_lower, not is_lower), errors)

    def facts(self, at: tuple[int, ...]) -> _Facts | None:
        facts = super().facts(at)
        return facts if facts is not None and np.isfinite(self._of_inverses(at)).all() else None

    def _sides(self, at: tuple[int, ...], facts: _Facts, x: Any, right: Ends) -> list[Side]:
        (by_substitution,) = super()._sides(at, facts, x, right)
        if not by_substitution[0].any():
            return [by_substitution]
        (residual, allowed), (mirror, _) = (self._residual(facts, each, right) for each in (x, x.T))
        allowed = allowed + Dyadic.of(self._of_inverses(at))
        return [(abs(each) > allowed, lambda i, j: describe_ratio("F G X - B", (i, j), residual, allowed))
                for each in (residual, mirror)]  # fmt: skip

    def _of_inverses(self, at: tuple[int, ...]) -> Any:
        """What a product of inverses may leave of F Fᵀ X − I; infinities where no bound is known."""
        n = self.shape[-1]
        gamma, unknown = self.errors.gamma(n + 1 + self.errors.division), np.full((n, n), np.inf)
        if gamma is None:
            return unknown
        low, high = (end[at].astype(np.float64) for end in self.factors[0])
        size, radius, own = np.maximum(np.abs(low), np.abs(high)), high - low, np.eye(n)
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
