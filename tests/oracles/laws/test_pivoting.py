"""Triangular factors with pivots: those of right evaluations are accepted, and every planted fault is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound.laws.factors import join_factors
from opassay.oracles.bound.laws.pivoting import EliminationFactorResidual, order_of
from tests.oracles.laws.residual_errors import ERRORS, hold_factors, of_condition, with_change

Triple = tuple[Any, Any, Any]


def laws_of(a: Any) -> list[EliminationFactorResidual]:
    ends = (a.astype(np.float64),) * 2
    return [EliminationFactorResidual(role, ends, ERRORS[a.dtype.type]) for role in "PLU"]


def hold(a: Any, values: Triple) -> tuple[int, int, str]:
    return hold_factors(laws_of(a), values)


def by_columns(a: Any, pivots: bool = True, reciprocal: bool = True) -> Triple:
    """An elimination that looks to the right, with reciprocals of pivots or quotients."""
    m, order, a, rank = len(a), np.arange(len(a)), a.copy(), min(a.shape)
    for k in range(rank):
        pivot = k + int(np.argmax(np.abs(a[k:, k]))) if pivots else k
        for each in (order, a):
            each[[k, pivot]] = each[[pivot, k]]
        if a[k, k] != 0:
            a[k + 1 :, k] = a[k + 1 :, k] * (a.dtype.type(1) / a[k, k]) if reciprocal else a[k + 1 :, k] / a[k, k]
            a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    lower = np.tril(a, -1)[:, :rank] + np.eye(m, rank, dtype=a.dtype)
    return np.eye(m, dtype=a.dtype)[order].T, lower, np.triu(a)[:rank]


def by_rows(a: Any) -> Triple:
    """Crout's sums of products, column after column."""
    (m, n), order, a, rank = a.shape, np.arange(len(a)), a.copy(), min(a.shape)
    for j in range(n):
        for i in range(1, m):
            steps = min(i, j)
            a[i, j] -= a[i, :steps] @ a[:steps, j]
        if j < rank:
            pivot = j + int(np.argmax(np.abs(a[j:, j])))
            for each in (order, a):
                each[[j, pivot]] = each[[pivot, j]]
            if a[j, j] != 0:
                a[j + 1 :, j] /= a[j, j]
    lower = np.tril(a, -1)[:, :rank] + np.eye(m, rank, dtype=a.dtype)
    return np.eye(m, dtype=a.dtype)[order].T, lower, np.triu(a)[:rank]


def in_bfloat16(a: Any) -> Triple:
    bits = a.astype(np.float32).view(np.uint32) & 0xFFFF0000
    return by_columns(bits.view(np.float32).astype(a.dtype))


