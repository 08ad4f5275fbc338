"""Gradients and losses as everybody computes them are right, also where a careful text has more digits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from opassay.oracles.bound import accept
from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import balls
from opassay.oracles.specs import traced
from opassay.reference.derivative import vjp
from opassay.reference.formats import FORMATS
from tests.oracles.spec_judging import Spec, name_of, read

DTYPES = (torch.float32, torch.float64)
INFINITE = float("inf")


def _inside(computed: Tensor, ball: Any) -> bool:
    """Whether every element is judged and accepted."""
    places = accept.place_in_accept_sets(
        computed.detach().double().numpy(), FORMATS[name_of(computed.dtype)], ball, None, order=1
    )
    return bool(places.accepted.all())


def _gradient_is_right(candidate: Spec, spec: Spec, x: Tensor, *rest: Tensor) -> bool:
    """Whether torch's gradient of the candidate in its first argument is in the ball of the spec's."""
    leaf = x.clone().requires_grad_()
    out = candidate(leaf, *rest)
    cotangent = torch.linspace(-1.0, 2.0, out.numel(), dtype=x.dtype).reshape(out.shape)
    (slope,) = torch.autograd.grad(out, leaf, cotangent)
    formula = traced(spec, x, *rest)
    fixed = [t.double().numpy() if t.dtype.is_floating_point else t.numpy() for t in rest]

    def pulled(a: Any, g: Any) -> Any:
        return vjp(lambda b: formula(b, *fixed)[0], (a,))[1](g)[0]

    operands = [x.double().numpy(), cotangent.double().numpy()]
    return _inside(slope, balls(pulled, operands, contract(name_of(x.dtype), order=1))[0])


def _is_right(candidate: Spec, spec: Spec, x: Tensor, *rest: Tensor) -> bool:
    fixed = functools.partial(_with, spec, rest)
    value = _inside(candidate(x, *rest), read(fixed, (x,))[0])
    return value and _gradient_is_right(candidate, spec, x, *rest)


def _with(spec: Spec, rest: tuple[Tensor, ...], x: Tensor) -> Tensor:
    result: Tensor = spec(x, *rest)
    return result


def _draw(dtype: torch.dtype, scale: float, *shape: int) -> Tensor:
    return (torch.from_numpy(np.random.default_rng(3).standard_normal(shape)) * scale).to(dtype)


def _largest_first(x: Tensor, y: Tensor) -> Tensor:
    return torch.clamp(x, min=0) - x * y + torch.log1p(torch.exp(-x.abs()))


def _softplus(x: Tensor, y: Tensor) -> Tensor:
    return (1 - y) * F.softplus(x) + y * F.softplus(-x)


def _each(x: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(x, y, reduction="none")


def _weighted(x: Tensor, y: Tensor) -> Tensor:
    many = torch.linspace(0.5, 5.0, x.shape[-1], dtype=x.dtype)
    return F.binary_cross_entropy_with_logits(x, y, weight=many.flip(0), pos_weight=many)


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
def test_cross_entropy_of_logits_has_the_slope_of_a_sigmoid(scale: float, dtype: torch.dtype) -> None:
    x = _draw(dtype, scale, 8, 32)
    soft = torch.linspace(0.0, 1.0, 256, dtype=dtype).reshape(8, 32)
    for labels in (soft.round(), soft):
        for loss in (_each, _weighted):
            assert _is_right(loss, loss, x, labels)
        assert _is_right(_largest_first, _each, x, labels)
        if dtype == torch.float32 or scale == 1.0:  # Beyond 20 torch's softplus leaves the exponential out.
            assert _is_right(_softplus, _each, x, labels)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cross_entropy_of_logits_keeps_its_digits_at_label_1(dtype: torch.dtype) -> None:
    x, y = torch.arange(1, 17, dtype=dtype) + 0.3, torch.ones(16, dtype=dtype)
    ball = read(lambda x: _each(x, y), (x,))[0]
    assert all(_inside(text(x, y), ball) for text in (_largest_first, _softplus, _each))
    for wrong in (
        torch.clamp(x, min=0) - x * y + torch.log(1 + torch.exp(-x.abs())), F.softplus(x) - x * y, -x.sigmoid().log()
    ):  # fmt: skip
        assert not _inside(wrong, ball)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_wrong_slope_of_cross_entropy_is_refused(dtype: torch.dtype) -> None:
    x, y = _draw(dtype, 3.0, 8, 32), torch.linspace(0.0, 1.0, 256, dtype=dtype).reshape(8, 32).round()

    def with_two_terms(x: Tensor, y: Tensor) -> Tensor:
        decay = torch.exp(-x.abs())
        return torch.clamp(x, min=0) - x * y + decay - 0.5 * decay**2

    assert not _is_right(with_two_terms, _each, x, y)

    def favoured(x: Tensor, y: Tensor) -> Tensor:
        many = torch.tensor(1.00001, dtype=x.dtype)
        return F.binary_cross_entropy_with_logits(x, y, reduction="none", pos_weight=many)

    for fault in (lambda x, y: _each(x, y * 0.999999), lambda x, y: _each(x, y) * (1.0 + 4e-6), favoured):
        assert not _gradient_is_right(fault, _each, x, y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_divisor_of_a_cross_entropy_is_bounded_from_below(dtype: torch.dtype) -> None:
    x = torch.tensor([0.3, 0.9, 1e-20, 1e-13, 1e-11, 1.0 - 2.0**-24, 0.0, 1.0], dtype=dtype)
    for y in (torch.zeros_like(x), torch.ones_like(x)):
        assert _is_right(F.binary_cross_entropy, F.binary_cross_entropy, x, y)

    def unbounded(x: Tensor, y: Tensor) -> Tensor:
        return -(y * torch.log(x) + (1.0 - y) * torch.log(1.0 - x)).mean()

    # The other way is right, too, and a slope of another divisor is not.
    assert _gradient_is_right(unbounded, F.binary_cross_entropy, x[:2], torch.ones(2, dtype=dtype))
    assert not _gradient_is_right(
        lambda x, y: F.binary_cross_entropy(x + 1e-6, y), F.binary_cross_entropy, x[:2], torch.ones(2, dtype=dtype)
    )


SLOPES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "expm1": (torch.expm1, torch.expm1),
    "elu by expm1": (lambda x: torch.where(x > 0, x, torch.expm1(x)), F.elu),
    "mish": (F.mish, F.mish),
    "xlogy": (lambda x: torch.xlogy(x.abs(), x.abs()), lambda x: torch.xlogy(x.abs(), x.abs())),
    "logcumsumexp": (lambda x: torch.logcumsumexp(x, 1), lambda x: torch.logcumsumexp(x, 1)),
    "soft margin": (
        lambda x: F.soft_margin_loss(x, x.detach().sign()), lambda x: F.soft_margin_loss(x, x.detach().sign()),
    ),
}  # fmt: skip
#: What is refused at N(0, 1).
FAULTS: dict[str, Callable[..., Any]] = {
    "expm1": lambda x: torch.expm1(x) + 1e-5 * x,
    "mish": lambda x: F.mish(x) * (1.0 + 3e-6),
    "logcumsumexp": lambda x: torch.logcumsumexp(x, 1) + 3e-5 * x,
}


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SLOPES)
def test_a_slope_of_the_saved_result_is_right(name: str, dtype: torch.dtype) -> None:
    candidate, spec = SLOPES[name]
    for scale in (1.0, 10.0, 100.0):
        x = _draw(dtype, scale, 8, 16)
        x[0, :3] = 0.0
        if name != "elu by expm1" or dtype == torch.float32:
            assert _gradient_is_right(spec, spec, x)
        text = (lambda x: torch.where(x > 0, x, torch.expm1(x))) if name == "elu by expm1" else spec
        assert _gradient_is_right(candidate, text, x)
    if name in FAULTS:
        assert not _gradient_is_right(FAULTS[name], spec, _draw(dtype, 1.0, 8, 16))


def test_a_slope_that_is_no_number_in_torch_is_right_beside_one_that_is() -> None:
    x = torch.tensor([[0.0, 0.5, 1.0, 2.0]])
    assert _gradient_is_right(lambda x: torch.xlogy(x, x), lambda x: torch.xlogy(x, x), x)

    def by_entropy(x: Tensor) -> Tensor:
        entropy: Tensor = torch.special.entr(x)
        return -entropy

    (slope,) = torch.autograd.grad(by_entropy(leaf := x.clone().requires_grad_()).sum(), leaf)
    assert not torch.isnan(slope).any()
    assert not _gradient_is_right(lambda x: torch.xlogy(x, 0.5 * x), lambda x: torch.xlogy(x, x), x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_margins_that_are_just_kept_have_no_slope(dtype: torch.dtype) -> None:
    x = torch.from_numpy(np.random.default_rng(1).integers(-2, 3, (8, 16)).astype(float)).to(dtype)
    target, weight = torch.arange(8), torch.linspace(0.5, 2.0, 16, dtype=dtype)
    for power, operands in ((1, None), (1, weight), (2, weight)):
        for reduction in ("none", "mean", "sum"):

            def loss(x: Tensor, p: int = power, w: Tensor | None = operands, how: str = reduction) -> Tensor:
                return F.multi_margin_loss(x, target, p, weight=w, reduction=how)

            assert _is_right(loss, loss, x)
    assert not _is_right(lambda x: F.multi_margin_loss(x, target, margin=1.001), loss, x)


def _aligned(x: Tensor) -> Tensor:
    labels = torch.tensor([[1, 2, 2, 3], [2, 2, 4, 1], [1, 3, 4, 2]])
    steps, lengths = torch.tensor([9, 7, 3]), torch.tensor([4, 2, 4])  # The last has too few steps.
    return F.ctc_loss(x, labels, steps, lengths, reduction="none")


@pytest.mark.fast_cases("dtype0")
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_of_alignments_may_be_made_of_logarithms(dtype: torch.dtype) -> None:
    for scale in (1.0, 20.0):
        x = torch.log_softmax(_draw(dtype, scale, 9, 3, 5), -1)
        assert _is_right(_aligned, _aligned, x)
        assert not _gradient_is_right(lambda x: _aligned(x * (1.0 + 1e-4)), _aligned, x)


def _accumulated(x: Tensor) -> Tensor:
    result = torch.full_like(x[:, 0], -INFINITE)
    for i in range(x.shape[1]):
        result = torch.logaddexp(result, x[:, i])
    return result


@pytest.mark.parametrize("dtype", DTYPES)
def test_logarithms_are_added_up_from_minus_infinity(dtype: torch.dtype) -> None:
    x = _draw(dtype, 3.0, 4, 8)
    x[0, 0] = x[1, 3] = -INFINITE
    x[2, :5] = -INFINITE
    ball = read(_accumulated, (x,))[0]
    assert np.isfinite(ball.radii()).all()
    assert ball.radii().max() < 32 * torch.finfo(dtype).eps * 10.0
    assert _inside(torch.logsumexp(x, 1), ball)
    assert not _inside(torch.logsumexp(x, 1) * (1.0 + 32 * torch.finfo(dtype).eps), ball)
    nothing = read(_accumulated, (torch.full((1, 3), -INFINITE, dtype=dtype),))[0]
    assert nothing.centre == -INFINITE
    assert nothing.radii() == 0.0
    pair = read(torch.logaddexp, (torch.tensor([-INFINITE, 2.0]), torch.tensor([3.0, -INFINITE])))
    assert (pair[0].radii() < 1e-6).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_clamp_between_equal_ends_has_the_slopes_that_torch_takes(dtype: torch.dtype) -> None:
    low, x, high = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 2.0, -1.0, 1.0], [1.0, 1.0, 2.0, 2.0]], dtype=dtype)

    def clamped(low: Tensor, x: Tensor, high: Tensor) -> Tensor:
        return torch.clamp(x, low, high)

    def upper_alone(low: Tensor, x: Tensor, high: Tensor) -> Tensor:
        return torch.where(x > high, high, torch.where(x < low, low.detach() + 0 * low, x))

    assert _gradient_is_right(clamped, clamped, low, x, high)
    assert not _gradient_is_right(upper_alone, clamped, low, x, high)
