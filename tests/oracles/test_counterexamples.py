"""Evaluations that the contract allows and a plain reading would put outside their balls: each lies inside.

A ball of infinite radius holds everything and says nothing, so each test also says where a bound must be finite, and
what must stay outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound.contract import Contract, contract
from opassay.oracles.bound.rounding import Ball, ball, balls
from opassay.reference.array import amax, sigmoid
from opassay.reference.derivative import jvp, vjp
from opassay.reference.exact import evaluate, to_float_pair
from opassay.reference.formats import BINARY32

U = 2.0**-24
Formula = Callable[..., Any]


def _f32(values: Any) -> Any:
    return np.asarray(values, dtype=np.float32)


def _gradient(f: Formula) -> Formula:
    return lambda x, g: vjp(f, [x])[1](g)[0]


def _read(f: Formula, *values: Any, terms: Contract | None = None) -> Ball:
    """The ball of a formula of one output; its exact value is in it."""
    arrays = [np.asarray(v, dtype=np.float64) for v in values]
    (result,) = balls(f, arrays, terms or contract("float32"))
    high, low = to_float_pair(evaluate(f, *arrays)[0][0])
    assert np.all(~(np.abs((result.centre - high) - low) > result.radii())), "the exact value is outside"
    return result


def _holds(ball: Ball, value: Any) -> Any:
    return np.abs(np.asarray(value, dtype=np.float64) - ball.centre) <= ball.radii()


def _centred(x: Any) -> Any:
    return x - np.mean(x)


# ------------------------------------------------------------------------------------------- open conditions

#: Three times this number: NumPy's float32 mean is above it, and another order gives it exactly.
ROW = np.full(3, np.float32(0.87)).astype(np.float64)
FORMULAS: dict[str, Formula] = {
    "maximum": lambda x: np.maximum(_centred(x), 0.0),
    "minimum": lambda x: np.minimum(_centred(x), 0.0),
    "where": lambda x: np.where(_centred(x) > 0, _centred(x), 0.0),
    "absolute": lambda x: np.absolute(_centred(x)),
    "logic": lambda x: np.where((_centred(x) >= 0) & ~(_centred(x) < 0), _centred(x), 0.0),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_gradient_at_a_kink_that_rounding_moves_is_either_one(name: str) -> None:
    """Each branch's mask, applied by an evaluation that finds itself on that side, gives a gradient in the ball."""
    g = np.array([1.0, -2.0, 0.5])
    result = _read(_gradient(FORMULAS[name]), ROW, g)
    assert np.isfinite(result.radii()).all()
    signs = (-1.0, 1.0) if name == "absolute" else (0.0, 1.0)
    for mask in np.array(np.meshgrid(signs, signs, signs)).reshape(3, -1).T:
        pulled = g * mask
        assert _holds(result, pulled - pulled.mean()).all()
    assert not _holds(result, 2 * g).all()


@pytest.mark.parametrize("name", FORMULAS)
def test_a_kink_that_rounding_does_not_reach_is_decided(name: str) -> None:
    result = _read(_gradient(FORMULAS[name]), [0.25, 1.0, 4.0], [1.0, 1.0, 1.0])
    assert (result.radii() < 1e-5).all()


def test_a_step_that_rounding_moves_is_both_of_its_values() -> None:
    for formula in (
        lambda x: np.where(_centred(x) >= 0, 1.0, 0.0) + 0.0 * x,
        lambda x: (_centred(x) >= 0) * 1.0 + 0.0 * x,
        lambda x: (_centred(x) >= 0).astype(float) + 0.0 * x,
        lambda x: 1.0 - np.logical_not(_centred(x) >= 0) * x / x,
        lambda x: np.where(np.reshape(_centred(x) >= 0, (1, 3)), x / x, 0.0)[0],
    ):
        result = _read(formula, ROW)
        assert _holds(result, 0.0).all()
        assert _holds(result, 1.0).all()
        assert not _holds(result, 1.01).any()
        assert not _holds(result, -0.01).any()


