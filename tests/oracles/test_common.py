"""Errors that the elements of a row have in common: what they leave is smaller, and holds every evaluation."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from opassay.oracles.bound import accept
from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball, ball, balls
from opassay.oracles.specs import traced
from opassay.reference.algorithms import algorithm_of, algorithms
from opassay.reference.derivative import vjp
from opassay.reference.formats import BINARY32
from opassay.reference.norms.group_norm import group_norm
from opassay.reference.norms.layer_norm import layer_norm
from opassay.reference.softmax import log_softmax, softmax
from tests.oracles.spec_judging import accepted, draw

ONE_BY_ONE = 1e-3


def _inexact(values: Any, radius: float) -> Ball:
    return Ball(np.asarray(values, dtype=np.float64), np.full(np.shape(values), radius), contract("float32"))


def test_an_error_of_a_factor_leaves_nothing_in_the_sum_of_a_centred_row() -> None:
    row = ball(np.array([[1.0, -3.0, 2.0]]), contract("float32"))
    slope = _inexact([[5.0]], ONE_BY_ONE)
    total: Any = np.sum(row * slope, axis=-1, keepdims=True)
    apart: Any = np.sum(row * _inexact([[5.0, 5.0, 5.0]], ONE_BY_ONE), axis=-1, keepdims=True)
    assert total.radii() < 1e-4
    assert apart.radii() > 6 * ONE_BY_ONE


def test_errors_of_two_factors_do_not_cancel() -> None:
    row = ball(np.array([[1.0, 2.0, 4.0]]), contract("float32"))
    one, other = (_inexact([[5.0]], ONE_BY_ONE) for _ in range(2))
    assert ((row * one - row * one).radii() < 1e-4).all()
    assert ((row * one - row * other).radii() > 2 * ONE_BY_ONE * np.array([1, 2, 4])).all()
    assert ((row / one - row / one).radii() < 1e-4).all()
    assert ((row / one - row / other).radii() > 2 * ONE_BY_ONE / 25.1 * np.array([1, 2, 4])).all()


def test_a_factor_of_each_row_is_no_common_error_along_the_rows() -> None:
    rows = ball(np.array([[1.0, 2.0], [-1.0, -2.0]]), contract("float32"))
    total: Any = np.sum(rows * _inexact([[5.0], [5.0]], ONE_BY_ONE), axis=0)
    assert (total.radii() > 2 * ONE_BY_ONE * np.array([1, 2])).all()


def test_a_term_of_a_row_is_no_common_error() -> None:
    """x − μ may be evaluated in ways that never subtract a rounded μ."""
    rows = ball(np.array([[1.0, 2.0, 4.0]]), contract("float32")) - _inexact([[2.0]], ONE_BY_ONE)
    total: Any = np.sum(rows * np.array([1.0, 1.0, -2.0]), axis=-1)
    assert (total.radii() > 4 * ONE_BY_ONE).all()


def _exponentials(scores: Ball, shift: Callable[[Any], Any]) -> Any:
    powers: Any = np.exp(scores - shift(scores))
    return powers / np.sum(powers, axis=-1, keepdims=True)


def _largest(x: Any) -> Any:
    return np.max(x, axis=-1, keepdims=True)


def test_the_error_of_the_largest_of_a_row_leaves_nothing_in_a_softmax() -> None:
    """That of a mean remains, because x - mean may be evaluated without a rounded mean."""
    centre = np.linspace(-1.0, 0.0, 16)[None]
    # The last element is the largest, and the one that is not exact.
    scores = Ball(centre, np.where(centre == 0.0, ONE_BY_ONE, 0.0), contract("float32"))
    of_largest = _exponentials(scores, _largest)
    other = Ball(np.zeros((1, 1)), np.full((1, 1), ONE_BY_ONE), contract("float32"))
    of_other = _exponentials(scores, lambda _: other)
    assert np.max(of_largest.radii()[0, :-1] / of_largest.centre[0, :-1]) < 1.5 * ONE_BY_ONE * of_largest.centre[0, -1]
    assert np.min(of_other.radii() / of_other.centre) > 2.0 * ONE_BY_ONE
    for error in (-ONE_BY_ONE, ONE_BY_ONE):
        moved = centre + np.where(centre == 0.0, error, 0.0)
        exact = np.exp(moved) / np.sum(np.exp(moved))
        assert np.all(np.abs(exact - of_largest.centre) <= of_largest.radii())


def test_an_error_of_a_row_passes_a_product_of_matrices_once() -> None:
    row: Any = ball(np.array([[1.0, 2.0, 4.0]]), contract("float32"))
    columns: Any = ball(np.array([[2.0], [1.0], [-1.0]]), contract("float32"))
    assert (np.matmul(row * _inexact([[5.0]], ONE_BY_ONE), columns).radii() < 1e-4).all()
    assert (np.matmul(row * _inexact([[5.0] * 3], ONE_BY_ONE), columns).radii() > 7 * ONE_BY_ONE).all()
    turned: Any = np.matmul(np.transpose(columns, (1, 0)), np.transpose(row, (1, 0)) * _inexact([[5.0]], ONE_BY_ONE))
    assert (turned.radii() < 1e-4).all()


# ------------------------------------------------------------------ attention, in the ways of kernels


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.mT) * 0.125
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (powers / powers.sum(-1, keepdim=True)) @ v


def _in_blocks(size: int) -> Callable[..., Tensor]:
    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        largest = torch.full_like(q[:, :1], -torch.inf)
        total, out = torch.zeros_like(largest), torch.zeros(len(q), v.shape[1])
        for keys, values in zip(k.split(size), v.split(size), strict=True):
            scores = (q @ keys.mT) * 0.125
            new = torch.maximum(largest, scores.amax(-1, keepdim=True)).detach()
            powers, again = torch.exp(scores - new), torch.exp(largest - new)
            total, out = total * again + powers.sum(-1, keepdim=True), out * again + powers @ values
            largest = new
        return out / total

    return kernel


def _in_parts(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Each part of the keys is normalised by itself, and the parts are weighted by their logarithms of sums."""
    parts, logarithms = [], []
    for keys, values in zip(k.chunk(2), v.chunk(2), strict=True):
        scores = (q @ keys.mT) * 0.125
        logarithms.append(torch.logsumexp(scores, -1, keepdim=True))
        parts.append(torch.exp(scores - logarithms[-1]) @ values)
    whole = torch.logsumexp(torch.cat(logarithms, -1), -1, keepdim=True)
    return torch.exp(logarithms[0] - whole) * parts[0] + torch.exp(logarithms[1] - whole) * parts[1]


