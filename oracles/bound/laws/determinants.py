"""Determinants, their signs and logarithms, as far as rounding in an evaluation may move them.

An elimination gives the pivots of A + E with |E| ≤ γ |L| |U| (N. J. Higham, Accuracy and Stability of Numerical
Algorithms, 2nd edition, 2002, Theorem 9.3 and section 14.6), and reflections those of A + E where no column of E is
longer than a share of that of A (Theorem 19.4). With G ≥ |A⁻¹| |E|, det(A + E) / det A − 1 = det(I + A⁻¹ E) − 1 is a
sum of products of elements of A⁻¹ E, one of each row at most, and so no larger than Π (1 + the sum of row i of G) − 1;
the same is true of columns. It is a sum of determinants of columns of A⁻¹ E among those of I, too, each no larger than
the lengths of these in turn (Hadamard), and so no larger than Π (1 + the length of column j) − 1. A product of n pivots
is off by γ of n operations.

Up to four rows a determinant may be the sum of its n! products as well, which is off by γ of n! + n operations, times
the sum of the sizes of these. The exact determinant is that of integers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np

from .dyadic import Dyadic, nearest_float
from .elimination import SAFETY, eliminate
from .factors import middle_of
from .reflections import reflections
from .residual import SubstitutionErrors

#: Up to so many rows a sum of all products is one of the evaluations.
_MOST_ROWS_OF_SUMS = 4


def determinants(role: str, ends: tuple[Any, Any], errors: SubstitutionErrors, logarithm: float = 0.0) -> Any:
    """Between which ends evaluations give the determinant of each of a stack of matrices.

    They are infinite where a matrix may be singular, a determinant is known to less than its half, or more sequences of
    pivots are possible than are followed; and of a determinant whose pivots have a product on the way that may overflow
    or underflow.

    Args:
        role: "det", "sign", or "log" of the size. errors: of rounding.
        ends: the least and the largest value of each element of A, (*, n, n).
        logarithm: by which share of itself a logarithm may be off.
    """
    *stack, n, _ = ends[0].shape
    out = np.stack([np.full(stack, -np.inf), np.full(stack, np.inf)])
    for at in np.ndindex(*stack):
        facts = _facts(role, ends, at, errors)
        if facts is None:
            continue
        exact, share, size = facts
        middle, off = nearest_float(exact), abs(nearest_float(exact)) * share
        if role == "log":
            middle = _logarithm(abs(exact))
            off = (size * (logarithm + float(errors.gamma(n) or 0)) - math.log1p(-share)) * SAFETY
        if role == "sign":
            out[:, *at] = math.copysign(1.0, exact)
        else:
            out[:, *at] = np.array([-1, 1]) * (off + 2.0**-50 * (abs(middle) + (role == "log"))) + middle
    return out


def _facts(
    role: str, ends: tuple[Any, Any], at: tuple[int, ...], errors: SubstitutionErrors
) -> tuple[Fraction, float, float] | None:
    """The exact determinant, by which share of itself it may be off, and the sum of the logarithms of pivots.

    It is None where nothing is judged.
    """
    n = ends[0].shape[-1]
    if n == 0:
        return Fraction(1), 0.0, 0.0
    low, high = (end[at].astype(np.float64) for end in ends)
    gammas = errors.gamma(n - 1 + errors.division), errors.gamma(n), reflections(n, n, errors)
    if not (np.isfinite(low).all() and np.isfinite(high).all()) or None in gammas:
        return None
    of_step, of_product, turned = (float(each or 0) * SAFETY for each in gammas)
    a, radius, most = middle_of(ends, at), high - low, np.maximum(np.abs(low), np.abs(high))
    with np.errstate(all="ignore"):
        lost = (2 * n + 4) * 2 * errors.underflow
        rows, columns = eliminate(a, radius + lost, of_step), eliminate(a.T, radius.T + lost, of_step)
        if rows is None or columns is None:
            return None
        largest = max(float(each.factors.max()) for each in (rows, columns))
        least = 1 / max(each.reciprocal for each in (rows, columns))
        inverse, lengths = np.linalg.inv(a), np.sqrt((most**2).sum(0)) * SAFETY
        moves = np.maximum(of_step * rows.factors, of_step * columns.factors.T) + radius + lost * (1 + largest) ** 2
        share = _share_of(np.abs(inverse), moves)
        norm = float(np.linalg.norm(inverse, 2)) / (1 - min(share, 0.5)) * SAFETY
        turns = norm * (turned * lengths + np.sqrt((radius**2).sum(0)) + math.sqrt(n) * lost * (1 + largest))
        share = max(share, float(np.prod(1 + turns)) - 1)
        # Of a triangle by reflections, no diagonal exceeds a column of A, or falls below the least singular value.
        largest, least = max(largest, 2 * float(lengths.max())), min(least, 0.5 / norm)
        exact = _determinant(a.tobytes(), n)
    if exact == 0 or not share < 0.5:
        return None
    share = (1 + share) * (1 + of_product) - 1
    if n <= _MOST_ROWS_OF_SUMS and not radius.any():
        gamma = errors.gamma(math.factorial(n) + n, n)
        of_underflow = 4 * math.factorial(n) * n * Fraction(errors.underflow) * (1 + Fraction(float(most.max()))) ** n
        by_sums = Fraction(gamma or 1) * _sum_of_sizes(most) + of_underflow
        share = max(share, nearest_float(by_sums / abs(exact)))
    sizes = n * max(abs(math.log(least)), abs(math.log(largest)))
    in_range = sizes < math.log(errors.largest) and -sizes > math.log(errors.underflow / errors.unit**2)
    return (exact, share * SAFETY, sizes) if share < 0.5 and (in_range or role != "det") else None


def _share_of(inverse: Any, moves: Any) -> float:
    """By which share of itself a determinant moves where no element of its matrix moves by more than `moves`.

    Args:
        inverse: the sizes of the elements of the inverse, as float64 gives them. moves: one for each element.
    """
    own = np.eye(len(inverse))
    share = inverse @ moves
    if not share.sum(1).max() < 0.5:
        return math.inf
    # The inverse here is off by less than that of an evaluation, which moves no element by more.
    share = np.linalg.solve(own - share, share) * SAFETY
    return min(float(np.prod(1 + share.sum(axis))) for axis in (0, 1)) - 1


@lru_cache(maxsize=2)
def _determinant(data: bytes, rows: int) -> Fraction:
    """Exactly, by E. H. Bareiss, Sylvester's identity and multistep integer-preserving Gaussian elimination, 1968."""
    matrix = Dyadic.of(np.frombuffer(data).reshape(rows, rows))
    work, unit = matrix.numbers, matrix.unit
    n, sign, before = len(work), 1, 1
    for k in range(n - 1):
        pivot = next((i for i in range(k, n) if work[i, k]), None)
        if pivot is None:
            return Fraction(0)
        if pivot != k:
            work[[k, pivot]], sign = work[[pivot, k]], -sign
        work[k + 1 :, k + 1 :] = (
            work[k + 1 :, k + 1 :] * work[k, k] - np.outer(work[k + 1 :, k], work[k, k + 1 :])
        ) // before
        before = work[k, k]
    return Fraction(sign * work[n - 1, n - 1], unit**n)


def _sum_of_sizes(most: Any) -> Fraction:
    """The sum of the products of one element of each row and column."""
    sizes, n = Dyadic.of(most), len(most)
    products = (math.prod(sizes.numbers[range(n), order]) for order in permutations(range(n)))
    return Fraction(sum(products), sizes.unit**n)


def _logarithm(x: Fraction) -> float:
    """Of a number whose parts may be beyond all floats."""
    return math.log(x.numerator) - math.log(x.denominator) if abs(x - 1) > Fraction(1, 8) else math.log1p(float(x - 1))
