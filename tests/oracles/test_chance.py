"""Evaluations with random errors: right ones are not suspect, and small errors within wide bounds are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import balls
from opassay.oracles.bound.rounding.ball import RULES
from opassay.oracles.bound.rounding.chance import Evaluations
from opassay.oracles.bound.rounding.likeness import RISK, RUNS, Likeness, likeness, quantile, spreads
from opassay.reference.formats import BINARY32, FORMATS, round_array

SEED = 20

Formula = Callable[..., Any]


def _layers(x: Any, *weights: Any) -> Any:
    for weight in weights:
        x = np.maximum(x @ weight, 0.0) * 1.25
    return x


def _normed(x: Any) -> Any:
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(np.square(centred), axis=-1, keepdims=True) + 1e-5)


def _summed(x: Any) -> Any:
    return np.sum(np.exp(x), axis=-1)


_SHAPES: dict[Formula, list[tuple[int, ...]]] = {
    _layers: [(8, 32), *[(32, 32)] * 6],
    _normed: [(8, 100)],
    _summed: [(6, 3000)],
}


def _operands(formula: Formula) -> list[Any]:
    draws = np.random.default_rng(SEED)
    first, *others = (draws.standard_normal(shape) for shape in _SHAPES[formula])
    return [np.float32(x) for x in (first, *(w / w.shape[0] ** 0.5 for w in others))]


def _likeness(formula: Formula, computed: Any) -> Likeness:
    wide = [x.astype(np.float64) for x in _operands(formula)]
    terms, draws = contract("float32"), np.random.default_rng(SEED)
    (ball,) = balls(formula, wide, terms)
    assert np.all(np.abs(computed - ball.centre) <= ball.half_widths(BINARY32)), "within the worst case"
    (spread,) = spreads([ball], [BINARY32], Evaluations(formula, wide, terms, draws))
    assert spread is not None
    result = likeness(computed.astype(np.float64), BINARY32, ball, spread)
    assert result is not None
    return result


@pytest.mark.parametrize("formula", _SHAPES)
def test_an_evaluation_in_float32_is_not_suspect(formula: Formula) -> None:
    result = _likeness(formula, formula(*_operands(formula)))
    assert not result.suspect
    assert 0 < result.overall < 1


def test_a_small_error_within_a_wide_bound_is_suspect() -> None:
    right = _layers(*_operands(_layers))
    assert _likeness(_layers, right * np.float32(1 + 3e-5)).suspect


def test_one_element_that_is_off_is_suspect() -> None:
    right = _layers(*_operands(_layers))
    at = tuple(int(i) for i in np.unravel_index(np.argmax(right), right.shape))
    right[at] *= np.float32(1 + 5e-5)
    result = _likeness(_layers, right)
    assert result.suspect
    assert result.at == at
    assert result.overall < result.most[1]


def test_a_formula_without_errors_says_nothing() -> None:
    values = np.arange(4.0)
    terms, draws = contract("float32"), np.random.default_rng(SEED)
    (ball,) = balls(np.negative, [values], terms)
    (spread,) = spreads([ball], [BINARY32], Evaluations(np.negative, [values], terms, draws))
    assert spread is not None
    assert likeness(-values, BINARY32, ball, spread) is None


def test_an_overflow_of_the_output_is_not_suspect() -> None:
    x, y = (np.random.default_rng(SEED).standard_normal(40) * 200 for _ in range(2))
    values = [round_array(FORMATS["float16"], v) for v in (x, y)]
    terms, draws = contract("float16"), np.random.default_rng(SEED)
    (ball,) = balls(np.multiply, values, terms)
    (spread,) = spreads([ball], [FORMATS["float16"]], Evaluations(np.multiply, values, terms, draws))
    computed = round_array(FORMATS["float16"], values[0] * values[1])
    assert np.isinf(computed).any()
    assert spread is not None
    result = likeness(computed, FORMATS["float16"], ball, spread)
    assert result is not None
    assert not result.suspect


def test_quantiles_are_those_of_student() -> None:
    # Tables of Student's t with 32 degrees of freedom, both tails: 5 % and 0.1 %.
    assert round(quantile(0.05), 4) == 2.0369
    assert round(quantile(0.001), 4) == 3.6218


def test_the_mean_of_dependent_squares_is_bounded_as_the_page_says() -> None:
    """E max(F - a, 0) / (x - a) < 4 P(F > x) for F = t², x the square of the quantile and a = 9x/10."""

    def beyond(value: Any) -> Any:
        return mpmath.betainc(RUNS / 2, 0.5, 0, RUNS / (RUNS + value), regularized=True)

    x = quantile(RISK / 12) ** 2
    excess = mpmath.quad(beyond, [0.9 * x, x, 2 * x, 10 * x, mpmath.inf])
    assert excess / (0.1 * x) < 4 * beyond(x)


def test_what_no_error_has_moved_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each product without errors, and the second one of what was moved: 2 and 3 calls for three evaluations."""
    calls: list[Any] = []
    rule = RULES["matmul"]

    def count(*args: Any, **params: Any) -> Any:
        calls.append(args)
        return rule(*args, **params)

    monkeypatch.setitem(RULES, "matmul", count)
    x = np.random.default_rng(0).standard_normal((6, 6))
    endless = Evaluations(lambda a: ((a @ a.T) @ a, a @ a.T), [x], contract("float32"), np.random.default_rng(1))
    runs = list(itertools.islice(endless, 3))
    assert len(calls) == 2 + 3
    assert len({run[1].tobytes() for run in runs}) == 3, "each evaluation has errors of its own"
