"""Grids, filters, alignments, counts and reductions at places: torch is accepted, and one mistake is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import balls
from opassay.oracles.specs import SpecCall, traced
from opassay.reference.choice import Choice
from opassay.reference.derivative import vjp
from opassay.reference.exact import evaluate, to_float_pair
from tests.specs import SAMPLED, gradients, make_example, values

TERMS = contract("float32")

#: Of every kind of rule a few; the command `benchmarks/specs_read.py` reads them all.
NAMES = (
    "grid_sample_bilinear_zeros", "grid_sample_nearest_reflection", "grid_sample_bicubic_border_corners",
    "grid_sample_volume", "affine_grid", "antialiased_bicubic", "conv_tbc", "ctc_loss_one_by_one", "searchsorted",
    "histc", "index_reduce_mean", "prod_of_all", "fold_unfold", "embedding_renormed", "gaussian_nll_loss_of_variances",
    "selu_in_place", "quantile", "bincount",
)  # fmt: skip
#: What torch 2.13 has no kernel for in bfloat16 on CPUs.
IN_FLOAT32_ALONE = ("antialiased", "ctc_loss", "quantile")


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("name", NAMES)
def test_torch_is_accepted(name: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        if dtype != torch.float32 and name.startswith(IN_FLOAT32_ALONE):
            continue
        example = make_example(name, SAMPLED[name], dtype)
        call = SpecCall.of(example.spec, *example.args)
        result = values(call, str(dtype).removeprefix("torch."), *call.outputs(*call.tensors))
        assert result.refusals == 0, result.line()
        assert result.judged > 0
    example = make_example(name, SAMPLED[name])
    result = gradients(SpecCall.of(example.spec, *example.args))
    assert result.refusals == 0, result.line()


_LABELS, _STEPS, _LENGTHS = torch.tensor([[1, 2, 2], [3, 1, 2]]), torch.tensor([7, 6]), torch.tensor([3, 2])


def _aligned(x: Tensor, labels: Tensor = _LABELS, steps: Tensor = _STEPS, blank: int = 0) -> Tensor:
    return F.ctc_loss(x.reshape(7, 2, 4).log_softmax(-1), labels, steps, _LENGTHS, blank)


def _sampled(x: Tensor, mode: str = "bilinear", padding: str = "zeros", corners: bool = False) -> Tensor:
    grid = torch.linspace(-1.2, 1.1, 24).reshape(1, 3, 4, 2)
    return F.grid_sample(x.reshape(1, 2, 4, 7), grid, mode, padding, corners)


def _resized(x: Tensor, mode: str = "bilinear", antialias: bool = True) -> Tensor:
    return F.interpolate(x.reshape(1, 1, 8, 7), size=(3, 4), mode=mode, antialias=antialias)


def _reduced(x: Tensor, how: str = "mean", with_itself: bool = True) -> Tensor:
    index = torch.tensor([0, 2, 0, 0])
    return x[:28].reshape(4, 7).index_reduce(0, index, x[28:].reshape(4, 7), how, include_self=with_itself)


def _count(x: Tensor, least: float = -1.0) -> Tensor:
    return torch.histc(x, 5, least, 1.0)


#: A spec, and candidates with one mistake.
MISTAKES: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = (
    (_aligned, lambda x: _aligned(x) * (1 + 1e-4)),
    (_aligned, lambda x: _aligned(x, labels=torch.tensor([[1, 2, 3], [3, 1, 2]]))),
    (_aligned, lambda x: _aligned(x, steps=torch.tensor([7, 7]))),
    (_sampled, lambda x: _sampled(x, corners=True)),
    (_sampled, lambda x: _sampled(x, padding="border")),
    (_sampled, lambda x: _sampled(x) + 1e-3),
    (lambda x: _sampled(x, "nearest"), lambda x: _sampled(x, "nearest", corners=True)),
    (lambda x: _sampled(x, "bicubic", "reflection"), lambda x: _sampled(x, "bicubic", "border")),
    (_resized, lambda x: _resized(x, antialias=False)),
    (lambda x: _resized(x, "bicubic"), lambda x: _resized(x, "lanczos")),
    (_reduced, lambda x: _reduced(x, with_itself=False)),
    (_reduced, lambda x: _reduced(x) * (1 + 1e-5)),
    (lambda x: _reduced(x, "prod"), lambda x: _reduced(x, "mean")),
    (_count, lambda x: _count(x, -1.05)),
    (_count, lambda x: _count(x) + 1),
    (lambda x: torch.quantile(x, 0.3), lambda x: torch.quantile(x, 0.3, interpolation="lower")),
)


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize(("spec", "candidate"), MISTAKES)
def test_a_candidate_with_one_mistake_is_refused(spec: Callable[..., Any], candidate: Callable[..., Any]) -> None:
    x = torch.randn(56, generator=torch.Generator().manual_seed(5))
    call = SpecCall.of(spec, x)
    assert values(call, "float32", [spec(x)]).refusals == 0
    assert values(call, "float32", [candidate(x)]).refusals > 0


@pytest.mark.parametrize(
    "spec", [_aligned, _sampled, lambda x: _sampled(x, "bicubic", "reflection", True), _resized, _reduced, _count]
)
def test_the_exact_values_lie_in_the_balls(spec: Any) -> None:
    x = np.random.default_rng(1).standard_normal(56)
    formula = traced(spec, torch.ones(56))
    (exact,), _ = evaluate(formula, x)
    (ball,) = balls(formula, [x], TERMS)
    assert (np.abs(to_float_pair(exact)[0] - ball.centre) <= ball.radii()).all()


def test_a_point_on_the_edge_of_two_pixels_may_be_in_either() -> None:
    x = np.arange(8.0).reshape(1, 1, 1, 8)

    def spec(x: Tensor, at: Tensor) -> Tensor:
        return F.grid_sample(x, at, "nearest", align_corners=False)

    # The first is at 2.5 pixels and a little more, of which the sum with 1 loses all in float32.
    at = np.array([[[[3.0 / 4.0 - 1.0 + 2.0**-30, 0.0], [-0.6, 0.0]]]])
    (ball,) = balls(traced(spec, torch.ones(1, 1, 1, 8), torch.ones(1, 1, 2, 2)), [x, at], TERMS)
    assert ball.radii().ravel().tolist()[1] == 0
    assert ball.radii().ravel()[0] >= 0.5


def test_a_point_that_is_no_number_is_not_judged() -> None:
    at = np.array([[[[np.nan, 0.0], [0.0, 0.0]]]])
    spec = traced(
        lambda x, at: F.grid_sample(x, at, align_corners=True), torch.ones(1, 1, 3, 3), torch.ones(1, 1, 2, 2)
    )
    (ball,) = balls(spec, [np.ones((1, 1, 3, 3)), at], TERMS)
    assert np.isnan(ball.radii()[0, 0, 0, 0])
    assert np.isfinite(ball.radii()[0, 0, 0, 1])


def test_a_place_among_bounds_is_open_where_a_comparison_is() -> None:
    bounds = np.array([0.0, 1.0, 2.0])
    formula = traced(lambda x, b: torch.bucketize(x / 3 * 3, b), torch.ones(2), torch.ones(3))
    (places,) = balls(formula, [np.array([1.0, 1.5]), bounds], TERMS)
    assert isinstance(places, Choice)
    assert places.accepts(np.array([1, 2])).all()
    assert places.accepts(np.array([2, 2])).all()
    assert places.accepts(np.array([0, 1])).tolist() == [False, False]


def test_among_bounds_in_no_order_any_place_is_right() -> None:
    formula = traced(torch.bucketize, torch.ones(2), torch.ones(3))
    (places,) = balls(formula, [np.array([0.5, 9.0]), np.array([1.0, 0.0, 2.0])], TERMS)
    assert isinstance(places, Choice)
    assert places.accepts(np.array([3, 0])).all()
    assert places.accepts(np.array([4, -1])).any() == np.False_


def test_labels_that_do_not_fit_have_an_infinite_loss() -> None:
    def spec(x: Tensor) -> Tensor:
        labels, few = torch.tensor([[1, 1, 1]]), torch.tensor([4])
        return F.ctc_loss(x.log_softmax(-1), labels, few, torch.tensor([3]), reduction="none")

    (loss,) = balls(traced(spec, torch.ones(4, 1, 3)), [np.zeros((4, 1, 3))], TERMS)
    assert loss.centre.tolist() == [np.inf]


def test_the_module_of_a_custom_function_has_the_derivatives_of_what_it_computes() -> None:
    # torch's own derivative of this module is that of another window.
    generator = torch.Generator().manual_seed(2)
    x, g = (torch.randn(1, 5, 2, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    module = nn.CrossMapLRN2d(3, 0.01)
    formula = traced(module, x.float())
    (value,) = balls(formula, [x.numpy()], TERMS)
    assert (np.abs(value.centre - module(x).numpy()) <= value.radii()).all()
    (slope,) = balls(lambda a, b: vjp(formula, [a])[1](b), [x.numpy(), g.numpy()], TERMS)
    step = 1e-6 * torch.randn(x.shape, generator=generator, dtype=torch.float64)
    moved = ((module(x + step) - module(x - step)) * g).sum() / 2
    assert abs(float(moved) - float((slope.centre * step.numpy()).sum())) < 1e-12
