"""Legal evaluations: every primitive has one, they use what a contract allows, and see a bound that is too tight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound.contract import Contract, contract
from opassay.oracles.bound.rounding import Ball, balls
from opassay.oracles.bound.rounding.ball import RULES
from opassay.oracles.bound.terms import terms
from opassay.reference.array import PRIMITIVES, sigmoid, store
from opassay.reference.formats import BINARY32, ulp_array
from workshop.random_evaluation import Working, evaluate_at_random
from workshop.random_evaluation.evaluation import primitives
from workshop.random_evaluation.orders import along_tree

Formula = Callable[..., Any]
_X, _Y = (np.float64(np.float32(np.random.default_rng(i).uniform(0.5, 4.0, 4000))) for i in (1, 2))


def _draw(formula: Formula, allowed: Contract, *values: Any) -> list[Any]:
    return [evaluate_at_random(formula, values, allowed, np.random.default_rng(seed))[0] for seed in range(24)]


def _ratio(formula: Formula, allowed: Contract, *values: Any) -> float:
    """The largest error over its bound."""
    (ball,) = balls(formula, list(values), allowed)
    errors = [np.abs(computed - ball.centre) for computed in _draw(formula, allowed, *values)]
    return float(np.max([np.divide(error, ball.radii()) for error in errors]))


def test_every_primitive_has_an_evaluation() -> None:
    assert primitives() == PRIMITIVES


@pytest.mark.parametrize(
    ("formula", "values"),
    [
        (lambda x: 1.0 / x, (_X,)), (lambda x, y: x / y, (_X, _Y)), (np.exp, (_X,)), (np.tanh, (_X,)),
        (lambda x: np.power(x, -0.75), (_X,)), (lambda x, y: x * y + x, (_X, _Y)), (np.log1p, (_X,)),
        (lambda x: np.sum(np.reshape(x, (-1, 4)), -1), (_X,)), (sigmoid, (-4.0 * _X,)),
        (lambda x, y: np.logaddexp(x, -y), (_X, _Y)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("preset", ["strict", "tensor_core", "fast_math", "strict+approximate"])
def test_evaluations_come_near_the_boundary_and_not_beyond(formula: Formula, values: Any, preset: str) -> None:
    assert 0.5 < _ratio(formula, terms(preset).contract("float32", "cuda"), *values) <= 1.0


def test_the_choices_of_a_contract_are_all_taken() -> None:
    plain = contract("float32")
    product = np.float32(_X) * np.float32(_Y)
    separate = product - np.float32(4.0)
    draws = _draw(lambda x, y: x * y - 4.0, plain, _X, _Y)
    assert any(np.array_equal(values, separate) for values in draws)
    fused = (_X * _Y - 4.0).astype(np.float32)
    assert any(np.array_equal(values, fused) for values in draws)
    stored = _draw(lambda x: store(x / 3.0), contract("bfloat16"), _X)
    assert len({values.tobytes() for values in stored}) > 2
    tiny = _draw(lambda x: x * 1.5, terms("fast_math").contract("float32", "cuda"), np.full(1, 1e-40))
    assert {bool(np.all(values == 0.0)) for values in tiny} == {True, False}
    factors = _draw(lambda x: x @ x, terms("tensor_core").contract("float32", "cuda"), np.ravel(_X)[:4].reshape(2, 2))
    assert len({values.tobytes() for values in factors}) > 4


def test_sums_run_along_many_trees_and_all_have_every_term() -> None:
    values = np.float32(np.random.default_rng(5).standard_normal((37, 50)))
    results = set()
    for seed in range(20):
        working = Working(contract("float32"), np.random.default_rng(seed))
        total = along_tree(values, working, np.add)
        exact = np.sum(values.astype(np.float64), axis=0)
        assert np.all(np.abs(total - exact) <= 36 * 2.0**-24 * np.sum(np.abs(values.astype(np.float64)), axis=0))
        results.add(total.tobytes())
    assert len(results) > 10


def test_functions_are_off_by_their_ulps_and_no_more() -> None:
    wide = np.exp(_X)
    for ulps in (0.5, 1.0, 2.0):
        for seed in range(6):
            moved = Working(contract("float32"), np.random.default_rng(seed)).off(wide, ulps)
            error = np.abs(moved - wide) / ulp_array(BINARY32, wide)
            assert 0.45 * ulps < error.max() <= ulps


@pytest.mark.parametrize("primitive", ["multiply", "divide", "sum", "exp", "sqrt"])
def test_a_bound_that_is_too_tight_is_seen(monkeypatch: pytest.MonkeyPatch, primitive: str) -> None:
    right = RULES[primitive]

    def tight(allowed: Contract, *operands: Ball, **params: Any) -> Ball:
        result = right(allowed, *operands, **params)
        return Ball(result.centre, 0.5 * result.radii(), allowed)

    formulas: dict[str, Formula] = {
        "multiply": lambda x: x * x[::-1], "divide": lambda x: x / x[::-1], "exp": np.exp, "sqrt": np.sqrt,
        "sum": lambda x: np.sum(np.reshape(x, (-1, 4)), -1),
    }  # fmt: skip
    assert _ratio(formulas[primitive], contract("float32"), _X) <= 1.0
    monkeypatch.setitem(RULES, primitive, tight)
    assert _ratio(formulas[primitive], contract("float32"), _X) > 1.0
