"""How far orthogonal transformations in rounded arithmetic are from exact ones."""

from __future__ import annotations

import math
from fractions import Fraction

from .residual import SubstitutionErrors


def reflections(rows: int, columns: int, errors: SubstitutionErrors, scale: int = 1) -> Fraction | None:
    """What reflections, or rotations, that triangulate a matrix may do to a column, as a share of its 2-norm.

    There is an exact orthogonal Q, the same for all columns, such that what is computed is Qᵀ (a + Δa) with ‖Δa‖ at
    most this share of ‖a‖, and so are the columns of the computed Q that far from those of Q. N. J. Higham, Accuracy
    and Stability of Numerical Algorithms, 2nd edition, 2002, Lemmas 19.2 and 19.3 and Theorem 19.4, adds up the
    errors of a reflection 1 − τ v vᵀ of p rows, by a small constant times p that is counted here. Q has the reflections
    1 − 2 v vᵀ / vᵀ v of the v that are computed, so what counts of τ is how far it is from 2 / vᵀ v: p and a quotient
    where it is computed as that. From the norm, which is off by (p + root) / 2, it follows as (β − α) / β or the like,
    and is off by as much again and by few operations. τ v vᵀ has the norm 2, which doubles this. The product with it
    adds p + 2 twice, and a difference one. Of the column that v comes from, the rest is zero but for the error of v,
    which makes 3/2 (p + root) + 2 and two quotients, less than that of other columns. A rotation of two rows is off by
    9 units (Lemma 19.8), and of the rotations m + n − 2 follow each other at most (Theorem 19.10). Two Gram-Schmidts in
    turn are no worse, where a matrix is not singular to the format (L. Giraud, J. Langou and M. Rozložník, The loss of
    orthogonality in the Gram-Schmidt orthogonalization process, 2005).

    Args:
        rows, columns: of the matrix. errors: of rounding. scale: as how many operations each one counts.

    Returns:
        The share; None where it is no small number.
    """
    # The factors of the products of the norms, of v with the column and of v with that are rounded, too.
    units = max(_units_of_reflections(rows, columns, errors), 9 * (rows + columns))
    return _small(errors.gamma(scale * units, scale * 8 * min(rows, columns)))


def _units_of_reflections(rows: int, columns: int, errors: SubstitutionErrors) -> int:
    return sum(4 * (rows - step) + 5 + 2 * _of_a_factor(errors) for step in range(min(rows, columns)))


def _of_a_factor(errors: SubstitutionErrors) -> int:
    """How far τ is off beside p units, with room for a norm of scaled elements."""
    return errors.root + 3 * errors.division + 4


def _small(share: Fraction | None) -> Fraction | None:
    return share if share is not None and share < Fraction(1, 8) else None


#: Sweeps of rotations from one end of a band to the other for each eigenvalue or singular value. Proofs of convergence
#: give no useful number, so it is assumed: W. H. Press et al., Numerical Recipes, 3rd edition, 2007, section 11.3, has
#: 1.3 to 1.6 for large matrices, and 2.5 is the most of 1,800 matrices of 2 to 32 rows with Wilkinson's shift.
SWEEPS_OF_A_VALUE = 3


def sweeps_of_jacobi(size: int, unit: float, of_columns: bool = False) -> int:
    """Sweeps over all pairs of rows in Jacobi's method, which are assumed, as no number is proven.

    It grows as log n (G. H. Golub and C. F. Van Loan, Matrix Computations, 4th edition, 2013, section 8.5) and with the
    digits. Of 384 symmetric matrices the most was 5 for 6 rows, 8 for 16 and 11 for 32 in float32, and 6, 11 and 15 in
    float64, where eigenvalues are of all sizes or repeated. Of rotations of columns that are not sorted, of 6,000
    matrices, it was 7, 13 and 16 in float32, and 7, 14 and 20 in float64.

    Args:
        size: rows of the matrix. unit: unit roundoff. of_columns: whether these rotations are of columns alone.
    """
    return (2 + (unit < 2.0**-30) + of_columns) * size.bit_length() + 1


