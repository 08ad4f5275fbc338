"""Least squares and pseudoinverses: what right evaluations give is accepted, and planted faults are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound.laws.least_squares import LeastNormResidual, LeastSquaresResidual, PseudoinverseResidual
from tests.oracles.laws.residual_errors import ERRORS, law_between, law_of_inverse, of_condition

SHAPES = [(1, 1), (3, 1), (2, 2), (5, 3), (7, 7), (10, 4)]


def law_of(a: Any, b: Any, width: float = 0.0) -> LeastSquaresResidual:
    law: LeastSquaresResidual = law_between(LeastSquaresResidual, a, b, width)
    return law


def inverse_of(a: Any) -> PseudoinverseResidual:
    law: PseudoinverseResidual = law_of_inverse(PseudoinverseResidual, a)
    return law


def shortest_of(a: Any, b: Any, width: float = 0.0) -> LeastNormResidual:
    law: LeastNormResidual = law_between(LeastNormResidual, a, b, width)
    return law


def by_reflections(a: Any, b: Any) -> Any:
    q, r = np.linalg.qr(a)
    return np.linalg.solve(r, q.T @ b)


def by_rotations(a: Any, b: Any) -> Any:
    """Givens', of neighbours from below."""
    (m, n), work = a.shape, np.hstack([a, b])
    for j in range(n):
        for i in range(m - 1, j, -1):
            size = np.hypot(work[i - 1, j], work[i, j])
            if size:
                c, s = work[i - 1, j] / size, work[i, j] / size
                work[[i - 1, i]] = np.array([[c, s], [-s, c]], dtype=a.dtype) @ work[[i - 1, i]]
    x = work[:n, n:].copy()
    for i in range(n)[::-1]:
        x[i] = (x[i] - work[i, i + 1 : n] @ x[i + 1 :]) / work[i, i]
    return x


def by_singular_values(a: Any, b: Any) -> Any:
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return vh.T @ ((u.T @ b) / s[:, None])


def inverse_by_singular_values(a: Any) -> Any:
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return (vh.T / s) @ u.T


def by_normal_equations(a: Any, b: Any) -> Any:
    return np.linalg.solve(a.T @ a, a.T @ b)


@pytest.mark.parametrize("dtype", ERRORS)
def test_evaluations_are_right(dtype: Any) -> None:
    rng, judged, elements = np.random.default_rng(0), 0, 0
    for m, n in SHAPES:
        for condition in (1.0, 10.0, 1e-3 / ERRORS[dtype].unit):
            for far in (0.0, 1.0):
                a = of_condition(rng, m, n, dtype, condition)
                b = (a @ rng.standard_normal((n, 2)) + far * rng.standard_normal((m, 2))).astype(dtype)
                ones = np.eye(m, dtype=dtype)
                cases: list[tuple[Any, Any]] = [(inverse_of(a), inverse_by_singular_values(a))]
                for evaluate in (by_reflections, by_rotations, by_singular_values):
                    cases += [(law_of(a, b), evaluate(a, b)), (inverse_of(a), evaluate(a, ones))]
                for law, values in cases:
                    assert law.accepts(values).all(), law.explain(values)
                    judged, elements = judged + int(law.refutable(values).sum()), elements + values.size
    assert judged > 0.6 * elements


