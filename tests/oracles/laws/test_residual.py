"""Results that are judged by their residual: what evaluations give is right, and every planted fault is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound.laws.residual import CholeskyResidual, Residual
from opassay.oracles.bound.laws.substitutions import SubstitutionResidual
from tests.oracles.laws.residual_errors import ERRORS


def cholesky_of(a: Any, upper: bool = False, width: float = 0.0) -> Residual:
    own = np.asarray(a, dtype=np.float64)
    return CholeskyResidual((own - width, own + width), upper, ERRORS[a.dtype.type])


def solution_of(t: Any, b: Any, upper: bool = False, unit: bool = False) -> Residual:
    own, right = t.astype(np.float64), b.astype(np.float64)
    own = np.triu(own) if upper else np.tril(own)
    own = np.where(np.eye(len(t), dtype=bool) & unit, 1.0, own)
    return SubstitutionResidual([(own, own)], (right, right), [not upper], ERRORS[t.dtype.type])


def cholesky(a: Any) -> Any:
    """Column after column, in the dtype of `a`."""
    n, factor = len(a), np.zeros_like(a)
    for j in range(n):
        factor[j, j] = np.sqrt(a[j, j] - np.sum(factor[j, :j] ** 2))
        factor[j + 1 :, j] = (a[j + 1 :, j] - factor[j + 1 :, :j] @ factor[j, :j]) / factor[j, j]
    return factor


def cholesky_in_blocks(a: Any, size: int = 3) -> Any:
    """A block of columns after the other, each taken from all that are left."""
    lower, factor, n = a.copy(), np.zeros_like(a), len(a)
    for start in range(0, n, size):
        end = min(start + size, n)
        block = cholesky(lower[start:end, start:end])
        factor[start:end, start:end] = block
        below = substitute(block, lower[end:, start:end].T).T
        factor[end:, start:end] = below
        lower[end:, end:] -= below @ below.T
    return factor


def substitute(t: Any, b: Any) -> Any:
    """Row after row, by reciprocals of the diagonal."""
    x = np.zeros_like(b)
    for i in range(len(t)):
        x[i] = (b[i] - t[i, :i] @ x[:i]) * (t.dtype.type(1) / t[i, i])
    return x


def substitute_by_columns(t: Any, b: Any) -> Any:
    x = b.copy()
    for i in range(len(t)):
        x[i] = x[i] / t[i, i]
        x[i + 1 :] -= t[i + 1 :, i, None] * x[i]
    return x


def positive_definite(rng: np.random.Generator, n: int, dtype: Any, condition: float) -> Any:
    orthogonal, _ = np.linalg.qr(rng.standard_normal((n, n)))
    a = ((orthogonal * np.geomspace(1.0, 1.0 / condition, n)) @ orthogonal.T).astype(dtype)
    return np.tril(a) + np.tril(a, -1).T


@pytest.mark.parametrize("dtype", ERRORS)
def test_evaluations_are_right_whatever_the_condition(dtype: Any) -> None:
    rng, refusals, judged = np.random.default_rng(0), 0, 0
    most = 0.01 / ERRORS[dtype].unit
    for n in range(1, 13):
        for condition in np.geomspace(1.0, most / n**2, 4):
            a = positive_definite(rng, n, dtype, condition)
            t, b = np.tril(rng.standard_normal((n, n))).astype(dtype), rng.standard_normal((n, 2)).astype(dtype)
            pairs = [(cholesky_of(a), evaluate(a)) for evaluate in (cholesky, cholesky_in_blocks)]
            pairs += [(cholesky_of(a, upper=True), cholesky(a).T)]
            pairs += [(solution_of(t, b), evaluate(t, b)) for evaluate in (substitute, substitute_by_columns)]
            pairs += [(solution_of(t.T[::-1, ::-1].T, b[::-1], upper=True), substitute(t, b)[::-1])]
            for law, values in pairs:
                refusals += int(np.count_nonzero(~law.accepts(values)))
                judged += int(np.count_nonzero(law.refutable(values)))
                assert law.explain(values) == ""
    assert refusals == 0
    assert judged == sum(4 * (3 * n * n + 3 * n * 2) for n in range(1, 13))


def test_the_bound_is_sharp() -> None:
    # Of one element the law is |l^2 - a| <= gamma l^2, but for underflow.
    errors = ERRORS[np.float64]
    gamma = errors.gamma(5)
    assert gamma == Fraction(5, 2**53) / (1 - Fraction(5, 2**53))
    law = cholesky_of(np.array([[2.0]]))
    value, steps = np.sqrt(2.0), 0
    while law.accepts(np.array([[value]])).all():
        assert abs(Fraction(value) ** 2 - 2) <= gamma * Fraction(value) ** 2 * (1 + Fraction(1, 2**40))
        value, steps = np.nextafter(value, 2.0), steps + 1
    assert abs(Fraction(value) ** 2 - 2) > gamma * Fraction(value) ** 2
    assert steps > 1


def _spoil(values: Any, at: tuple[int, int], value: float) -> Any:
    out = values.copy()
    out[at] = value
    return out


def test_faults_of_factors_are_refused() -> None:
    a = positive_definite(np.random.default_rng(1), 6, np.float64, 100.0)
    right, law = cholesky(a), cholesky_of(a)
    faults = {
        "L L^T - A at [4, 2] is": _spoil(right, (4, 2), right[4, 2] * (1 + 1e-13) + 1e-14),
        "is not 0": _spoil(right, (0, 5), 1e-300),
        "the diagonal is above 0": right * np.where(np.arange(6) == 2, -1.0, 1.0),
        "positive definite": _spoil(right, (3, 3), np.nan),
    }
    for text, values in faults.items():
        assert not law.accepts(values).all()
        assert text in law.explain(values)
    assert not law.accepts(right.astype(np.float32)).all()
    assert not law.accepts(right.T).all()
    assert not cholesky_of(a, upper=True).accepts(right).all()
    assert not cholesky_of(a + np.eye(6) * 1e-12).accepts(right).all()


def test_faults_of_solutions_are_refused() -> None:
    rng = np.random.default_rng(2)
    t, b = np.tril(rng.standard_normal((6, 6))), rng.standard_normal((6, 2))
    right, law = substitute(t, b), solution_of(t, b)
    faults = {
        "T X - B at [3, 1] is": _spoil(right, (3, 1), right[3, 1] * (1 + 1e-13)),
        "overflows": _spoil(right, (0, 0), np.inf),
    }
    for text, values in faults.items():
        assert not law.accepts(values).all()
        assert text in law.explain(values)
    for values in (right.astype(np.float32), substitute(t + np.eye(6) * 1e-10, b), np.linalg.solve(t.T, b), right * 0):
        assert not law.accepts(values).all()
    assert "(a share of inf)" in law.explain(right * 0)
    assert not solution_of(t, b, unit=True).accepts(right).all()


def test_an_inverse_is_refused_where_it_is_less_accurate() -> None:
    # The inverse has elements up to 2^28, which cancel where the solution is small.
    t = np.tril(np.full((30, 30), -1.0), -1) + np.eye(30) * 1.1
    b = t @ np.random.default_rng(3).standard_normal((30, 1))
    law = solution_of(t, b)
    assert law.accepts(substitute(t, b)).all()
    assert not law.accepts(np.linalg.inv(t) @ b).all()


def test_what_no_theorem_covers_is_not_judged() -> None:
    a = np.array([[1.0, 2.0], [2.0, 1.0]])
    nan = np.full((2, 2), np.nan)
    for law in (cholesky_of(a), solution_of(np.array([[1e-200, 0.0], [1e200, 1.0]]), np.full((2, 2), 1e200))):
        assert law.accepts(nan).all()
        assert not law.refutable(nan).any()
    for law in (
        cholesky_of(np.array([[1.0, 0.5], [0.0, 1.0]])),
        cholesky_of(np.array([[np.inf, 0.0], [0.0, 1.0]])),
        solution_of(np.array([[0.0, 0.0], [1.0, 1.0]]), np.ones((2, 2))),
    ):
        assert law.accepts(np.eye(2)).all()
        assert not law.refutable(np.eye(2)).any()


def test_operands_between_ends_widen_a_bound() -> None:
    a = positive_definite(np.random.default_rng(4), 4, np.float64, 10.0)
    moved = cholesky(a + np.diag([0.0, 1e-6, 0.0, 0.0]))
    assert not cholesky_of(a).accepts(moved).all()
    assert cholesky_of(a, width=1e-6).accepts(moved).all()
    assert not cholesky_of(a, width=0.9e-6).accepts(moved).all()


def test_elements_move_as_a_whole() -> None:
    rng = np.random.default_rng(5)
    a = np.stack([positive_definite(rng, 3, np.float64, 10.0) for _ in range(2)])
    law, right = cholesky_of(a), np.stack([cholesky(each) for each in a])
    moved = law.moved(lambda x: np.swapaxes(x, -1, -2))
    assert moved.accepts(np.swapaxes(right, -1, -2)).all()
    assert moved.refutable(np.swapaxes(right, -1, -2)).all()
    np.testing.assert_array_equal(np.swapaxes(moved.likely(), -1, -2), law.likely())
    assert not moved.accepts(right).all()
    assert "is not 0" in moved.explain(right)
    with pytest.raises(ValueError, match="as a whole"):
        law.moved(lambda x: x[0])
