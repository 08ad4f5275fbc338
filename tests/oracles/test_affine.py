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
from opassay.oracles.bound.rounding import Ball, affine, balls, forms, repetition, slopes
from opassay.oracles.specs import traced
from opassay.reference.array import sigmoid
from opassay.reference.exact import evaluate, to_float_pair
from tests.oracles.chain_specs import Spec, layer_norms, newton_schulz, norms_spelled_out, sinkhorn
from tests.oracles.spec_judging import accepted, draw, read
from workshop.checking.directed import decompose, directed_errors
from workshop.random_evaluation import evaluate_at_random

TERMS = contract("float32")

#: Chains whose balls alone are useless: the spec, what the directed evaluation evaluates, and the shape of the input.
CHAINS: dict[str, tuple[Spec, Spec, tuple[int, ...]]] = {
    "sinkhorn of 8 rounds": (sinkhorn(8), sinkhorn(8), (2, 4, 4)),
    "sinkhorn of 20 rounds": (sinkhorn(20), sinkhorn(20), (1, 4, 4)),
    "8 layer norms": (layer_norms(8), norms_spelled_out(8), (2, 24)),
    "5 steps of newton and schulz": (newton_schulz(5), newton_schulz(5), (16, 32)),
}
#: How many times as far as the farthest directed evaluation a radius may reach.
MOST = 100.0


def _without_forms(spec: Spec, tensors: tuple[Tensor, ...], monkeypatch: pytest.MonkeyPatch) -> Ball:
    with monkeypatch.context() as patch:
        patch.setattr(affine, "narrow", lambda ball, *_: ball)
        (ball,) = read(spec, tensors)[:1]
        assert isinstance(ball, Ball)
        return ball


