"""Solutions and inverses by known factors: what substitutions give is right, and planted faults are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound.laws.substitutions import FactorInverseResidual, SubstitutionResidual
from tests.oracles.laws.residual_errors import ERRORS, of_condition


def solution_of(lower: Any, upper: Any, b: Any, width: float = 0.0) -> SubstitutionResidual:
    first, second, right = (each.astype(np.float64) for each in (lower, upper, b))
    factors = (first - width * np.abs(first), first + width * np.abs(first)), (second, second)
    return SubstitutionResidual(factors, (right, right), (True, False), ERRORS[lower.dtype.type])


def inverse_of(lower: Any) -> FactorInverseResidual:
    own = lower.astype(np.float64)
    return FactorInverseResidual((own, own), True, ERRORS[lower.dtype.type])


def substitute(triangle: Any, b: Any, reciprocal: bool = False) -> Any:
    """By rows; of a lower triangle, or an upper one if an element stands above the diagonal."""
    n, x = len(triangle), b.copy()
    one = triangle.dtype.type(1)
    for i in range(n)[:: -1 if np.triu(triangle, 1).any() else 1]:
        rest = x[i] - sum((triangle[i, j] * x[j] for j in range(n) if j != i and triangle[i, j]), x[i] * 0)
        x[i] = rest * (one / triangle[i, i]) if reciprocal else rest / triangle[i, i]
    return x


def by_columns(triangle: Any, b: Any) -> Any:
    n, x = len(triangle), b.copy()
    for i in range(n)[:: -1 if np.triu(triangle, 1).any() else 1]:
        x[i] /= triangle[i, i]
        others = np.arange(n) != i
        x[others] -= triangle[others, i, None] * x[i]
    return x


def factors(rng: Any, n: int, dtype: Any, condition: float) -> tuple[Any, Any]:
    """L and U of an elimination of any matrix."""
    a = of_condition(rng, n, n, np.float64, condition)
    lower, upper = np.eye(n), a.copy()
    for k in range(n):
        row = k + int(np.argmax(np.abs(upper[k:, k])))
        upper[[k, row]], lower[[k, row], :k] = upper[[row, k]], lower[[row, k], :k]
        lower[k + 1 :, k] = upper[k + 1 :, k] / upper[k, k]
        upper[k + 1 :] -= lower[k + 1 :, k, None] * upper[k]
    return lower.astype(dtype), np.triu(upper).astype(dtype)


@pytest.mark.fast_cases("float32")
@pytest.mark.parametrize("dtype", ERRORS)
def test_substitutions_are_right_whatever_the_condition(dtype: Any) -> None:
    rng, refusals, elements, judged = np.random.default_rng(0), 0, 0, 0
    for n in (1, 2, 3, 5, 9, 14):
        for condition in (1.0, 1e3, 0.1 / ERRORS[dtype].unit):
            lower, upper = factors(rng, n, dtype, condition)
            b, ones = rng.standard_normal((n, 2)).astype(dtype), np.eye(n, dtype=dtype)
            law, inverse = solution_of(lower, upper, b), inverse_of(lower)
            half = substitute(lower, ones)
            for ways in ((substitute, substitute), (by_columns, by_columns), (by_columns, substitute)):
                x = ways[1](upper, ways[0](lower, b))
                v = ways[1](lower.T.copy(), ways[0](lower, ones))
                for own, values in ((law, x), (inverse, v), (inverse, v.T), (inverse, half.T @ half)):
                    refusals += int(np.count_nonzero(~own.accepts(values)))
                    judged += int(np.count_nonzero(own.refutable(values)))
                    elements += values.size
    assert refusals == 0
    assert judged == elements


WRONG: dict[str, Callable[[Any, Any, Any], Any]] = {
    "factors exchanged": lambda lower, upper, b: substitute(lower, substitute(upper, b)),
    "one factor": lambda lower, upper, b: substitute(upper, b),
    "of float16": lambda lower, upper, b: substitute(
        upper.astype(np.float16).astype(b.dtype), substitute(lower.astype(np.float16).astype(b.dtype), b)
    ),
    "0.01 % too large": lambda lower, upper, b: substitute(upper, substitute(lower, b)) * b.dtype.type(1.0001),
    "not a number": lambda lower, upper, b: b * np.nan,
}


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("dtype", ERRORS)
def test_faults_are_refused(dtype: Any, fault: str) -> None:
    rng = np.random.default_rng(1)
    lower, upper = factors(rng, 5, dtype, 10.0)
    b, ones = rng.standard_normal((5, 2)).astype(dtype), np.eye(5, dtype=dtype)
    cases: list[tuple[Any, Any]] = [(solution_of(lower, upper, b), WRONG[fault](lower, upper, b))]
    cases.append((inverse_of(lower), WRONG[fault](lower, lower.T.copy(), ones)))
    for law, values in cases:
        assert not law.accepts(values).all()
        assert ("overflows" if fault == "not a number" else "F G X - B at [") in law.explain(values)


def test_what_is_right_by_a_hair_passes() -> None:
    # Of [2] [3] x = 6, γ is that of a quotient, which is two units, and both add up.
    lower, upper, b = (np.array([[x]], dtype=np.float32) for x in (2.0, 3.0, 6.0))
    law = solution_of(lower, upper, b)
    share = float((1 + (law.gamma or 0)) ** 2 - 1)
    assert law.accepts(np.array([[1 + 0.99 * share]])).all()
    assert not law.accepts(np.array([[1 + 1.01 * share]])).all()


def test_factors_between_ends_widen_the_law() -> None:
    lower, upper = factors(np.random.default_rng(2), 4, np.float64, 10.0)
    b = np.ones((4, 1))
    x = substitute(upper, substitute(lower * (1 + 1e-6), b))
    assert [bool(solution_of(lower, upper, b, width).accepts(x).all()) for width in (0.0, 1e-8, 6e-7, 1e-6)] == [
        0,
        0,
        0,
        1,
    ]


def test_what_may_be_singular_or_overflow_is_not_judged() -> None:
    b = np.ones((2, 1))
    singular = solution_of(np.eye(2), np.diag([1.0, 0.0]), b)
    assert not singular.refutable(b).any()
    tiny = np.diag([1.0, 2.0**-700])
    law = solution_of(tiny, tiny, b)
    assert law.accepts(np.array([[1.0], [np.inf]])).all()
    assert not solution_of(np.eye(2), np.eye(2), b).accepts(b * np.inf).any()
    ill = np.eye(3) - 1e9 * np.tri(3, k=-1)
    assert not inverse_of(ill.astype(np.float32)).refutable(np.eye(3)).any()
