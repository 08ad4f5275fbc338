"""Orthogonal and triangular factors: those of right evaluations are accepted, and every planted fault is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound.laws.orthogonal import OrthogonalFactorResidual
from tests.oracles.laws.residual_errors import ERRORS, hold_factors, of_condition

Pair = tuple[Any, Any]


def factors_of(a: Any, complete: bool = False) -> Pair:
    ends, errors = (a.astype(np.float64), a.astype(np.float64)), ERRORS[a.dtype.type]
    m, n = a.shape
    columns = m if complete else min(m, n)
    shapes = {"Q": (m, columns), "R": (columns, n)}
    q, r = (OrthogonalFactorResidual(role, shape, ends, errors) for role, shape in shapes.items())
    return q, r


def hold(a: Any, values: Pair, complete: bool = False) -> tuple[int, int, str]:
    return hold_factors(factors_of(a, complete), values)


def by_reflections(a: Any, skips: int = -1) -> Pair:
    """`skips`: the reflection that is not applied to Q."""
    (m, n), r, q = a.shape, a.copy(), np.eye(len(a), dtype=a.dtype)
    for k in range(min(m, n)):
        v = r[k:, k].copy()
        v[0] += np.copysign(np.sqrt(np.sum(v * v)), v[0])
        if not v.any():
            continue
        tau = a.dtype.type(2) / np.sum(v * v)
        r[k:] -= tau * np.outer(v, v @ r[k:])
        r[k + 1 :, k] = 0
        if k != skips:
            q[:, k:] -= tau * np.outer(q[:, k:] @ v, v)
    k = min(m, n)
    return q[:, :k], r[:k]


def by_gram_schmidt_twice(a: Any) -> Pair:
    k = min(a.shape)
    q, r = np.zeros((len(a), k), a.dtype), np.zeros((k, a.shape[1]), a.dtype)
    for j in range(a.shape[1]):
        rest = a[:, j].copy()
        for _ in range(2):
            part = q[:, :j].T @ rest
            rest, r[: min(j, k), j] = rest - q[:, :j] @ part, r[: min(j, k), j] + part
        if j < k:
            r[j, j] = np.sqrt(np.sum(rest * rest))
            q[:, j] = rest / r[j, j]
    return q, r


def by_numpy(a: Any) -> Pair:
    q, r = np.linalg.qr(a)
    return q, r


def spoil(change: Callable[[Any, Any], Any]) -> Callable[[Any], Pair]:
    def spoiled(a: Any) -> Pair:
        q, r = by_numpy(a)
        q, r = q.copy(), r.copy()
        change(q, r)
        return q, r

    return spoiled


def _negate_row(q: Any, r: Any) -> None:
    r[1] *= -1


def _negate_column(q: Any, r: Any) -> None:
    q[:, 2] *= -1


def _leave_element(q: Any, r: Any) -> None:
    r[3, 1] = 1e-30


def _lengthen(q: Any, r: Any) -> None:
    q[:, 1] *= 1.01
    r[1] /= 1.01


def _turn(q: Any, r: Any) -> None:
    q[:, [0, 1]], r[[0, 1]] = q[:, [1, 0]], r[[1, 0]]
    r[1, 0] = 0


def in_bfloat16(a: Any) -> Pair:
    bits = a.astype(np.float32).view(np.uint32) & 0xFFFF0000
    return by_numpy(bits.view(np.float32).astype(a.dtype))


WRONG: dict[str, Callable[[Any], Pair]] = {
    "a row of R of the other sign": spoil(_negate_row),
    "a column of Q of the other sign": spoil(_negate_column),
    "an element below the diagonal": spoil(_leave_element),
    "a column of Q that is too long": spoil(_lengthen),
    "exchanged columns": spoil(_turn),
    "a missing reflection": lambda a: by_reflections(a, skips=1),
    "a matrix in bfloat16": in_bfloat16,
    "not a number": lambda a: (by_numpy(a)[0] * np.nan, by_numpy(a)[1]),
}


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("evaluate", [by_numpy, by_reflections, by_gram_schmidt_twice])
def test_evaluations_are_right_whatever_the_condition(evaluate: Callable[[Any], Pair], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for m, n in [(1, 1), (2, 2), (5, 3), (6, 6), (3, 5), (12, 12), (12, 1)]:
        for condition in np.geomspace(1.0, 1e-3 / ERRORS[dtype].unit, 4):
            a = of_condition(rng, m, n, dtype, condition)
            q, r = evaluate(a)
            assert hold(a, (q, r)) == (0, q.size + r.size, "")
            for law, values in zip(factors_of(a), (q, r), strict=True):
                assert law.accepts(values).all(), law.explain(values)
            if evaluate is by_numpy:
                assert hold(a, np.linalg.qr(a, mode="complete"), complete=True)[0] == 0


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("fault", WRONG)
def test_faults_are_refused(fault: str, dtype: Any) -> None:
    a = np.random.default_rng(1).standard_normal((6, 4)).astype(dtype)
    refusals, judged, text = hold(a, WRONG[fault](a))
    assert refusals > 0
    assert judged == 6 * 4 + 4 * 4
    assert text


@pytest.mark.parametrize("fault", ["exchanged columns", "a missing reflection", "a matrix in bfloat16"])
def test_one_factor_alone_is_judged(fault: str) -> None:
    a = np.random.default_rng(1).standard_normal((6, 4))
    q, r = WRONG[fault](a)
    laws = factors_of(a)
    assert not (laws[0].accepts(q).all() and laws[1].accepts(r).all())


def test_matrices_whose_squares_underflow_are_not_judged() -> None:
    a = np.full((3, 3), 1e-25, dtype=np.float32)
    assert hold(a, (np.eye(3), np.eye(3)))[:2] == (0, 0)