def _gradients_of(formula: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *operands: vjp(formula, operands[:-1])[1](operands[-1])


def _fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], scale=0.125)[0]


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("kernel", [_in_blocks(1), _in_blocks(16), _in_parts, _fused])
@pytest.mark.parametrize("scale", [2.0**-12, 1.0, 8.0])
def test_attention_in_the_ways_of_kernels_is_held(kernel: Callable[..., Tensor], scale: float) -> None:
    for seed in range(3):
        q, k, v = draw((4, 64), (48, 64), (48, 8), seed=seed)
        tensors = [(q * scale).requires_grad_(), k.requires_grad_(), (v + seed).requires_grad_()]
        formula, arrays = traced(_attention, *tensors), [x.detach().double().numpy() for x in tensors]
        out, (g,) = kernel(*tensors), draw((4, 8), seed=100 + seed)
        terms = contract("float32", "cpu", 1)
        (value,) = balls(formula, arrays, terms)
        assert accepted(out.detach(), value).all()
        gradients = balls(_gradients_of(formula), [*arrays, g.double().numpy()], terms)
        for gradient, bound in zip(torch.autograd.grad(out, tensors, g), gradients, strict=True):
            assert accepted(gradient, bound).all()


def test_attention_that_is_off_by_the_width_of_three_balls_is_refused() -> None:
    """Half of that was in a radius that had the error of the largest score and of the sum twice."""
    tensors = draw((16, 64), (128, 64), (128, 64))
    (bound,) = balls(traced(_attention, *tensors), [x.double().numpy() for x in tensors], contract("float32"))
    out = _attention(*tensors)
    assert accepted(out, bound).all()
    assert not accepted(out * 1.0005, bound).all(axis=None)
    assert np.median(bound.radii() / np.abs(bound.centre)) < 5e-4


# --------------------------------------------------------------------- gradients, evaluated as people evaluate them


def _sum(x: Tensor, rng: Any) -> Tensor:
    """Along the last axis, one element after the other in a random order, or as torch sums."""
    if rng.random() < 0.3:
        return x.sum(-1, keepdim=True)
    first, *rest = rng.permutation(x.shape[-1])
    total = x[..., first : first + 1]
    for i in rest:
        total = total + x[..., i : i + 1]
    return total


def _mean(x: Tensor, rng: Any) -> Tensor:
    return _sum(x, rng) / x.shape[-1]


def _norm(x: Tensor, rng: Any) -> Tensor:
    centred = x - _mean(x, rng)
    return centred * (1 / (_mean(centred * centred, rng) + 1e-5).sqrt())


def _norm_closed(x: Tensor, g: Tensor, rng: Any) -> Tensor:
    """r (g − mean(g) − x̂ mean(g x̂)), with the moments of Welford."""
    mean, moment = torch.zeros_like(x[..., :1]), torch.zeros_like(x[..., :1])
    for i in range(x.shape[-1]):
        new = x[..., i : i + 1]
        before, mean = new - mean, mean + (new - mean) / (i + 1)
        moment = moment + before * (new - mean)
    r = 1 / (moment / x.shape[-1] + 1e-5).sqrt()
    normalized = (x - mean) * r
    return r * (g - _mean(g, rng) - normalized * _mean(g * normalized, rng))


