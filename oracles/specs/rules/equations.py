"""Aten operations of linear algebra whose results are judged by their residuals in an equation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ....reference.array import constant
from ....reference.missing import NoReadingError
from ....reference.orthogonal import OrthogonalResidual, TriangularFactorResidual
from ....reference.pivoting import EliminationFactorResidual
from ....reference.residual import CholeskyResidual, Residual, SubstitutionErrors, TriangularResidual
from ....reference.solutions import InverseResidual, SolutionResidual
from ....reference.spectral import SpectralValuesResidual, SpectralVectorsResidual, Spectrum
from .table import Rule, enter, overloads


def _errors_of(x: Any) -> SubstitutionErrors:
    """The rounding errors that the contract of a ball allows an evaluation."""
    contract = getattr(x, "contract", None)
    if contract is None:
        raise NoReadingError("it is known by its residual alone, which has no derivatives and no digits")
    products, unit = contract.products, contract.roundoff
    if products.narrow is not None or products.accumulators is not None:
        raise NoReadingError("no law is known for factors of fewer exponents, or for accumulators of tensor cores")
    if products.partials is not None:
        unit = max(unit, products.partials.unit_roundoff)
    # An ulp is at most two roundoff units, and the relative error of the square of a root is twice that of the root.
    root = 1 + math.ceil(4 * contract.functions.ulps["sqrt"])
    division = math.ceil(contract.division)
    factors, sums = products.factors, max(products.sums, 1.0)
    return SubstitutionErrors(unit * sums, factors, division, root, contract.underflow, contract.limit)


def _ends_of(x: Any) -> tuple[Any, Any]:
    low, high = constant(x).ends()
    return np.asarray(low), np.asarray(high)


def _cholesky(a: Any, upper: bool = False) -> Any:
    return CholeskyResidual(_ends_of(a), upper, _errors_of(constant(a)))


def _cholesky_and_info(a: Any, upper: bool = False, check_errors: bool = False) -> Any:
    return _cholesky(a, upper), np.zeros(np.shape(a)[:-2], dtype=np.int32)


def _solve_triangular(a: Any, b: Any, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    matrix, right = _ends_of(a), _ends_of(b)
    errors = _errors_of(constant(b))
    if left:
        return TriangularResidual(matrix, right, upper, unitriangular, errors)
    # X A = B is A^T X^T = B^T.
    matrix, right = (tuple(np.swapaxes(end, -1, -2) for end in ends) for ends in (matrix, right))
    transposed = TriangularResidual(matrix, right, not upper, unitriangular, errors)
    return transposed.moved(lambda x: np.swapaxes(x, -1, -2))


def _triangular_solve(
    b: Any, a: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Any, Any]:
    matrix = np.swapaxes(a, -1, -2) if transpose else a
    return _solve_triangular(matrix, b, upper != transpose, True, unitriangular), a


def _solve(a: Any, b: Any, left: bool = True, check_errors: bool = False) -> tuple[Any, ...]:
    matrix, right = _ends_of(a), _ends_of(b)
    # A right side of one dimension less than A is a vector, or a stack of vectors; a vector alone is for every matrix.
    is_vector = right[0].ndim == 1 or (right[0].ndim == matrix[0].ndim - 1 and right[0].shape == matrix[0].shape[:-1])
    if is_vector:
        right = right[0][..., None], right[1][..., None]
    elif not left:  # X A = B is A^T X^T = B^T.
        matrix, right = (tuple(np.swapaxes(end, -1, -2) for end in ends) for ends in (matrix, right))
    result: Residual = SolutionResidual(matrix, right, _errors_of(constant(b)))
    if is_vector:
        result = result.moved(_as_vector)
    elif not left:
        result = result.moved(lambda x: np.swapaxes(x, -1, -2))
    # The factors and the pivots, which torch keeps for derivatives, are no results of a spec.
    return result, None, None, np.zeros(np.shape(a)[:-2], dtype=np.int32)


def _inverse_and_info(a: Any, check_errors: bool = False) -> Any:
    return InverseResidual(_ends_of(a), _errors_of(constant(a))), np.zeros(np.shape(a)[:-2], dtype=np.int32)


def _orthogonal_and_triangular(a: Any, mode: str = "reduced") -> tuple[Any, Any]:
    ends, errors = _ends_of(a), _errors_of(constant(a))
    *stack, m, n = ends[0].shape
    columns = m if mode == "complete" else min(m, n)
    q = np.zeros(0) if mode == "r" else OrthogonalResidual((*stack, m, columns), ends, errors)
    return q, TriangularFactorResidual((*stack, columns, n), ends, errors)


def _permutation_and_triangles(a: Any, pivot: bool = True) -> tuple[Any, ...]:
    if not pivot:
        raise NoReadingError("no law is known for elimination without pivots")
    ends, errors = _ends_of(a), _errors_of(constant(a))
    return tuple(EliminationFactorResidual(role, ends, errors) for role in "PLU")


def _symmetric_ends(ends: tuple[Any, Any], is_upper: bool) -> tuple[Any, Any]:
    """Of the symmetric matrix of one triangle; where both may hold the same number, an evaluation may take either."""
    (low, high), (low_mirror, high_mirror) = ends, (np.swapaxes(end, -1, -2) for end in ends)
    meet = (low <= high_mirror) & (low_mirror <= high)
    reads = np.tri(low.shape[-1], dtype=bool)
    reads = reads.T if is_upper else reads
    least, most = np.where(reads, low, low_mirror), np.where(reads, high, high_mirror)
    return np.where(meet, np.minimum(low, low_mirror), least), np.where(meet, np.maximum(high, high_mirror), most)


def _eigenvalues_and_vectors(a: Any, uplo: str = "L", compute_v: bool = True) -> tuple[Any, Any]:
    spectrum = Spectrum(_symmetric_ends(_ends_of(a), uplo.upper() == "U"), True, _errors_of(constant(a)))
    vectors = SpectralVectorsResidual("U", np.shape(a), spectrum) if compute_v else np.zeros(0)
    return SpectralValuesResidual(spectrum).moved(_as_vector), vectors


def _singular_values_and_vectors(
    a: Any, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None
) -> tuple[Any, Any, Any]:
    spectrum = Spectrum(_ends_of(a), False, _errors_of(constant(a)))
    *stack, m, n = np.shape(a)
    rows, columns = (m, n) if full_matrices else (min(m, n), min(m, n))
    u, vh = (
        SpectralVectorsResidual(role, (*stack, *shape), spectrum) if compute_uv else np.zeros(0)
        for role, shape in (("U", (m, rows)), ("Vh", (columns, n)))
    )
    return u, SpectralValuesResidual(spectrum).moved(_as_vector), vh


def _as_vector(x: Any) -> Any:
    return x[..., 0]


_RULES: dict[str, Rule] = {
    "_linalg_eigh": _eigenvalues_and_vectors,
    "cholesky": _cholesky,
    "_linalg_solve_ex": _solve,
    "_linalg_svd": _singular_values_and_vectors,
    "linalg_cholesky_ex": _cholesky_and_info,
    "linalg_inv_ex": _inverse_and_info,
    "linalg_lu": _permutation_and_triangles,
    "linalg_qr": _orthogonal_and_triangular,
    "linalg_solve_triangular": _solve_triangular,
    "triangular_solve": _triangular_solve,
}
enter(_RULES)
#: Operations that give what is judged by its residual.
_OPERATIONS = frozenset(overloads(" ".join(_RULES)))


def has_residuals(graph: torch.fx.GraphModule) -> bool:
    """Whether a spec gives what is judged by its residual, of which no derivative is known."""
    return any(map(gives_residual, graph.graph.nodes))


def gives_residual(node: torch.fx.Node) -> bool:
    """Whether an operation gives what is judged by its residual."""
    return node.target in _OPERATIONS
