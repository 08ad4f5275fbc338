"""Determinants and their logarithms: those of right evaluations are accepted, and planted faults are refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound.laws.determinants import _facts, determinants
from tests.oracles.laws.residual_errors import ERRORS, of_condition


def law_of(a: Any, role: str = "det", width: float = 0.0) -> Any:
    """The least and the largest result of evaluations."""
    own, errors = a.astype(np.float64), ERRORS[a.dtype.type]
    return determinants(role, (own - width, own + width), errors, 4 * errors.unit)


def pivots_of(a: Any) -> Any:
    """Those of an elimination, the first with the sign of the exchanges."""
    a, sign = a.copy(), 1
    for k in range(len(a)):
        row = k + int(np.argmax(np.abs(a[k:, k])))
        sign *= 1 if row == k else -1
        a[[k, row]] = a[[row, k]]
        a[k + 1 :, k:] -= np.outer(a[k + 1 :, k] / a[k, k], a[k, k:])
    return np.diag(a) * np.where(np.arange(len(a)) == 0, sign, 1).astype(a.dtype)


def by_elimination(a: Any) -> Any:
    return np.prod(pivots_of(a))


def by_reflections(a: Any) -> Any:
    q, r = np.linalg.qr(a)
    return np.prod(np.diag(r)) * a.dtype.type(np.round(np.linalg.det(q.astype(np.float64))))


def by_sums(a: Any) -> Any:
    """Of all products of an element of each row and column, in up to four rows."""
    total = a.dtype.type(0)
    for order in permutations(range(len(a))):
        product = a.dtype.type(np.round(np.linalg.det(np.eye(len(a))[list(order)])))
        for i, j in enumerate(order):
            product = product * a[i, j]
        total = total + product
    return total


def hold(law: Any, value: Any) -> tuple[bool, bool]:
    """Whether a value is right, and whether it is judged."""
    low, high = law
    judged = bool(np.isfinite(law).all())
    return not judged or bool(low <= float(value) <= high), judged


@pytest.mark.fast_cases("float32")
@pytest.mark.parametrize("dtype", ERRORS)
def test_evaluations_are_right_whatever_the_condition(dtype: Any) -> None:
    rng, judged, count = np.random.default_rng(0), 0, 0
    for n in (1, 2, 3, 4, 6, 10, 14):
        for condition in (1.0, 1e2, 1e4, 0.01 / ERRORS[dtype].unit):
            for a in (of_condition(rng, n, n, dtype, condition), rng.standard_normal((n, n)).astype(dtype)):
                pivots = pivots_of(a)
                sizes = np.log(np.abs(pivots)).sum()
                for role, value in (
                    ("det", by_elimination(a)), ("det", by_reflections(a)), ("log", sizes),
                    ("log", np.log(np.abs(by_reflections(a)))), ("sign", np.prod(np.sign(pivots))),
                    *([("det", by_sums(a))] if n < 5 else []),
                ):  # fmt: skip
                    right, is_judged = hold(law_of(a, role), value)
                    assert right
                    judged, count = judged + is_judged, count + 1
    assert judged > 0.75 * count


WRONG: dict[str, Callable[[Any], tuple[str, Any]]] = {
    "the other sign": lambda a: ("det", -by_elimination(a)),
    "one pivot less": lambda a: ("det", np.prod(pivots_of(a)[1:])),
    "0.1 % too large": lambda a: ("det", by_elimination(a) * a.dtype.type(1.001)),
    "of bfloat16": lambda a: (
        "det", by_elimination((a.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)),
    ),
    "not a number": lambda a: ("det", np.nan),
    "a sign of zero": lambda a: ("sign", 0.0),
    "the other sign alone": lambda a: ("sign", -np.prod(np.sign(pivots_of(a)))),
    "a logarithm to the base 2": lambda a: ("log", np.log2(np.abs(pivots_of(a))).sum()),
    "a logarithm that is off by 0.001": lambda a: ("log", np.log(np.abs(pivots_of(a))).sum() + 1e-3),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("dtype", ERRORS)
def test_faults_are_refused(dtype: Any, fault: str) -> None:
    a = of_condition(np.random.default_rng(3), 4, 4, dtype, 5.0)
    a = a if by_elimination(a) < 0 else a[[1, 0, 2, 3]]
    role, value = WRONG[fault](a)
    assert hold(law_of(a, role), value) == (False, True)


def test_what_is_right_by_a_hair_passes() -> None:
    a = of_condition(np.random.default_rng(4), 3, 3, np.float64, 5.0)
    facts = _facts("det", (a, a), (), ERRORS[np.float64])
    assert facts is not None
    exact, share, _ = facts
    assert hold(law_of(a), float(exact) * (1 + 0.99 * share)) == (True, True)
    assert hold(law_of(a), float(exact) * (1 + 1.01 * share)) == (False, True)


def test_a_matrix_between_ends_widens_the_law() -> None:
    a = of_condition(np.random.default_rng(5), 4, 4, np.float64, 5.0)
    value = by_elimination(a + 1e-6 * np.sign(np.linalg.inv(a).T) * np.sign(np.linalg.det(a)))
    assert [hold(law_of(a, width=width), value)[0] for width in (0.0, 1e-8, 1e-6)] == [False, False, True]


def test_what_is_not_known_is_not_judged() -> None:
    singular, huge = np.ones((2, 2)), np.eye(4) * 2.0**300
    for a in (singular, huge, np.array([[np.inf]])):
        assert hold(law_of(a), 3.0) == (True, False)
    assert hold(law_of(huge, "log"), 1200 * np.log(2.0)) == (True, True)
    assert hold(law_of(huge, "log"), np.inf) == (False, True)
    nothing = np.zeros((0, 0))
    assert hold(law_of(nothing), 1.0) == (True, True)
    assert hold(law_of(nothing), 0.0) == (False, True)