def test_relu_of_a_product_that_cancels() -> None:
    """relu(x W + b), where x W is −b but for rounding: value and gradients of either side, and nothing beyond."""
    x, w, b = np.array([[1 / 3, 0.1]]), np.array([[0.3], [-1.0]]), np.array([0.0])
    x, w = (_f32(t).astype(np.float64) for t in (x, w))
    b = -_f32(x[0] @ w[:, 0]).astype(np.float64).reshape(1)

    def relu(x: Any) -> Any:
        return np.maximum(x @ w + b, 0.0)

    result = _read(_gradient(relu), x, [[1.0]])
    assert _holds(result, 0.0).all()
    assert _holds(result, w.T).all()
    assert not _holds(result, 1.1 * w.T).any()
    assert (_read(relu, x).radii() < 1e-6).all()


def test_the_largest_of_computed_values_is_any_that_may_be_it() -> None:
    def largest(x: Any) -> Any:
        return np.max(_centred(x))

    result = _read(_gradient(largest), ROW, 1.0)
    for k in range(3):
        assert _holds(result, np.eye(3)[k] - 1 / 3).all()
    assert not _holds(result, np.full(3, 1.1)).any()
    sure = _read(_gradient(largest), [0.0, 1.0, 5.0], 1.0)
    assert (sure.radii() < 1e-5).all()


# ------------------------------------------------------------------------------------------------------ exact ties


@pytest.mark.parametrize(
    ("formula", "at", "slopes", "middle"),
    [
        (lambda x: np.maximum(x, 0.0), 0.0, (0.0, 1.0), 0.5),
        (lambda x: np.minimum(x, 0.0), 0.0, (0.0, 1.0), 0.5),
        (lambda x: np.absolute(x), 0.0, (-1.0, 1.0), 0.0),
        (lambda x: np.maximum(np.minimum(x, 1.0), -1.0), -1.0, (0.0, 1.0), 0.5),
    ],
)
def test_any_slope_between_the_one_sided_ones_is_right(
    formula: Formula, at: float, slopes: tuple[float, float], middle: float
) -> None:
    for derivative in (_gradient(formula), lambda x, t: jvp(formula, [x], [t])[1][0]):
        result = _read(derivative, [at], [1.0])
        for slope in (*slopes, middle, 0.3):
            assert _holds(result, slope).all()
        assert not _holds(result, slopes[1] + 0.01).any()
        assert not _holds(result, slopes[0] - 0.01).any()
        exact = to_float_pair(evaluate(derivative, np.array([at]), np.array([1.0]))[0][0])[0]
        assert exact == middle


def test_a_tie_of_three_may_go_to_one_or_to_all() -> None:
    x = [1.0, 2.0, 2.0, 2.0]
    result = _read(_gradient(lambda x: np.max(x)), x, 1.0)
    assert _holds(result, [0.0, 1.0, 0.0, 0.0]).all()
    assert _holds(result, [0.0, 1 / 3, 1 / 3, 1 / 3]).all()
    assert not _holds(result, [0.1, 0.0, 0.0, 1.0]).all()


def test_equal_largest_elements_share_the_slope_of_amax() -> None:
    x = [1.0, 2.0, 2.0, 2.0]
    result = _read(_gradient(lambda x: amax(x)), x, 1.0)
    assert _holds(result, _f32([0.0, 1 / 3, 1 / 3, 1 / 3])).all()
    assert not _holds(result, [0.0, 1.0, 0.0, 0.0])[1:].any()
    moved = _read(lambda x, t: jvp(lambda x: amax(x), [x], [t])[1][0], x, [5.0, 1.0, 2.0, 6.0])
    assert _holds(moved, 3.0)
    assert moved.radii() < 1e-5


# -------------------------------------------------------------------------------------- powers, roots, constants


def test_a_root_of_what_may_be_negative_is_not_judged() -> None:
    """√(E[x²] − E[x]²) of a nearly constant row: an evaluation takes the root of a negative number."""
    x = np.array([3.0, 3.0001, 2.9999, 3.0])
    result = _read(lambda x: np.sqrt(np.mean(x * x) - np.square(np.mean(x))), x)
    assert np.isinf(result.radii())
    for squares in (np.square, lambda c: c * c, lambda c: np.absolute(c) * np.absolute(c)):
        root = _read(lambda x, f=squares: np.sqrt(np.mean(f(x - np.mean(x))) + 0.0), np.full(3, 0.87))
        assert np.isfinite(root.radii())


