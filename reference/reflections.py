"""How far orthogonal transformations in rounded arithmetic are from exact ones."""

from __future__ import annotations

from fractions import Fraction

from .residual import SubstitutionErrors


def reflections(rows: int, columns: int, errors: SubstitutionErrors) -> Fraction | None:
    """What reflections, or rotations, that triangulate a matrix may do to a column, as a share of its 2-norm.

    There is an exact orthogonal Q, the same for all columns, such that what is computed is Qᵀ (a + Δa) with ‖Δa‖ at
    most this share of ‖a‖, and so are the columns of the computed Q that far from those of Q. N. J. Higham, Accuracy
    and Stability of Numerical Algorithms, 2nd edition, 2002, Lemmas 19.2 and 19.3 and Theorem 19.4, adds up the
    errors of a reflection 1 − τ v vᵀ of p rows, by a small constant times p that is counted here. A norm is off by
    p/2 units and its root, so v is by one more and a quotient, and τ by twice the norm's, one more and a quotient. τ
    v vᵀ has the norm 2, which makes 4 of the first and 2 of the second. The product with it adds p + 3 twice, and a
    difference one. A rotation of two rows is off by 9 units (Lemma 19.8), and of the rotations m + n − 2 follow each
    other at most (Theorem 19.10). Two Gram-Schmidts in turn are no worse, where a matrix is not singular to the
    format (L. Giraud, J. Langou and M. Rozložník, The loss of orthogonality in the Gram-Schmidt orthogonalization
    process, 2005).

    Args:
        rows, columns: of the matrix. errors: of rounding.

    Returns:
        The share; None where it is no small number.
    """
    steps = min(rows, columns)
    constant = 4 * errors.root + 6 * errors.division + 13
    of_reflections = sum(6 * (rows - step) + constant for step in range(steps))
    # The factors of the products of the norms, of v with the column and of v with that are rounded, too.
    share = errors.gamma(max(of_reflections, 9 * (rows + columns)), 8 * steps)
    return share if share is not None and share < Fraction(1, 8) else None