def _weights(x: Tensor) -> Tensor:
    return (x - x.amax(-1, keepdim=True).detach()).exp()


def _softmax_closed(x: Tensor, g: Tensor, rng: Any) -> Tensor:
    p = _weights(x) * (1 / _sum(_weights(x), rng))
    return p * (g - _sum(p * g, rng))


def _log_softmax(x: Tensor, rng: Any) -> Tensor:
    centred = x - x.amax(-1, keepdim=True).detach()
    return centred - _sum(centred.exp(), rng).log()


def _by_autograd(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def gradient(x: Tensor, g: Tensor, rng: Any) -> Tensor:
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(function(leaf, rng), leaf, g)[0]

    return gradient


def _group(x: Tensor, rng: Any) -> Tensor:
    return torch.nn.functional.group_norm(x.reshape(len(x), -1, 1), 1).reshape(x.shape)


#: Formula of a row, its other arguments, and right evaluations of its gradient.
GRADIENTS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]], tuple[Callable[..., Tensor], ...]]] = {
    "layer norm": (layer_norm, lambda n: ((n,),), (
        _by_autograd(_norm), _norm_closed,
        _by_autograd(lambda x, rng: torch.nn.functional.layer_norm(x, x.shape[-1:])),
    )),
    "group norm": (group_norm, lambda n: (1,), (_by_autograd(_norm), _norm_closed, _by_autograd(_group))),
    "softmax": (softmax, lambda n: (1,), (
        _by_autograd(lambda x, rng: _weights(x) / _sum(_weights(x), rng)), _softmax_closed,
        _by_autograd(lambda x, rng: x.softmax(-1)),
    )),
    "log softmax": (log_softmax, lambda n: (1,), (
        _by_autograd(_log_softmax), _by_autograd(lambda x, rng: x.log_softmax(-1)),
    )),
}  # fmt: skip


def _gradient(op: Callable[..., Any], operands: tuple[Any, ...]) -> Callable[..., Any]:
    """The gradient of an op in its first argument, with its algorithms."""

    def of(one: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, g: vjp(lambda leaf: one(leaf, *operands), (x,))[1](g)

    formula = of(op)
    for other in algorithms(op):
        algorithm_of(formula)(of(other))
    return formula


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("name", GRADIENTS)
def test_right_evaluations_of_a_gradient_stay_in_their_accept_sets(name: str) -> None:
    op, others, evaluations = GRADIENTS[name]
    largest = 0.0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = (2, 3, 4, 7, 9, 16, 33)[seed % 7]
        offset = (0.0, 1.0, 30.0, 3000.0)[seed % 4] if "norm" in name else 0.0
        x = torch.from_numpy(rng.standard_normal((64, n)) * 3 + offset).float()
        g = torch.from_numpy(rng.standard_normal((64, n)) + 10 * (seed % 3 == 0)).float()
        values = [x.double().numpy(), g.double().numpy()]
        (ball,) = balls(_gradient(op, others(n)), values, contract("float32", "cpu", 1))
        for evaluation in evaluations:
            places = accept.place_in_accept_sets(evaluation(x, g, rng).double().numpy(), BINARY32, ball, None)
            assert places.accepted.all(), f"seed={seed}: {places.ratio.max():.3g} bounds"
            largest = max(largest, float(places.ratio.max()))
    assert largest > 0.05, f"largest error/bound {largest}: the bound is too loose to see a fault"


def test_a_slope_that_is_off_by_a_millionth_is_seen() -> None:
    """The bound of a short row's gradient is small enough for that, which it is not without common errors."""
    rng = np.random.default_rng(3)
    x, g = (torch.from_numpy(rng.standard_normal((64, 8))).float() for _ in range(2))
    right = _norm_closed(x, g, rng)
    centred = (x - x.mean(-1, keepdim=True)).double()
    wrong = (right.double() + 8e-6 * centred).float()
    ball, *_ = balls(_gradient(layer_norm, ((8,),)), [x.double().numpy(), g.double().numpy()], contract("float32"))
    assert accept.place_in_accept_sets(right.double().numpy(), BINARY32, ball, None).accepted.all()
    assert not accept.place_in_accept_sets(wrong.double().numpy(), BINARY32, ball, None).accepted.all()


def test_results_do_not_keep_the_balls_that_they_come_from() -> None:
    """Relations to those serve the steps of a formula, and a result is kept long after the last of these."""
    sources: list[Any] = []

    def normed(x: Any) -> Any:
        scale = 1.0 / np.sqrt(np.sum(np.square(x), axis=-1, keepdims=True))
        out = x * scale
        sources.extend([weakref.ref(scale), weakref.ref(out)])
        assert out.common
        return out * 3.0

    gc.disable()
    try:
        (result,) = balls(normed, [np.arange(12.0).reshape(3, 4)], contract("float32"))
        assert result.radii().any()
        assert [each() for each in sources] == [None, None]
    finally:
        gc.enable()