@pytest.mark.parametrize("exponent", [2, 3, 4, 5, -1, -2, -3])
def test_integer_powers_of_negative_numbers(exponent: int) -> None:
    rng = np.random.default_rng(exponent + 10)
    x = rng.standard_normal((200, 5)).astype(np.float32)

    def formula(x: Any) -> Any:
        return (x - np.mean(x, -1, keepdims=True)) ** exponent

    result = _read(formula, x)
    computed = (x - x.mean(-1, keepdims=True, dtype=np.float32)).astype(np.float32)
    power = _f32(1.0)
    for _ in range(abs(exponent)):
        power = _f32(power * computed)
    power = _f32(1.0) / power if exponent < 0 else power
    assert np.isfinite(result.radii()).all()
    assert _holds(result, power).all()
    wrong = np.abs(power) if exponent % 2 else -power
    assert not _holds(result, wrong)[computed < 0].any()


def test_a_negative_power_through_zero_is_not_judged() -> None:
    result = _read(lambda x: (x - np.mean(x)) ** -1, ROW + np.eye(3)[2])
    assert np.isfinite(result.radii()[2])
    with np.errstate(divide="ignore"):
        assert not np.isfinite(balls(lambda x: _centred(x) ** -1, [ROW], contract("float32"))[0].radii()).any()


def test_arrays_of_constants_are_rounded_as_numbers_are() -> None:
    first, second = np.array([1.15139]), np.array([1.10163])
    x = np.float64(np.random.default_rng(3).standard_normal(2000).astype(np.float32))
    result = _read(lambda x: x * first * second, x)
    assert _holds(result, (_f32(x) * _f32(first)) * _f32(second)).all()
    assert (result.radii() < 6 * U * np.abs(x)).all()
    assert ball(np.zeros(3), contract("float32")).lift(np.array([0.5, 3.0, -7.0])).radius is None
    assert ball(np.zeros(3), contract("float64")).lift(np.array([0.1, 0.3])).radius is None


def test_constants_below_the_normal_range_move_by_half_of_the_least_number() -> None:
    for value in (1e-41, np.array([1e-41, 1.0])):
        result = _read(lambda x, c=value: x * c, np.full(2, 1e30))
        assert _holds(result, _f32(1e30) * _f32(value)).all()
    assert ball(np.zeros(1), contract("float32")).lift(1e-41).radii() == BINARY32.eta


def test_flushed_numbers_are_zeros_everywhere() -> None:
    flushing, plain = contract("float32", flush=True), contract("float32")
    tiny, sum_ = np.array([1.5e-38, -1.2e-38]), lambda x: np.sum(x)
    for formula, x in ((sum_, tiny), (lambda x: x[0] + x[1], tiny), (lambda x: x * 1.5, np.array([5e-39]))):
        assert _holds(_read(formula, x, terms=flushing), 0.0).all()
        assert not _holds(_read(formula, x, terms=plain), 0.0).all()
    assert not _holds(_read(sum_, np.array([1.0, 1e-5]), terms=flushing), 1.0).any()


# ------------------------------------------------------------------------------------------------------- algorithms


def test_a_running_mean_of_two_numbers_is_in_the_ball() -> None:
    """x₁ + (x₂ − x₁)/2 is no sum: it may be off by u max(|x₁|, |x₂|), and a sum's radius is u (|x₁| + |x₂|)/2."""
    rng = np.random.default_rng(9)
    x = _f32(rng.standard_normal((20_000, 2)) * 2.0 ** rng.uniform(-3, 3, (20_000, 2)))
    running = x[:, 0] + (x[:, 1] - x[:, 0]) / _f32(2)
    off = np.abs(np.float64(running) - np.mean(np.float64(x), -1))
    assert (off > 2.0**-25 * np.sum(np.abs(np.float64(x)), -1)).any()
    assert _holds(_read(lambda x: np.mean(x, -1), x), running).all()


def test_the_slope_of_a_sigmoid_may_be_taken_of_its_result() -> None:
    x = np.float64(np.random.default_rng(4).uniform(-20, 20, 5000).astype(np.float32))
    value, slope = _read(sigmoid, x), _read(_gradient(sigmoid), x, np.ones_like(x))
    y = _f32(1) / (_f32(1) + np.exp(-_f32(x)))
    decay = np.exp(-np.abs(_f32(x)))
    assert _holds(value, y).all()
    assert _holds(slope, y * (_f32(1) - y)).all()
    assert _holds(slope, decay / np.square(_f32(1) + decay)).all()
    assert not _holds(slope, y * y).all()
    assert np.median(slope.radii() / slope.centre) < 1e-4
