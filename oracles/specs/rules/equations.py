"""Aten operations of linear algebra whose results are judged by their residuals in an equation."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ....reference.array import constant
from ....reference.choice import Choice
from ....reference.missing import NoReadingError
from ....reference.whole import interval
from ...bound.laws.complex_equations import ComplexSolutionResidual, complex_cholesky
from ...bound.laws.determinants import determinants
from ...bound.laws.least_squares import LeastNormResidual, LeastSquaresResidual, PseudoinverseResidual
from ...bound.laws.orthogonal import OrthogonalFactorResidual
from ...bound.laws.pivoting import EliminationFactorResidual, order_of
from ...bound.laws.residual import CholeskyResidual, Residual, SubstitutionErrors
from ...bound.laws.solutions import SolutionResidual
from ...bound.laws.spectral import SpectralResidual, Spectrum
from ...bound.laws.substitutions import FactorInverseResidual, SubstitutionResidual
from .table import DECOMPOSED, LIBRARY, RULES, Rule, enter, overloads

#: Of two triangles, the first is below its diagonal.
_LOWER_FIRST = (True, False)


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


def _cholesky_and_info(a: Any, upper: bool = False, check_errors: bool = False) -> Any:
    result = CholeskyResidual(_ends_of(a), upper, _errors_of(constant(a)))
    return result, result.status


def _solve_triangular(a: Any, b: Any, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    matrix, right, errors = _triangle_of(a, upper, unitriangular), _ends_of(b), _errors_of(constant(b))
    if left:
        return SubstitutionResidual([matrix], right, [not upper], errors)
    # X A = B is A^T X^T = B^T.
    transposed = SubstitutionResidual([_transpose(matrix)], _transpose(right), [upper], errors)
    return transposed.moved(_mirror)


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
        matrix, right = _transpose(matrix), _transpose(right)
    solution = SolutionResidual(matrix, right, _errors_of(constant(b)))
    result: Residual = solution
    if is_vector:
        result = result.moved(_as_vector)
    elif not left:
        result = result.moved(_mirror)
    # The factors and the pivots, which torch keeps for derivatives, are no results of a spec.
    return result, None, None, solution.status


def _inverse_and_info(a: Any, check_errors: bool = False) -> Any:
    result = SolutionResidual(_ends_of(a), None, _errors_of(constant(a)))
    return result, result.status


def _cholesky_of_parts(a: Any, b: Any, upper: bool) -> tuple[Residual, Choice]:
    return complex_cholesky((_ends_of(a), _ends_of(b)), upper, _errors_of(constant(a)))


def _solve_parts(a: Any, b: Any, *right: Any) -> tuple[Residual, Choice]:
    """Of A = a + i b and a stack of matrices, in two parts as well, or the inverse."""
    ends, errors = (_ends_of(right[0]), _ends_of(right[1])) if right else None, _errors_of(constant((*right, a)[0]))
    result = ComplexSolutionResidual((_ends_of(a), _ends_of(b)), ends, errors)
    return result.pairs, result.status


def _orthogonal_and_triangular(a: Any, mode: str = "reduced") -> tuple[Any, Any]:
    ends, errors = _ends_of(a), _errors_of(constant(a))
    *stack, m, n = ends[0].shape
    columns = m if mode == "complete" else min(m, n)
    q = np.zeros(0) if mode == "r" else OrthogonalFactorResidual("Q", (*stack, m, columns), ends, errors)
    return q, OrthogonalFactorResidual("R", (*stack, columns, n), ends, errors)


def _permutation_and_triangles(a: Any, pivot: bool = True, roles: Sequence[str] = "PLU") -> tuple[Any, ...]:
    if not pivot:
        raise NoReadingError("no law is known for elimination without pivots")
    ends, errors = _ends_of(a), _errors_of(constant(a))
    return tuple(EliminationFactorResidual(role, ends, errors) for role in roles)


def _packed_triangles(a: Any, pivot: bool = True, check_errors: bool = False) -> tuple[Any, ...]:
    pivots, triangles = _permutation_and_triangles(a, pivot, ("pivots", "LU"))
    return triangles, pivots.moved(_as_vector), triangles.status


def _unpack(
    data: torch.Tensor, pivots: torch.Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[torch.Tensor, ...]:
    m, n = data.shape[-2:]
    rank, rows = min(m, n), torch.arange(m, device=data.device)
    order = rows.expand(*pivots.shape[:-1], m)
    for k in range(rank):
        row = pivots[..., k : k + 1].long() - 1
        other = order.gather(-1, row)
        order = order.scatter(-1, row, order[..., k : k + 1])
        order = torch.where(rows == k, other, order)
    p = (order[..., None, :] == rows[:, None]).to(data.dtype)
    lower = data.tril(-1)[..., :rank] + torch.eye(m, rank, dtype=data.dtype, device=data.device)
    nothing = data.new_empty(0)
    triangles = (lower, data.triu()[..., :rank, :]) if unpack_data else (nothing, nothing)
    return p if unpack_pivots else nothing, *triangles


def _mirror(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def _transpose(ends: tuple[Any, Any]) -> tuple[Any, Any]:
    return _mirror(ends[0]), _mirror(ends[1])


def _solve_by_factors(lu: Any, pivots: Any, b: Any, left: bool = True, adjoint: bool = False) -> Residual:
    ends, right, errors = _ends_of(lu), _ends_of(b), _errors_of(constant(b))
    n = ends[0].shape[-1]
    if not left:  # X A = B is A^T X^T = B^T.
        right = _transpose(right)
    stack = np.broadcast_shapes(ends[0].shape[:-2], right[0].shape[:-2])
    rows = np.asarray(constant(pivots)).reshape(-1, n)
    orders = np.array([order_of(each, n) for each in rows], dtype=np.int64).reshape(*np.shape(pivots)[:-1], n, 1)
    orders = np.broadcast_to(orders, (*stack, n, 1))
    lower = np.tril(ends[0], -1) + np.eye(n), np.tril(ends[1], -1) + np.eye(n)
    upper = np.triu(ends[0]), np.triu(ends[1])
    if adjoint == left:  # U^T L^T P^T X = B
        result: Residual = SubstitutionResidual((_transpose(upper), _transpose(lower)), right, _LOWER_FIRST, errors)
        back = np.argsort(orders, axis=-2)
        result = result.moved(lambda x: np.take_along_axis(x, back, -2))
    else:
        low, high = (np.broadcast_to(end, (*stack, *right[0].shape[-2:])) for end in right)
        right = np.take_along_axis(low, orders, -2), np.take_along_axis(high, orders, -2)
        result = SubstitutionResidual((lower, upper), right, _LOWER_FIRST, errors)
    return result if left else result.moved(_mirror)


def _triangle_of(a: Any, upper: bool, unit_diagonal: bool = False) -> tuple[Any, Any]:
    low, high = (np.triu(end) if upper else np.tril(end) for end in _ends_of(a))
    ones = np.eye(low.shape[-1], dtype=bool) & unit_diagonal
    return np.where(ones, 1.0, low), np.where(ones, 1.0, high)


def _solve_by_cholesky(b: Any, a: Any, upper: bool = False) -> Residual:
    factor, right = _triangle_of(a, upper), _ends_of(b)
    mirror = _transpose(factor)
    factors = (mirror, factor) if upper else (factor, mirror)
    return SubstitutionResidual(factors, right, _LOWER_FIRST, _errors_of(constant(b)))


def _invert_by_cholesky(a: Any, upper: bool = False) -> Residual:
    factor = _triangle_of(a, upper)
    factor = _transpose(factor) if upper else factor
    return FactorInverseResidual(factor, True, _errors_of(constant(a)))


def _determinant(a: Any, role: str = "det") -> Any:
    if constant(a) is not a:  # Its ends are numbers, through which no derivative flows.
        raise NoReadingError("no derivative of it is read")
    contract = getattr(constant(a), "contract", None)
    logarithm = 0.0 if contract is None else 2.0 * contract.functions.ulps["log"] * contract.roundoff
    low, high = determinants(role, _ends_of(a), _errors_of(constant(a)), logarithm)
    return interval(low, high, constant(a))


def _least_squares(a: Any, b: Any, tolerance: float, driver: str | None) -> Residual:
    matrix, right = _ends_of(a), _ends_of(b)
    is_vector = right[0].ndim == matrix[0].ndim - 1
    right = (right[0][..., None], right[1][..., None]) if is_vector else right
    law = LeastNormResidual if matrix[0].shape[-2] < matrix[0].shape[-1] else LeastSquaresResidual
    result = law(matrix, right, _errors_of(constant(b)), (0.0, tolerance))
    return result.moved(_as_vector) if is_vector else result


def _pseudoinverse(a: Any, hermitian: bool = False, **tolerances: Any) -> Residual:
    """`tolerances`: `atol` and `rtol`, numbers of each matrix of the stack, or None."""
    ends, errors = _ends_of(a), _errors_of(constant(a))
    m, n = ends[0].shape[-2:]
    largest = {name: float(np.max(_ends_of(each)[1])) for name, each in tolerances.items() if each is not None}
    absolute = largest.get("atol", 0.0)
    relative = largest.get("rtol", 0.0 if absolute > 0 else 2 * errors.unit * max(m, n))
    if hermitian:
        ends = _symmetric_ends(ends, False)
    if m < n:  # That of the transpose is the transpose of this.
        ends = _transpose(ends)
    result = PseudoinverseResidual(ends, errors, (absolute, relative), hermitian)
    return result.moved(_mirror) if m < n else result


def _solve_least_squares(a: torch.Tensor, b: torch.Tensor, tolerance: float, driver: str | None) -> torch.Tensor:
    result: torch.Tensor = torch.linalg.lstsq(a, b, tolerance, driver=driver).solution
    return result


def _shape_of_solution(a: torch.Tensor, b: torch.Tensor, *how: Any) -> torch.Tensor:
    columns = b.shape[-1:] if b.dim() == a.dim() else ()
    rows = b.shape[:-2] if b.dim() == a.dim() else b.shape[:-1]
    return a.new_empty((*torch.broadcast_shapes(a.shape[:-2], rows), a.shape[-1], *columns))


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
    vectors = SpectralResidual("U", spectrum, np.shape(a)) if compute_v else np.zeros(0)
    return SpectralResidual("S", spectrum).moved(_as_vector), vectors


def _singular_values_and_vectors(
    a: Any, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None
) -> tuple[Any, Any, Any]:
    spectrum = Spectrum(_ends_of(a), False, _errors_of(constant(a)))
    *stack, m, n = np.shape(a)
    rows, columns = (m, n) if full_matrices else (min(m, n), min(m, n))
    u, vh = (
        SpectralResidual(role, spectrum, (*stack, *shape)) if compute_uv else np.zeros(0)
        for role, shape in (("U", (m, rows)), ("Vh", (columns, n)))
    )
    return u, SpectralResidual("S", spectrum).moved(_as_vector), vh


def _with_status(kernel: Any, *args: Any) -> tuple[torch.Tensor, torch.Tensor]:
    result, info = kernel(*args)
    return torch.view_as_real(result.resolve_conj()), info


def _as_vector(x: Any) -> Any:
    return x[..., 0]


_RULES: dict[str, Rule] = {
    # The factors and the pivots, which torch keeps for derivatives, are no results of a spec.
    "_linalg_det": lambda a: (_determinant(a), None, None),
    "_linalg_eigh": _eigenvalues_and_vectors,
    "_linalg_slogdet": lambda a: (_determinant(a, "sign"), _determinant(a, "log"), None, None),
    "cholesky": lambda a, upper=False: _cholesky_and_info(a, upper)[0],
    "cholesky_inverse": _invert_by_cholesky,
    "cholesky_solve": _solve_by_cholesky,
    "_linalg_solve_ex": _solve,
    "_linalg_svd": _singular_values_and_vectors,
    "linalg_cholesky_ex": _cholesky_and_info,
    "linalg_inv_ex": _inverse_and_info,
    "linalg_lu": _permutation_and_triangles,
    "linalg_lu_factor_ex": _packed_triangles,
    "linalg_lu_solve": _solve_by_factors,
    "linalg_pinv.atol_rtol_tensor": _pseudoinverse,
    "linalg_qr": _orthogonal_and_triangular,
    "linalg_solve_triangular": _solve_triangular,
    "triangular_solve": _triangular_solve,
}
enter(_RULES)
enter({"lu_unpack": _unpack}, DECOMPOSED)
LIBRARY.define("least_squares(Tensor a, Tensor b, float tolerance, str? driver) -> Tensor")
LIBRARY.impl("least_squares", _solve_least_squares, "CPU")
LIBRARY.impl("least_squares", _shape_of_solution, "Meta")
_OURS: dict[Any, Rule] = {torch.ops.opassay_specs.least_squares.default: _least_squares}
for _name, _operands, _rule, _kernel in (
    ("cholesky", "Tensor a, Tensor b, bool upper", _cholesky_of_parts,
     lambda a, b, upper: torch.linalg.cholesky_ex(torch.complex(a, b), upper=upper)),
    ("solve", "Tensor a, Tensor b, Tensor c, Tensor d", _solve_parts,
     lambda a, b, c, d: torch.linalg.solve_ex(torch.complex(a, b), torch.complex(c, d))),
    ("inv", "Tensor a, Tensor b", _solve_parts, lambda a, b: torch.linalg.inv_ex(torch.complex(a, b))),
):  # fmt: skip
    LIBRARY.define(f"{_name}_parts({_operands}) -> (Tensor, Tensor)")
    for _key in ("CPU", "Meta"):
        LIBRARY.impl(f"{_name}_parts", functools.partial(_with_status, _kernel), _key)
    _OURS[getattr(torch.ops.opassay_specs, f"{_name}_parts").default] = _rule
RULES.update(_OURS)
#: Operations that give what is judged by its residual.
RESIDUALS = frozenset([*overloads(" ".join(_RULES)), *_OURS])
