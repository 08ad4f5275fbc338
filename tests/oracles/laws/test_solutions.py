"""Solutions and inverses judged by their residuals: what eliminations give is right, and planted faults are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound.laws.elimination import eliminate
from opassay.oracles.bound.laws.solutions import SolutionResidual
from tests.oracles.laws.residual_errors import ERRORS, law_between, law_of_inverse, of_condition


def solution_of(a: Any, b: Any, width: float = 0.0) -> SolutionResidual:
    law: SolutionResidual = law_between(SolutionResidual, a, b, width)
    return law


def inverse_of(a: Any) -> SolutionResidual:
    law: SolutionResidual = law_of_inverse(lambda ends, errors: SolutionResidual(ends, None, errors), a)
    return law


def eliminated(a: Any, b: Any, above: bool = False, forgets: int = -1) -> Any:
    """By partial pivoting, with reciprocals of pivots.

    Args:
        above: whether elements above the diagonal are eliminated, too. forgets: the step that leaves a row of b alone.
    """
    a, x, n = a.copy(), b.copy(), len(a)
    for k in range(n):
        pivot = k + int(np.argmax(np.abs(a[k:, k])))
        a[[k, pivot]] = a[[pivot, k]]
        if k != forgets:
            x[[k, pivot]] = x[[pivot, k]]
        factor = a[:, k] * (a.dtype.type(1) / a[k, k])
        factor[: k + 1] *= above
        factor[k] = 0
        a[:, k:] -= factor[:, None] * a[k, k:]
        x -= factor[:, None] * x[k]
    for i in range(n)[::-1]:
        x[i] = (x[i] - a[i, i + 1 :] @ x[i + 1 :] * (not above)) / a[i, i]
    return x


def with_orthogonal_factors(a: Any, b: Any) -> Any:
    q, r = np.linalg.qr(a)
    return np.linalg.solve(r, q.T @ b)


def in_bfloat16(a: Any, b: Any) -> Any:
    bits = a.astype(np.float32).view(np.uint32) & 0xFFFF0000
    return np.linalg.solve(bits.view(np.float32).astype(a.dtype), b)


RIGHT: list[Callable[[Any, Any], Any]] = [
    np.linalg.solve, eliminated, lambda a, b: eliminated(a, b, above=True), with_orthogonal_factors,
]  # fmt: skip
WRONG: dict[str, Callable[[Any, Any], Any]] = {
    "transposed": lambda a, b: np.linalg.solve(a.T, b),
    "a row of b that is not exchanged": lambda a, b: eliminated(a, b, forgets=0),
    "a matrix in bfloat16": in_bfloat16,
    "a solution off by 1 %": lambda a, b: np.linalg.solve(a, b) * a.dtype.type(1.01),
    "not a number": lambda a, b: np.linalg.solve(a, b) * np.nan,
}


@pytest.mark.fast_cases("float32")
@pytest.mark.parametrize("dtype", ERRORS)
def test_eliminations_are_right_whatever_the_condition(dtype: Any) -> None:
    rng, refusals, judged, elements = np.random.default_rng(0), 0, 0, 0
    for n in range(1, 11):
        for condition in np.geomspace(1.0, 1e-3 / ERRORS[dtype].unit, 4):
            a, b = of_condition(rng, n, n, dtype, condition), rng.standard_normal((n, 2)).astype(dtype)
            for evaluate in RIGHT:
                for law, values in (
                    (solution_of(a, b), evaluate(a, b)), (inverse_of(a), evaluate(a, np.eye(n, dtype=dtype))),
                    (inverse_of(a), evaluate(a.T, np.eye(n, dtype=dtype)).T),
                ):  # fmt: skip
                    refusals += int(np.count_nonzero(~law.accepts(values)))
                    judged += int(np.count_nonzero(law.refutable(values)))
                    elements += values.size
                    assert law.explain(values) == ""
    assert refusals == 0
    assert judged > 0.9 * elements


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("dtype", ERRORS)
def test_faults_are_refused(dtype: Any, fault: str) -> None:
    rng = np.random.default_rng(1)
    a = (rng.standard_normal((6, 6)) + 0.5 * np.eye(6)).astype(dtype)
    b, ones = rng.standard_normal((6, 2)).astype(dtype), np.eye(6, dtype=dtype)
    assert np.argmax(np.abs(a[:, 0])) > 0
    for law, right in ((solution_of(a, b), b), (inverse_of(a), ones)):
        values = WRONG[fault](a, right)
        assert not law.accepts(values).all()
        assert ("overflows" if fault == "not a number" else "A X - B at [") in law.explain(values)


@pytest.mark.parametrize("seed", range(6))
def test_a_matrix_in_float16_is_refused_in_float32(seed: int) -> None:
    # The law of reflections is that of the norm of a column; for each element alone it would let four of these pass.
    rng = np.random.default_rng(seed)
    a, b = of_condition(rng, 8, 8, np.float32, 10.0), rng.standard_normal((8, 2)).astype(np.float32)
    assert not solution_of(a, b).accepts(np.linalg.solve(a.astype(np.float16).astype(np.float32), b)).all()
    assert solution_of(a, b).accepts(with_orthogonal_factors(a, b)).all()


def test_a_bound_is_that_of_all_sequences_of_pivots() -> None:
    # Either row may be the first: of [1, 2] the factors are 1, 2, and 1 + 1 below; of [-1, 1] they are 1, 1 and 1 + 3.
    elimination = eliminate(np.array([[1.0, 2.0], [-1.0, 1.0]]), np.zeros((2, 2)), 0.0)
    assert elimination is not None
    np.testing.assert_array_equal(np.round(elimination.factors, 5), [[1.0, 4.0], [1.0, 5.0]])


def test_matrices_of_unknown_growth_are_not_judged() -> None:
    signs = np.where(np.random.default_rng(2).standard_normal((12, 12)) > 0, 1.0, -1.0)
    singular = np.array([[1.0, 2.0], [2.0, 4.0]])
    for a in (signs, singular, np.array([[np.inf, 0.0], [0.0, 1.0]])):
        law = solution_of(a, np.ones((len(a), 1)))
        assert law.accepts(np.zeros((len(a), 1))).all()
        assert not law.refutable(np.zeros((len(a), 1))).any()


def test_growth_is_part_of_the_bound() -> None:
    # Wilkinson's matrix, of which the last column doubles in each step.
    n = 20
    a = np.eye(n) - np.tri(n, k=-1)
    a[:, -1] = 1.0
    a *= 1 + 1e-9 * np.arange(n)[:, None][::-1]
    elimination = eliminate(a, np.zeros((n, n)), 1e-15)
    assert elimination is not None
    assert elimination.factors[-1, -1] > 2.0 ** (n - 2)
    b = np.random.default_rng(3).standard_normal((n, 1))
    assert solution_of(a, b).accepts(eliminated(a, b)).all()


def test_operands_between_ends_widen_a_bound() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((4, 4)) + 3 * np.eye(4), rng.standard_normal((4, 1))
    moved = np.linalg.solve(a + np.diag([1e-6, 0.0, 0.0, 0.0]), b)
    assert not solution_of(a, b).accepts(moved).all()
    assert solution_of(a, b, width=1e-6).accepts(moved).all()
    assert not solution_of(a, b, width=1e-7).accepts(moved).all()
