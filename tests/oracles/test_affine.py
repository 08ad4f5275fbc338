"""Affine forms beside balls: what they hold, how narrow they are, and what their own faults show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball, affine, balls, forms, slopes
from opassay.oracles.specs import traced
from opassay.reference.array import sigmoid
from opassay.reference.exact import evaluate, to_float_pair
from tests.oracles.spec_judging import accepted, drawn, read
from workshop.checking.directed import decompose, directed_errors
from workshop.random_evaluation import evaluate_at_random

TERMS = contract("float32")
Spec = Callable[..., Any]


def sinkhorn(rounds: int) -> Spec:
    def spec(x: Tensor) -> Tensor:
        p = torch.exp(x)
        for _ in range(rounds):
            p = p / p.sum(-1, keepdim=True)
            p = p / p.sum(-2, keepdim=True)
        return p

    return spec


def layer_norms(count: int) -> Spec:
    def spec(x: Tensor) -> Tensor:
        for _ in range(count):
            x = torch.nn.functional.layer_norm(x, (x.shape[-1],))
        return x

    return spec


def norms_spelled_out(count: int, eps: float = 1e-5, inside: bool = True) -> Spec:
    def spec(x: Tensor) -> Tensor:
        for _ in range(count):
            apart = x - x.mean(-1, keepdim=True)
            variance = (apart * apart).mean(-1, keepdim=True)
            x = apart * torch.rsqrt(variance + eps) if inside else apart / (torch.sqrt(variance) + eps)
        return x

    return spec


def newton_schulz(steps: int, product: Callable[[Tensor, Tensor], Tensor] = torch.matmul) -> Spec:
    def spec(g: Tensor) -> Tensor:
        x = g / (torch.sqrt((g * g).sum()) + 1e-7)
        for _ in range(steps):
            a = product(x, x.T)
            b = -4.7750 * a + 2.0315 * product(a, a)
            x = 3.4445 * x + product(b, x)
        return x

    return spec


#: Chains whose balls alone are useless: the spec, what the directed evaluation evaluates, and the shape of the input.
CHAINS: dict[str, tuple[Spec, Spec, tuple[int, ...]]] = {
    "sinkhorn of 8 rounds": (sinkhorn(8), sinkhorn(8), (2, 4, 4)),
    "sinkhorn of 20 rounds": (sinkhorn(20), sinkhorn(20), (1, 4, 4)),
    "8 layer norms": (layer_norms(8), norms_spelled_out(8), (2, 24)),
    "5 steps of newton and schulz": (newton_schulz(5), newton_schulz(5), (5, 8)),
}
#: How many times as far as the farthest directed evaluation a radius may reach.
MOST = 20.0


def _without_forms(spec: Spec, tensors: tuple[Tensor, ...], monkeypatch: pytest.MonkeyPatch) -> Ball:
    with monkeypatch.context() as patch:
        patch.setattr(affine, "narrow", lambda ball, *_: ball)
        (ball,) = read(spec, tensors)[:1]
        assert isinstance(ball, Ball)
        return ball


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_has_a_radius_that_legal_evaluations_come_near(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, text, shape = CHAINS[name]
    tensors = drawn(shape)
    (ball,) = read(spec, tensors)
    radius = torch.as_tensor(np.array(ball.radii())).reshape(-1)
    graph = decompose(text, tensors)
    for element in (0, radius.numel() // 2, radius.numel() - 1):
        error = directed_errors(graph, tensors, 0, element).reshape(-1).abs()
        assert (error <= radius).all()
        assert radius[element] <= MOST * error[element]
    plain = _without_forms(spec, tensors, monkeypatch).radii().reshape(-1)
    assert np.median(plain / radius.numpy()) > 100


@pytest.mark.parametrize("name", CHAINS)
def test_a_form_holds_the_exact_value_and_random_evaluations(name: str) -> None:
    spec, _, shape = CHAINS[name]
    tensors = drawn(shape, seed=3)
    formula, arrays = traced(spec, *tensors), [x.double().numpy() for x in tensors]
    (ball,) = balls(formula, arrays, TERMS)
    high, low = to_float_pair(evaluate(formula, *arrays)[0][0])
    assert np.all(np.abs((ball.centre - high) - low) <= ball.radii())
    assert np.all(np.abs(spec(*tensors).double().numpy() - ball.centre) <= ball.radii())
    for seed in range(8):
        (computed,) = evaluate_at_random(formula, arrays, TERMS, np.random.default_rng(seed))
        assert np.all(np.abs(computed - ball.centre) <= ball.radii())


def test_derivatives_have_no_forms() -> None:
    (x,) = drawn((4, 4), seed=5)
    formula, arrays = traced(sinkhorn(8), x), [x.double().numpy()]
    (narrow,), (wide,) = (balls(formula, arrays, contract("float32", order=order)) for order in (0, 1))
    assert narrow.radii().max() * 100 < wide.radii().max()


def _in_bfloat16(a: Tensor, b: Tensor) -> Tensor:
    return (a.bfloat16() @ b.bfloat16()).float()


#: Kernels that a ball alone lets pass: the chain, and the fault.
FAULTS: dict[str, tuple[Spec, Spec, tuple[int, ...]]] = {
    "a round fewer": (sinkhorn(8), sinkhorn(7), (3, 4, 4)),
    "columns before rows": (sinkhorn(8), lambda x: sinkhorn(8)(x.mT).mT, (3, 4, 4)),
    "a step fewer": (newton_schulz(5), newton_schulz(4), (16, 32)),
    "factors in bfloat16": (newton_schulz(5), newton_schulz(5, _in_bfloat16), (8, 12)),
    "eps beside the root": (norms_spelled_out(8), norms_spelled_out(8, 1e-5, False), (4, 64)),
    "another eps": (layer_norms(8), norms_spelled_out(8, 1e-6), (4, 64)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_a_ball_alone_lets_pass_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, fault, shape = FAULTS[name]
    tensors = drawn(shape, seed=1)
    (ball,) = read(spec, tensors)
    assert accepted(spec(*tensors), ball).all()
    wrong = fault(*tensors).double().numpy()
    assert np.any(np.abs(wrong - ball.centre) > ball.half_widths(contract("float32").accumulate))
    plain = _without_forms(spec, tensors, monkeypatch)
    assert np.all(np.abs(wrong - plain.centre) <= plain.radii())


# ----------------------------------------------------------------------------------------- what a form must hold

Formula = Callable[..., Any]
#: Formulas whose first-order terms cancel, and the centre and radius of their argument.
CURVED: dict[str, tuple[Formula, float, float]] = {
    "square": (lambda x: np.square(x) - 2.0 * x, 1.0, 0.0625),
    "product": (lambda x: x * (2.0 - x), 1.0, 0.0625),
    "exponential": (lambda x: np.exp(x) - x, 0.0, 0.0625),
    "quotient": (lambda x: 1.0 / x + x, 1.0, 0.0625),
    "root": (lambda x: np.sqrt(x) - 0.5 * x, 1.0, 0.0625),
    "matrices": (lambda x: np.matmul(np.reshape(x, (1, 1)), np.reshape(2.0 - x, (1, 1))), 1.0, 0.0625),
    "tangent": (lambda x: np.tanh(x) - x, 0.0, 0.0625),
    "sigmoid": (lambda x: 4.0 * sigmoid(x) - x, 0.0, 0.0625),
}


def _form_of(formula: Formula, centre: float, radius: float) -> Ball:
    tape = affine._Tape(TERMS, forms.Symbols(TERMS))
    x = affine.Affine(tape, Ball(np.array([centre]), np.array([radius]), TERMS))
    with np.errstate(all="ignore"):
        ball: Ball = formula(x).ball
    return ball


def _is_held(formula: Formula, centre: float, radius: float) -> bool:
    ball = _form_of(formula, centre, radius)
    points = centre + radius * np.linspace(-1.0, 1.0, 41)
    values = np.array([np.ravel(formula(np.array([x])))[0] for x in points])
    return bool(np.all(np.abs(values - np.ravel(ball.centre)) <= np.ravel(ball.radii())))


@pytest.mark.parametrize("name", CURVED)
def test_a_remainder_is_in_the_form(name: str) -> None:
    formula, centre, radius = CURVED[name]
    assert _is_held(formula, centre, radius)
    assert np.ravel(_form_of(formula, centre, radius).radii())[0] < 0.5 * radius


@pytest.mark.parametrize("name", ["tangent", "sigmoid"])
def test_a_remainder_that_is_dropped_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a point of inflection no end of the ball shows what a slope leaves out."""
    rule = slopes.slopes_of

    def without_rest(*arguments: Any) -> Any:
        read = rule(*arguments)
        return None if read is None else [each if each is None else replace(each, rest=0.0) for each in read]

    monkeypatch.setattr(affine, "slopes_of", without_rest)
    assert not _is_held(*CURVED[name])


