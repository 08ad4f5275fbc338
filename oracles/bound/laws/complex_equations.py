"""Complex factors and solutions, which are right by what they leave of their equation, as their parts.

A complex number x + i y is the real matrix [[x, −y], [y, x]]. With each element in its place as such a block, a
Cholesky factor of a Hermitian matrix, whose diagonal is real, is the Cholesky factor of a symmetric one, and each part
of a sum of n complex products is the same sum of 2 n real ones. So it has the law of real factors.

An elimination of complex numbers is none of their real form, because it takes other pivots, and its law is that of
real ones for the magnitudes of complex L and U. How many roundings an operation has there is counted here. A part of a
sum of n products is one of 2 n real ones in any order, and c, from which it is taken, is exact where each part of the
result takes the error of its own sum (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, 2002,
Lemma 8.4). With k units in each part the magnitude has √2 k. A quotient by R. L. Smith's formula has in each part
3 d + 5 units of the whole, if a real quotient has d: the ratio d, the divisor d + 2, its reciprocal 2 d + 2, the
numerator d + 2 and the product 1; that of school has d + 4. One that is the product with a reciprocal has √2 · 2 more.
The real form [[Re A, −Im A], [Im A, Re A]] may be eliminated as well, which is a real system, judged as such.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from ....reference.choice import Choice
from .elimination import SAFETY, eliminate
from .reflections import reflections
from .residual import CholeskyResidual, Ends, Residual, SeenResidual, SubstitutionErrors
from .solutions import Bounds, SolutionResidual, merge_eliminations

#: The ends of the real and of the imaginary parts.
EndsOfParts = tuple[Ends, Ends]
#: As how many operations one of reflections counts: products have √2 · 2 units, and what is more is in the quotients.
_OF_REFLECTIONS = 3


def complex_cholesky(ends: EndsOfParts, upper: bool, errors: SubstitutionErrors) -> tuple[Residual, Choice]:
    """A triangle L with L Lᴴ = A, or U with Uᴴ U = A, as its parts along a last axis: (*, n, n, 2); and its status.

    Args:
        ends: of A, each of shape (*, n, n). upper: whether it is U. errors: of rounding.
    """
    (low, high), (least, most) = (tuple(map(np.asarray, each)) for each in ends)
    real_form = CholeskyResidual((_real_form(low, least, -most), _real_form(high, most, -least)), upper, errors)
    shape = (*low.shape, 2)
    numbers = np.arange(1, low.size * 2 + 1).reshape(shape)
    places = _real_form(numbers[..., 0], numbers[..., 1], -numbers[..., 1])
    return SeenResidual(real_form, np.abs(places) - 1, shape, np.sign(places)), real_form.status


def _real_form(x: Any, y: Any, minus_y: Any) -> Any:
    """Each element as a block [[x, −y], [y, x]]: (*, m, n) to (*, 2 m, 2 n)."""
    *stack, m, n = x.shape
    rows = [np.stack([x, minus_y], axis=-1), np.stack([y, x], axis=-1)]
    return np.stack(rows, axis=-3).reshape(*stack, 2 * m, 2 * n)


class ComplexSolutionResidual(SolutionResidual):
    """X with A X = B, or an inverse, as its real parts above its imaginary parts: (*, 2 n, k).

    Besides what is not judged of real ones, nothing is judged where squares of pivots may underflow.
    """

    _blocks = 2

    def __init__(self, matrix: EndsOfParts, right: EndsOfParts | None, errors: SubstitutionErrors) -> None:
        """`matrix`, `right`: ends of A, (*, n, n), and B, (*, n, k); without B of the inverse. errors: of rounding."""
        low, high = (
            (None, None) if right is None else (np.concatenate(ends, axis=-2) for ends in zip(*right, strict=True))
        )
        super().__init__(_system_of(matrix), None if right is None else (low, high), errors)

    @property
    def pairs(self) -> Residual:
        """The same with both parts along a last axis: (*, n, k, 2)."""
        n = self.shape[-2] // 2
        return self.moved(lambda x: np.stack([x[..., :n, :], x[..., n:, :]], axis=-1))

    def facts(self, at: tuple[int, ...]) -> Bounds | None:
        real, own = super().facts(at), self._bounds_of_complex(at)
        if real is None or own is None:
            return None
        least = min(1 / max(real.reciprocal, own.reciprocal), 1.0)
        if not least**2 * self.errors.unit > self.errors.underflow:
            return None
        names = ("right", "columns", "lost", "largest", "reciprocal", "eliminated")
        return replace(own, **{name: np.maximum(getattr(real, name), getattr(own, name)) for name in names})

    def _bounds_of_complex(self, at: tuple[int, ...]) -> Bounds | None:
        """What bounds the residual of complex eliminations and reflections, for the real form of X."""
        low, high = (each[at].astype(np.float64) for each in self.matrix)
        n, errors = len(low) // 2, self.errors
        chain = math.ceil(math.sqrt(2) * (2 * n + 3 * errors.division + 5)) + 3
        gammas = [errors.gamma(count * chain, 2 * count) for count in (1, 3, 8)]
        turned = reflections(2 * n, n, errors, _OF_REFLECTIONS)
        if turned is None or None in gammas or not (np.isfinite(low).all() and np.isfinite(high).all()):
            return None
        one, three, eight = (float(each or 0) * SAFETY for each in gammas)
        with np.errstate(all="ignore"):
            middle, open_ = low / 2 + high / 2, (high - low) * SAFETY
            a, radius = middle[:n, :n] + 1j * middle[n:, :n], open_[:n, :n] + open_[n:, :n]
            radius = radius + (8 * n + 8) * errors.underflow
            every = [
                (eliminate(a, radius, one, of_parts), eliminate(a.T, radius.T, one, of_parts))
                for of_parts in (False, True)
            ]
        several = [merge_eliminations(rows, columns, three, eight) for rows, columns in every]
        if any(each is None for each in several):
            return None
        sides = [np.maximum(*(each[i] for each in several if each)) for i in range(5)]
        share = float((1 + turned) ** 2 * (1 + Fraction(three)) - 1) * SAFETY
        lengths = [share * np.sqrt(((np.abs(a) + radius) ** 2).sum(axis)) * SAFETY for axis in (0, 1)]
        # A magnitude is no larger than the sum of both parts.
        right, left = (np.tile(each, (2, 2)) for each in sides[:2])
        columns, rows = (np.tile(each, 2) for each in lengths)
        numbers = [4 * float(each) for each in sides[2:]]
        return Bounds(right, left, columns, rows, numbers[0], numbers[1], numbers[2], right)

    def _largest(self, x: Any, right: Ends, bounds: Bounds) -> Any:
        """What both parts are squared to on the way, besides."""
        with np.errstate(all="ignore"):
            return 4 * np.maximum(super()._largest(x, right, bounds), 1) ** 2


def _system_of(ends: EndsOfParts) -> Ends:
    """The ends of [[Re A, −Im A], [Im A, Re A]]."""
    (low, high), (least, most) = (tuple(map(np.asarray, each)) for each in ends)
    return np.block([[low, -most], [least, low]]), np.block([[high, -least], [most, high]])
