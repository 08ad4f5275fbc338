"""The losses' ops under torch.library.opcheck, and what the cells leave open of vmap and autocast."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from opassay.impl import cross_entropy, nll_loss

T = torch.tensor([0, 2, -100])


def _opcheck_arguments() -> dict[str, tuple[Any, ...]]:
    torch.manual_seed(0)
    x, w = torch.randn(3, 4, dtype=torch.float64, requires_grad=True), torch.rand(4, dtype=torch.float64)
    w.requires_grad_()
    g = torch.randn(3, dtype=torch.float64, requires_grad=True)
    one = g.detach()[0].clone().requires_grad_()
    batch = torch.stack([T, T.roll(1)])
    both = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    return {
        "nll_loss mean": (x, T, w, 1, -100, 0),
        "nll_loss none": (x, T, None, 0, -100, 0),
        "nll_loss_forward batched": (both, batch, w, 2, -100, 1),
        "nll_loss_backward sum": (one, T, w, 4, -100, 0, torch.float64),
        "nll_loss_backward none": (g, T, None, 4, -100, 0, torch.float64),
        "nll_loss_total_weight": (w, T, -100, 0),
        "cross_entropy mean": (x, T, w, 1, -100, 0.1, 0),
        "cross_entropy without weight": (x, T, None, 1, -100, 0.0, 0),
        "cross_entropy batched": (both, batch, None, 0, -100, 0.0, 1),
        "cross_entropy_backward sum": (one, x, T, w, -100, 0.1, 0),
        "cross_entropy_backward none": (g, x, T, None, -100, 0.0, 0),
    }


@pytest.mark.one_fast_in(11)
@pytest.mark.parametrize("name", _opcheck_arguments())
def test_opcheck(name: str) -> None:
    op = getattr(torch.ops.opassay, name.split()[0]).default
    assert set(torch.library.opcheck(op, _opcheck_arguments()[name]).values()) == {"SUCCESS"}


@pytest.mark.parametrize("loss", [nll_loss, cross_entropy])
def test_per_sample_gradients(loss: Any) -> None:
    """vmap of grad is the gradient of every sample alone."""
    torch.manual_seed(0)
    x, t = torch.randn(5, 4), torch.randint(0, 4, (5,))
    each = torch.stack([grad(loss)(a, b) for a, b in zip(x, t, strict=True)])
    u = torch.finfo(torch.float32).eps
    assert ((vmap(grad(loss))(x, t) - each).abs() <= 8 * u).all()  # of probabilities: each below 1, a few roundings


@pytest.mark.parametrize("loss", [nll_loss, cross_entropy])
@pytest.mark.parametrize("in_dims", [(None, 0), (0, None), (0, 0)])
def test_autocast_under_vmap(loss: Any, in_dims: tuple[int | None, int | None]) -> None:
    """float32, with an input that is batched or not."""
    x, t = torch.randn(2, 3, 4).bfloat16(), torch.stack([T, T])
    args = (x if in_dims[0] == 0 else x[0], t if in_dims[1] == 0 else t[0])
    with torch.autocast("cpu", torch.bfloat16):
        assert vmap(loss, in_dims)(*args).dtype is torch.float32
    assert vmap(loss, in_dims)(*args).dtype is torch.bfloat16


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_weight_that_carries_two_gradients(smoothing: float) -> None:
    """Mixed derivatives in input and weight, the total weight's part included, in either order of taking them."""
    torch.manual_seed(0)
    x, w = torch.randn(3, 4, dtype=torch.float64), torch.rand(4, dtype=torch.float64) + 0.5

    def f(x: Tensor, w: Tensor) -> Tensor:
        return cross_entropy(x, T, w, -100, "mean", smoothing)

    one = torch.func.jacrev(grad(f, 0), 1)(x, w)
    other = torch.func.jacrev(grad(f, 1), 0)(x, w).movedim(0, -1)
    u = torch.finfo(torch.float64).eps
    assert ((one - other).abs() <= 64 * u * one.abs().max()).all()


@pytest.mark.parametrize("loss", [nll_loss, cross_entropy])
@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 1.0, -1.0, 2.0])])
def test_a_total_weight_of_zero_does_not_spread(loss: Any, weight: Tensor | None) -> None:
    """The gradient of an ignored row is 0, and so is what changes of it, though the mean is a quotient by 0."""
    t = torch.tensor([0, 2]) if weight is not None else torch.tensor([-100, -100])
    x = torch.cat((torch.zeros(2, 4), torch.ones(1, 4)))
    target = torch.cat((t, torch.tensor([-100])))
    hessian = torch.func.hessian(lambda row: loss(torch.cat((x[:2], row)), target, weight))(x[2:])
    assert torch.equal(hessian, torch.zeros(1, 4, 1, 4))


def _second(x: Tensor, target: Tensor, v: Tensor) -> Tensor:
    """The derivative of <v, gradient of the summed loss> in x."""
    x = x.detach().requires_grad_()
    (first,) = torch.autograd.grad(cross_entropy(x, target, reduction="sum"), x, create_graph=True)
    (second,) = torch.autograd.grad(first, x, v)
    return second


def test_an_ignored_position_has_no_second_derivative_whatever_it_holds() -> None:
    torch.manual_seed(0)
    x, v, target = torch.randn(3, 4), torch.randn(3, 4), torch.tensor([1, -100, 3])
    x[1] = torch.nan
    second = _second(x, target, v)
    assert torch.equal(second[1], torch.zeros(4))
    # Without the position no scores are masked, and the others have the same derivatives to the bit.
    rest = [0, 2]
    assert torch.equal(second[rest], _second(x[rest], target[rest], v[rest]))