def test_roundings_are_in_the_form_and_show_where_they_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    spec, text, shape = CHAINS["sinkhorn of 8 rounds"]
    tensors = drawn(shape)
    graph = decompose(text, tensors)
    error = directed_errors(graph, tensors, 0, 0).reshape(-1)[0].abs()
    assert error <= read(spec, tensors)[0].radii().reshape(-1)[0]
    collect = forms.collect

    def without_own(limits: Any, shape: Any, parts: Any, own: Any, *rest: Any) -> Any:
        return collect(limits, shape, parts, own * (0.5 if parts else 1.0), *rest)

    monkeypatch.setattr(affine, "collect", without_own)
    assert error > read(spec, tensors)[0].radii().reshape(-1)[0]


def test_a_sum_that_is_read_twice_has_two_errors_where_an_accumulator_goes_on_with_it() -> None:
    """x w is a result of its own for one use; for the other, the accumulator begins with c and its roundings differ."""

    def formula(x: Any, w: Any, c: Any) -> Any:
        product = np.matmul(x, w)
        return (product + c) - product

    draws = np.random.default_rng(0)
    values = [draws.standard_normal(shape).astype(np.float32).astype(np.float64) for shape in ((4, 64), (64, 4))]
    ball = _affinely(formula, *values, np.zeros((4, 4)))
    own = _affinely(np.matmul, *values)
    assert np.all(ball.radii() >= own.radii())