WRONG: dict[str, Callable[[Any, Any], Any]] = {
    "of the first rows": lambda a, b: np.linalg.solve(a[:3], b[:3]),
    "of another matrix": lambda a, b: by_reflections(a[::-1], b),
    "1 % too large": lambda a, b: by_reflections(a, b) * a.dtype.type(1.01),
    "of bfloat16": lambda a, b: by_reflections(
        (a.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(a.dtype), b
    ),
    "ridge": lambda a, b: np.linalg.solve(a.T @ a + a.dtype.type(1e-2) * np.eye(3, dtype=a.dtype), a.T @ b),
    "not a number": lambda a, b: by_reflections(a, b) * np.nan,
}


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("dtype", ERRORS)
def test_faults_are_refused(dtype: Any, fault: str) -> None:
    rng = np.random.default_rng(1)
    a, b = of_condition(rng, 5, 3, dtype, 5.0), rng.standard_normal((5, 2)).astype(dtype)
    for law, right in ((law_of(a, b), b), (inverse_of(a), np.eye(5, dtype=dtype))):
        values = WRONG[fault](a, right)
        assert law.refutable(values).all()
        assert not law.accepts(values).all()
        assert law.explain(values)


def test_normal_equations_are_refused_where_they_lose_digits() -> None:
    rng = np.random.default_rng(2)
    a = of_condition(rng, 8, 4, np.float64, 1e6)
    b = a @ rng.standard_normal((4, 1))
    assert law_of(a, b).accepts(by_reflections(a, b)).all()
    assert "from the nearest point" in law_of(a, b).explain(by_normal_equations(a, b))
    assert inverse_of(a).accepts(np.linalg.pinv(a)).all()
    assert "A+ A - I" in inverse_of(a).explain(by_normal_equations(a, np.eye(8)))


def test_what_is_right_by_a_hair_passes() -> None:
    # Of one unknown and A = e, the first element alone is judged: x is right to a share of the errors of both.
    a, b = np.array([[1.0], [0.0]]), np.array([[1.0], [0.0]])
    law = law_of(a, b)
    facts = law.facts(())
    assert facts is not None
    share = next(x for x in np.geomspace(1e-16, 1e-10, 4000) if not law.accepts(np.array([[1 + x]])).all())
    moved = [float(each.columns[0] + each.right) for each in law._moves(facts)]
    assert 0.99 < share / max(moved) < 1.02
    assert law.accepts(np.array([[1 + 0.98 * share]])).all()


def test_a_matrix_between_ends_widens_the_law() -> None:
    rng = np.random.default_rng(3)
    a, b = of_condition(rng, 5, 3, np.float64, 5.0), rng.standard_normal((5, 1))
    x = by_reflections(a + 1e-6 * np.sign(rng.standard_normal(a.shape)), b)
    assert [bool(law_of(a, b, width).accepts(x).all()) for width in (0.0, 1e-9, 1e-6)] == [False, False, True]


def test_what_may_be_of_lower_rank_is_not_judged() -> None:
    a = np.ones((4, 2))
    b = np.arange(4.0)[:, None]
    assert not law_of(a, b).refutable(np.zeros((2, 1))).any()
    near = of_condition(np.random.default_rng(4), 4, 2, np.float64, 100.0)
    ends = (near, near), (b, b)
    for tolerance, is_judged in (((0.0, 1e-3), True), ((0.0, 0.02), False), ((0.02, 0.0), False)):
        law = LeastSquaresResidual(*ends, ERRORS[np.float64], tolerance)
        assert law.refutable(np.zeros((2, 1))).all() == is_judged
    assert law_of(near * 1e-300, b).accepts(np.full((2, 1), np.inf)).all()


def shortest_by_reflections(a: Any, b: Any) -> Any:
    q, r = np.linalg.qr(a.T)
    return q @ np.linalg.solve(r.T, b)


def shortest_by_both_sides(a: Any, b: Any) -> Any:
    q, r = np.linalg.qr(a[:, ::-1])
    return shortest_by_reflections(r, q.T @ b)[::-1]


SHORTEST = (shortest_by_reflections, shortest_by_both_sides, by_singular_values)


@pytest.mark.parametrize("dtype", ERRORS)
def test_evaluations_of_the_shortest_solution_are_right(dtype: Any) -> None:
    rng, judged, elements = np.random.default_rng(5), 0, 0
    for m, n in [(1, 2), (1, 5), (2, 3), (4, 9), (6, 7)]:
        for condition in (1.0, 10.0, 1e-3 / ERRORS[dtype].unit):
            for scale in (np.ones((m, 1)), np.geomspace(1.0, 100.0, m)[:, None]):
                a = (scale * of_condition(rng, m, n, np.float64, condition)).astype(dtype)
                b = rng.standard_normal((m, 2)).astype(dtype)
                for evaluate in SHORTEST:
                    law, values = shortest_of(a, b), evaluate(a, b)
                    assert law.accepts(values).all(), law.explain(values)
                    judged, elements = judged + int(law.refutable(values).sum()), elements + values.size
    assert judged > 0.6 * elements


@pytest.mark.parametrize("dtype", ERRORS)
def test_other_solutions_and_lengths_are_refused(dtype: Any) -> None:
    rng = np.random.default_rng(6)
    a, b = of_condition(rng, 3, 5, dtype, 3.0), rng.standard_normal((3, 2)).astype(dtype)
    law, x = shortest_of(a, b), shortest_by_reflections(a, b)
    outside = np.linalg.qr(a.T.astype(np.float64), mode="complete")[0][:, 3:4]
    longer = (x + 1e-3 * np.linalg.norm(x, axis=0) * outside).astype(dtype)
    assert "from the space of A's rows" in law.explain(longer)
    mirror = np.vstack([np.linalg.solve(a[:, :3].T, b), np.zeros((2, 2), dtype=dtype)])
    for wrong in (x * dtype(1.001), mirror, shortest_by_reflections(a[::-1], b), x * np.nan):
        assert law.refutable(wrong).all()
        assert not law.accepts(wrong).all()
        assert law.explain(wrong)


def test_normal_equations_of_the_shortest_solution_are_refused_where_they_lose_digits() -> None:
    rng = np.random.default_rng(7)
    a, b = of_condition(rng, 4, 8, np.float64, 1e6), rng.standard_normal((4, 1))
    assert shortest_of(a, b).accepts(shortest_by_reflections(a, b)).all()
    assert "of A X - B" in shortest_of(a, b).explain(a.T @ np.linalg.solve(a @ a.T, b))


def test_a_matrix_between_ends_widens_the_law_of_the_shortest_solution() -> None:
    rng = np.random.default_rng(8)
    a, b = of_condition(rng, 3, 5, np.float64, 5.0), rng.standard_normal((3, 1))
    x = shortest_by_reflections(a + 1e-6 * np.sign(rng.standard_normal(a.shape)), b)
    assert [bool(shortest_of(a, b, width).accepts(x).all()) for width in (0.0, 1e-9, 1e-6)] == [False, False, True]


def test_what_pivots_may_count_as_zero_is_not_judged() -> None:
    a, b = of_condition(np.random.default_rng(9), 3, 5, np.float64, 100.0), np.ones((3, 1))
    # The least of the columns that pivots choose may be smaller by 5.2 than 0.01.
    for tolerance, is_judged in (((0.0, 1.8e-3), True), ((0.0, 2e-3), False), ((2e-3, 0.0), False)):
        law = LeastNormResidual((a, a), (b, b), ERRORS[np.float64], tolerance)
        assert law.refutable(np.zeros((5, 1))).all() == is_judged