WRONG: dict[str, Callable[[Any], Triple]] = {
    "no pivots": lambda a: by_columns(a, pivots=False),
    "the transposed permutation": with_change(by_columns, 0, lambda p: p.T),
    "no permutation": with_change(by_columns, 0, lambda p: p * 0.5),
    "two ones in a row": with_change(by_columns, 0, lambda p: np.maximum(p, np.eye(len(p)))),
    "pivots in L": with_change(by_columns, 1, lambda x: x * 1.001),
    "an element above the ones": with_change(by_columns, 1, lambda x: x + 1e-30 * np.triu(np.ones(x.shape), 1)),
    "an element below the diagonal": with_change(by_columns, 2, lambda x: x + 1e-30 * np.tri(len(x), x.shape[1], k=-1)),
    "U that is too large": with_change(by_columns, 2, lambda x: x * 1.0001),
    "a matrix in bfloat16": in_bfloat16,
    "not a number": with_change(by_columns, 2, lambda x: x * np.nan),
}


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize(
    "evaluate", [by_columns, by_rows, lambda a: by_columns(a, reciprocal=False)], ids=["right", "Crout", "quotients"]
)
def test_evaluations_are_right_whatever_the_condition(evaluate: Callable[[Any], Triple], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for m, n in [(1, 1), (2, 2), (5, 3), (3, 5), (8, 8), (14, 14), (0, 2), (2, 0)]:
        signs = np.where(rng.standard_normal((m, n)) > 0, 1.0, -1.0).astype(dtype)
        graded = (rng.standard_normal((m, n)) * np.geomspace(1, ERRORS[dtype].unit, n)).astype(dtype)
        for a in [signs, graded, *(of_condition(rng, m, n, dtype, x) for x in (1.0, 1e3, 1 / ERRORS[dtype].unit))]:
            p, lower, upper = evaluate(a)
            assert hold(a, (p, lower, upper)) == (0, p.size + lower.size + upper.size, "")


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("shape", [(4, 4), (6, 4), (4, 6)])
def test_faults_are_refused(fault: str, dtype: Any, shape: tuple[int, int]) -> None:
    m, n = shape
    a = np.random.default_rng(2).standard_normal(shape).astype(dtype)
    p = by_columns(a)[0]
    assert (p != p.T).any()
    refusals, judged, text = hold(a, WRONG[fault](a))
    assert refusals > 0
    assert text
    if "permutation" not in fault and "row" not in fault:
        assert judged >= min(m, n) * n


def test_factors_of_other_matrices_are_refused() -> None:
    a = np.random.default_rng(2).standard_normal((4, 4))
    refusals, judged, text = hold(a, by_columns(a + 1e-12))
    assert refusals > 0
    assert judged == 48
    assert text.startswith("P L U - A at [")


def test_a_factor_alone_is_not_judged() -> None:
    a = np.random.default_rng(3).standard_normal((4, 4))
    for law, values in zip(laws_of(a), by_columns(a), strict=True):
        assert law.accepts(values).all()
        assert not law.refutable(values).any()
        assert not law.accepts(values * 2.0).all() or law.role == "U"
    assert not laws_of(a)[0].accepts(np.eye(4)[[0, 0, 1, 2]]).all()


def test_results_of_singular_matrices_may_break_down() -> None:
    a = np.ones((3, 3))
    assert hold(a, (np.eye(3), np.full((3, 3), np.nan), np.ones((3, 3)) * np.nan))[:2] == (0, 0)
    assert hold(np.eye(3), (np.eye(3), np.full((3, 3), np.nan), np.eye(3)))[0] > 0


def test_a_matrix_between_ends_widens_the_law() -> None:
    a = np.random.default_rng(4).standard_normal((4, 4))
    values = by_columns(a + 1e-6)
    for width, is_right in ((0.0, False), (1e-8, False), (1e-6, True)):
        ends = a - width, a + width
        laws = [EliminationFactorResidual(role, ends, ERRORS[np.float64]) for role in "PLU"]
        together = join_factors(laws, list(values))
        assert all(law.accepts(x).all() for law, x in zip(together, values, strict=True)) == is_right


def pack(a: Any, values: Triple) -> tuple[Any, Any]:
    """L and U in one matrix, and the exchanges that make the permutation."""
    p, lower, upper = values
    (m, n), rank = a.shape, min(a.shape)
    order, goal, pivots = list(range(m)), np.argmax(p.T, axis=1), np.zeros((rank, 1))
    for k in range(rank):
        row = order.index(goal[k])
        pivots[k], order[k], order[row] = row + 1, order[row], order[k]
    packed = np.zeros((m, n), dtype=a.dtype)
    packed[:, :rank] += np.tril(lower, -1)
    packed[:rank] += np.triu(upper)
    return packed, pivots


def hold_packed(a: Any, packed: Any, pivots: Any) -> tuple[int, int, str]:
    ends = (a.astype(np.float64),) * 2
    laws = [EliminationFactorResidual(role, ends, ERRORS[a.dtype.type]) for role in ("LU", "pivots")]
    return hold_factors(laws, [packed, pivots])


@pytest.mark.parametrize("dtype", ERRORS)
def test_triangles_in_one_matrix_are_right_as_they_are_apart(dtype: Any) -> None:
    rng = np.random.default_rng(6)
    for m, n in [(1, 1), (5, 3), (3, 5), (8, 8)]:
        for condition in (1.0, 1e3, 1 / ERRORS[dtype].unit):
            a = of_condition(rng, m, n, dtype, condition)
            for evaluate in (by_columns, by_rows):
                packed, pivots = pack(a, evaluate(a))
                assert hold_packed(a, packed, pivots) == (0, packed.size + pivots.size, "")


@pytest.mark.parametrize("dtype", ERRORS)
def test_faults_of_packed_triangles_are_refused(dtype: Any) -> None:
    a = np.random.default_rng(7).standard_normal((4, 4)).astype(dtype)
    packed, pivots = pack(a, by_columns(a))
    assert (pivots[:, 0] != np.arange(1, 5)).any()
    for values, rows in (
        (packed * dtype(1.001), pivots), (packed.T, pivots), (packed * np.nan, pivots), (packed, pivots - 1),
        (packed, pivots * 0 + 5), (packed, pivots + 0.5), (packed, np.arange(1.0, 5)[:, None]),
        (pack(a, by_columns(a, pivots=False))[0], np.arange(1.0, 5)[:, None]), (pack(a, in_bfloat16(a))[0], pivots),
    ):  # fmt: skip
        refusals, _, text = hold_packed(a, values, rows)
        assert refusals > 0
        assert text
    np.testing.assert_array_equal(order_of([3, 3, 3], 4), [2, 0, 1, 3])