def test_a_scan_may_leave_out_the_states_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms that cancel one after another are far from cancelling where those of one sign are added up first."""
    steps = np.arange(40.0)
    b = np.where(steps % 2 == 0, 1.0 + 2.0**-10 * steps, -1.0).astype(np.float32).astype(np.float64)

    def loop(a: Any, b: Any) -> Any:
        h = a[0] * b[0:1]
        for t in range(1, 40):
            h = a[t] * h + b[t : t + 1]
        return h

    terms = torch.as_tensor(b)
    error = directed_errors(decompose(lambda x: x.sum(0, keepdim=True), [terms]), [terms], 0, 0).abs().numpy()
    values = np.ones((40, 1)), b
    assert np.all(error <= _affinely(loop, *values).radii())
    monkeypatch.setattr(affine, "_count_chain", lambda *arguments: None)
    assert np.all(error > _affinely(loop, *values).radii())


def _affinely(formula: Formula, *values: Any) -> Ball:
    tape = affine._Tape(TERMS, forms.Symbols(TERMS))
    with np.errstate(all="ignore"):
        ball: Ball = formula(*(affine.Affine(tape, Ball(np.asarray(x), None, TERMS)) for x in values)).ball
    return ball


def test_two_ways_of_one_operation_are_both_held() -> None:
    """Eight layer norms whose every other one is computed about the first element stay in the ball."""

    def shifted(x: Tensor) -> Tensor:
        apart = x - x[..., :1]
        mean = apart.mean(-1, keepdim=True)
        variance = (apart * apart).mean(-1, keepdim=True) - mean * mean
        return (x - (x[..., :1] + mean)) * torch.rsqrt(variance + 1e-5)

    (x,) = drawn((4, 64), seed=2)
    (ball,) = read(layer_norms(8), (x,), algorithms=frozenset({"folded", "shifted"}))
    usual = norms_spelled_out(1)
    for ways in ((usual, shifted), (shifted, usual), (shifted, shifted)):
        y = x
        for i in range(8):
            y = ways[i % 2](y)
        assert accepted(y, ball).all()


def test_too_many_coefficients_leave_the_ball(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = drawn((3, 4, 4))
    plain = _without_forms(sinkhorn(20), tensors, monkeypatch)
    monkeypatch.setattr(forms, "MOST", 1e3)
    (ball,) = read(sinkhorn(20), tensors)
    assert np.array_equal(ball.radii(), plain.radii())


def test_coefficients_that_are_multiples_become_one_symbol() -> None:
    limits = forms.Symbols(TERMS)
    one, other = np.array([1.0, 2.0, 3.0]), np.array([1.0, -1.0, 0.5])
    terms = np.stack([one, -2.0 * one, other, np.array([0.0, 0.25, 0.0])], axis=-1).astype(np.float32)
    ways, single = forms.merge_multiples(terms, limits)
    assert ways.shape == (3, 2)
    assert np.all(np.abs(single - [0.0, 0.25, 0.0]) < 1e-6)
    assert np.all(np.sum(np.abs(ways), axis=-1) + single >= np.sum(np.abs(terms), axis=-1))