@pytest.mark.fast_cases("sinkhorn of 8 rounds")
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_has_a_radius_that_legal_evaluations_come_near(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, text, shape = CHAINS[name]
    tensors = draw(shape)
    (ball,) = read(spec, tensors)
    radius = torch.as_tensor(np.array(ball.radii())).reshape(-1)
    graph = decompose(text, tensors)
    for element in (0, radius.numel() // 2, radius.numel() - 1):
        error = directed_errors(graph, tensors, 0, element).reshape(-1).abs()
        assert (error <= radius).all()
        assert radius[element] <= MOST * error[element]
    plain = _without_forms(spec, tensors, monkeypatch).radii().reshape(-1)
    assert np.median(plain / radius.numpy()) > 100


@pytest.mark.fast_cases("sinkhorn of 8 rounds")
@pytest.mark.parametrize("name", CHAINS)
def test_a_form_holds_the_exact_value_and_random_evaluations(name: str) -> None:
    spec, _, shape = CHAINS[name]
    tensors = draw(shape, seed=3)
    formula, arrays = traced(spec, *tensors), [x.double().numpy() for x in tensors]
    (ball,) = balls(formula, arrays, TERMS)
    high, low = to_float_pair(evaluate(formula, *arrays)[0][0])
    assert np.all(np.abs((ball.centre - high) - low) <= ball.radii())
    assert np.all(np.abs(spec(*tensors).double().numpy() - ball.centre) <= ball.radii())
    for seed in range(8):
        (computed,) = evaluate_at_random(formula, arrays, TERMS, np.random.default_rng(seed))
        assert np.all(np.abs(computed - ball.centre) <= ball.radii())


def _in_bfloat16(a: Tensor, b: Tensor) -> Tensor:
    return (a.bfloat16() @ b.bfloat16()).float()


#: Kernels that a ball alone lets pass: the chain, and the fault.
FAULTS: dict[str, tuple[Spec, Spec, tuple[int, ...]]] = {
    "a round fewer": (sinkhorn(8), sinkhorn(7), (3, 4, 4)),
    "columns before rows": (sinkhorn(8), lambda x: sinkhorn(8)(x.mT).mT, (3, 4, 4)),
    "a step fewer": (newton_schulz(5), newton_schulz(4), (16, 32)),
    "factors in bfloat16": (newton_schulz(5), newton_schulz(5, _in_bfloat16), (8, 12)),
    "eps beside the root": (norms_spelled_out(8, 1e-3), norms_spelled_out(8, 1e-3, False), (4, 64)),
    "another eps": (layer_norms(8), norms_spelled_out(8, 1e-4), (4, 64)),
}


@pytest.mark.one_fast_in(2)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_a_ball_alone_lets_pass_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, fault, shape = FAULTS[name]
    tensors = draw(shape, seed=1)
    (ball,) = read(spec, tensors)
    assert accepted(spec(*tensors), ball).all()
    wrong = fault(*tensors).double().numpy()
    assert np.any(np.abs(wrong - ball.centre) > ball.half_widths(contract("float32").accumulate))
    plain = _without_forms(spec, tensors, monkeypatch)
    assert np.all(np.abs(wrong - plain.centre) <= plain.radii())


# ------------------------------------------------------------------------------- what a step may be computed as

NORMS: dict[str, Callable[[Tensor], Tensor]] = {}


def _norm(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    NORMS[function.__name__] = function
    return function


@_norm
def usual(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],))


@_norm
def by_squares(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt((x * x).mean(-1, keepdim=True) - mean * mean + 1e-5)


@_norm
def folded(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    scale = torch.rsqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-5)
    return x * scale - mean * scale


@_norm
def by_welford(x: Tensor) -> Tensor:
    mean, square = torch.zeros_like(x[..., :1]), torch.zeros_like(x[..., :1])
    for i in range(x.shape[-1]):
        delta = x[..., i : i + 1] - mean
        mean = mean + delta / (i + 1)
        square = square + delta * (x[..., i : i + 1] - mean)
    return (x - mean) * torch.rsqrt(square / x.shape[-1] + 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("spec", [layer_norms(8), norms_spelled_out(8)], ids=["function", "spelled out"])
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("shift", [0.0, 8.0])
def test_other_algorithms_of_a_step_are_held(spec: Spec, name: str, shift: float) -> None:
    """A kernel chooses the algorithm of a step, whatever way the text has."""
    for seed in range(2):
        (x,) = draw((8, 64), seed=seed)
        x = x + shift
        y = x
        for _ in range(8):
            y = NORMS[name](y)
        (ball,) = read(spec, (x,), algorithms=frozenset({"folded", "shifted"}))
        assert accepted(y, ball).all()


@pytest.mark.slow
def test_other_algorithms_of_sinkhorns_steps_are_held() -> None:
    """By vectors that scale rows and columns, by reciprocals, and with the first step as a softmax."""

    def by_vectors(x: Tensor) -> Tensor:
        k = torch.exp(x)
        v = torch.ones_like(k[:, :1, :])
        for _ in range(8):
            u = 1.0 / (k * v).sum(-1, keepdim=True)
            v = 1.0 / (k * u).sum(-2, keepdim=True)
        return u * k * v

    def by_reciprocals(x: Tensor) -> Tensor:
        p = torch.softmax(x, -1)
        for i in range(8):
            p = p if i == 0 else p * (1.0 / p.sum(-1, keepdim=True))
            p = p * (1.0 / p.sum(-2, keepdim=True))
        return p

    for seed in range(16):
        tensors = draw((3, 4, 4), seed=seed)
        (ball,) = read(sinkhorn(8), tensors)
        for kernel in (by_vectors, by_reciprocals):
            assert accepted(kernel(*tensors), ball).all()


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
    tape = affine.Tape(TERMS, {0: (-1,)})
    with np.errstate(all="ignore"):
        (out,) = affine.read_with_forms(tape, formula, [Ball(np.array([centre]), np.array([radius]), TERMS)])
    ball: Ball = out.ball
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
    tensors = draw(shape)
    error = directed_errors(decompose(text, tensors), tensors, 0, 0).reshape(-1)[0].abs()
    assert error <= read(spec, tensors)[0].radii().reshape(-1)[0]
    combine = forms.combine_forms

    def with_half(*arguments: Any) -> Any:
        form = combine(*arguments)
        return replace(form, loose=0.5 * form.loose)

    monkeypatch.setattr(affine, "combine_forms", with_half)
    assert error > read(spec, tensors)[0].radii().reshape(-1)[0]


def test_a_rule_that_knows_more_than_radii_leaves_what_the_ball_has() -> None:
    """What is cut off at an end is near to it, and its error is no sum of slopes and a rounding."""
    slope = slopes.Slope(lambda terms: terms, lambda radii: radii, 0.0, 1)
    x = affine.Affine(affine.Tape(TERMS), Ball(np.array([1.0]), np.array([0.5]), TERMS))
    x.fix_number()
    form = forms.combine_forms([(slope, x.settle_form(), x.ball.radii())], np.array([0.25]), np.array([0.125]))
    assert not form.terms.any()
    assert form.loose == 0.25


# --------------------------------------------------------------------------------------------- where states are


def _states_of(spec: Spec, *tensors: Tensor) -> list[int]:
    tape = affine.Tape(TERMS)
    with np.errstate(all="ignore"):
        affine.read_with_forms(tape, traced(spec, *tensors), [Ball(x.double().numpy(), None, TERMS) for x in tensors])
    return [len(names) for names in repetition.find_states(tape.steps).values()]


def test_states_stand_between_the_steps_that_a_text_repeats() -> None:
    (x,) = draw((4, 4))
    assert _states_of(sinkhorn(5), x) == [1] * 5
    assert _states_of(newton_schulz(5), x) == [1] * 5
    assert _states_of(norms_spelled_out(4), x) == [1] * 3
    assert _states_of(layer_norms(2), x) == [1]


def test_no_states_are_where_nothing_is_repeated_or_a_scan_has_none() -> None:
    x, w = draw((4, 4), (4, 4))

    def scan(x: Tensor, w: Tensor) -> Tensor:
        h = x[0]
        for _ in range(12):
            h = h * w.sum(-1) + x.sum(0)
        return h

    assert _states_of(layer_norms(1), x) == []
    assert _states_of(lambda x, w: x.softmax(-1) @ w.softmax(-1).mT, x, w) == []
    assert _states_of(torch.matmul, x, w) == []
    assert _states_of(lambda x: x.exp().tanh().exp().tanh().exp().tanh().exp().tanh(), x) == []
    assert _states_of(scan, x, w) == []


def test_too_many_coefficients_leave_the_ball(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = draw((3, 4, 4))
    plain = _without_forms(sinkhorn(20), tensors, monkeypatch)
    monkeypatch.setattr(affine, "LARGEST", 10.0)
    (ball,) = read(sinkhorn(20), tensors)
    assert np.array_equal(ball.radii(), plain.radii())


def test_an_operand_without_a_bound_may_stand_between_steps() -> None:
    """One that is beyond the range of the format, and that each step reads, is alive between any two of them."""

    def repeated(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = x * w / np.sum(x * w, axis=-1, keepdims=True)
        return x

    (read,) = balls(repeated, [np.array([[1.0, 2.0, 3.0]]), np.array([[1.0, 1e300, 1.0]])], contract("float32"))
    assert np.isinf(read.radii()).any()