def _rotations(size: int, errors: SubstitutionErrors) -> tuple[int, int, int]:
    """The units of the rotations on one side that make a band diagonal, of Jacobi's, and of those of columns alone.

    A rotation is off by e units in the 2-norm where its cosine and its sine are: one for the sum of squares, half of a
    root's, and a quotient. Products and sums add 2 √2 (Higham's Lemmas 19.7 and 19.8). Rotations of disjoint rows are
    no worse than one of them in the Frobenius norm (Lemma 19.9), so stages of these count. A sweep along a band follows
    another one three rows behind it, so these have size − 1 stages and 3 for each sweep; Jacobi's have 2 size − 3 each.
    Formulas that give a diagonal block of a symmetric matrix at once err no more than both sides do.
    """
    rotation = math.ceil(1 + Fraction(errors.root, 2) + errors.division) + 3
    of_jacobi, of_columns = (sweeps_of_jacobi(size, errors.unit, each) * max(2 * size - 3, 1) for each in (False, True))
    return (1 + 3 * SWEEPS_OF_A_VALUE) * size * rotation, of_jacobi * rotation, of_columns * rotation


def diagonalization(size: int, errors: SubstitutionErrors) -> tuple[Fraction, Fraction] | None:
    """What rotations and reflections on both sides that make a symmetric matrix diagonal may do to it.

    The computed values are exactly those of A + ΔA with ‖ΔA‖ at most the first share of ‖A‖, and its exact vectors are
    off by ΔV with ‖ΔV‖ at most the second share of √n, all in the Frobenius norm (Higham, section 19.5; Golub and Van
    Loan, section 8.3). The evaluation reduces A to three diagonals by reflections and these by rotations, or takes
    Jacobi's rotations, in `SWEEPS_OF_A_VALUE` and `sweeps_of_jacobi` sweeps.

    A reflection with v scaled to τ = 1 and ‖v‖ = √2 is applied as A − v wᵀ − w vᵀ, where w = (I − v vᵀ/2) A v. A v is
    off by √2 (p + 1) units, v (vᵀ A v)/2 by √2 (p + 3) more, the difference by √2; v wᵀ + w vᵀ multiplies that by 2 √2
    and adds 4 of products and 4 of differences, which makes 8 p + 28; τ is off as in `reflections`, on both sides. An
    element that is neglected is no larger than a unit of the norm, and there are n − 1 of them on each side.

    Args:
        size: n. errors: of rounding.

    Returns:
        Both shares; None where they are no small numbers.
    """
    reduction = sum(12 * (size - step) + 28 + 4 * _of_a_factor(errors) for step in range(size - 2))
    of_a_band, of_jacobi, _ = _rotations(size, errors)
    matrix = max(reduction + 2 * of_a_band, 2 * of_jacobi) + 2 * size
    vectors = max(_units_of_reflections(size, size, errors) + of_a_band, of_jacobi)
    return _shares(matrix, vectors, 20 * size, errors)


def bidiagonalization(rows: int, columns: int, errors: SubstitutionErrors) -> tuple[Fraction, Fraction] | None:
    """The same for singular values, where U and V have their own rotations and reflections.

    A triangle is made first by reflections from the left (Higham, Theorem 19.4), of which both sides make two
    diagonals, or Jacobi's rotations all (Golub and Van Loan, section 8.6), on both sides or of the columns alone.

    Args:
        rows, columns: of the matrix. errors: of rounding.
    """
    longer, size = max(rows, columns), min(rows, columns)
    triangle, square = (_units_of_reflections(each, size, errors) for each in (longer, size))
    of_a_band, of_jacobi, of_columns = _rotations(size, errors)
    matrix = triangle + max(2 * (square + of_a_band), 2 * of_jacobi, of_columns) + 2 * size
    return _shares(matrix, triangle + max(square + of_a_band, of_columns), 30 * size, errors)


def _shares(matrix: int, vectors: int, products: int, errors: SubstitutionErrors) -> tuple[Fraction, Fraction] | None:
    shares = [_small(errors.gamma(units, products)) for units in (matrix, vectors)]
    return None if shares[0] is None or shares[1] is None else (shares[0], shares[1])
