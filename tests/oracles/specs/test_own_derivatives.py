"""Specs that take derivatives themselves, by torch.func or by torch.autograd.grad."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import opassay


def _operands() -> tuple[Tensor, ...]:
    draws = torch.Generator().manual_seed(0)
    return tuple(torch.randn(shape, generator=draws) for shape in ((5, 2), (2, 8), (8,), (8, 1)))


def _hessians(x: Tensor, w: Tensor, b: Tensor, v: Tensor) -> Tensor:
    hessians: Tensor = torch.vmap(torch.func.hessian(lambda p: (torch.tanh(p @ w + b) @ v).sum()))(x)
    return hessians


def _hessians_by_hand(x: Tensor, w: Tensor, b: Tensor, v: Tensor) -> Tensor:
    y = torch.tanh(x @ w + b)
    return torch.einsum("nh,ih,jh->nij", -2 * y * (1 - y * y) * v.sum(1), w, w)


def _burgers(x: Tensor, w: Tensor, b: Tensor, v: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    u = torch.tanh(x @ w + b) @ v
    (slopes,) = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
    (second,) = torch.autograd.grad(slopes[:, 0].sum(), x, create_graph=True)
    return slopes[:, 1:] + u * slopes[:, :1] - 0.01 * second[:, :1]


def _burgers_with_grad(x: Tensor, w: Tensor, b: Tensor, v: Tensor) -> Tensor:
    with torch.enable_grad():
        return _burgers(x, w, b, v)


def _burgers_by_hand(x: Tensor, w: Tensor, b: Tensor, v: Tensor, power: int = 2) -> Tensor:
    y, of_all = torch.tanh(x @ w + b), v.sum(1, keepdim=True)
    slope = 1 - y * y
    second = (-2 * y * slope * w[0] ** power) @ of_all
    return (slope * w[1]) @ of_all + (y @ v) * ((slope * w[0]) @ of_all) - 0.01 * second


@pytest.mark.one_fast_in(4)
@pytest.mark.parametrize(
    ("spec", "candidate"),
    [
        (_hessians, _hessians_by_hand),
        (_burgers, _burgers_by_hand),
        (_burgers, _burgers),
        (_burgers_with_grad, _burgers_by_hand),
    ],
)
def test_derivatives_that_a_spec_takes_are_read(spec: Any, candidate: Any) -> None:
    judgement = opassay.judge(
        candidate, spec, _operands(), questions=["FWD:given", "FWD:seeds", "FWD:wide", "VJP:grad"]
    )
    assert judgement.verdict == "accepted", str(judgement)


@pytest.mark.fast_cases("_burgers")
@pytest.mark.parametrize("spec", [_burgers, _burgers_with_grad])
def test_a_wrong_second_derivative_is_rejected(spec: Any) -> None:
    judgement = opassay.judge(
        lambda x, w, b, v: _burgers_by_hand(x, w, b, v, power=1), spec, _operands(), questions=["FWD:given", "VJP:grad"]
    )
    assert {cause.question for cause in judgement.causes} == {"FWD:given", "VJP:grad"}


def test_what_a_spec_detaches_has_no_derivative() -> None:
    def spec(x: Tensor, w: Tensor) -> Tensor:
        with torch.enable_grad():
            p = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(torch.tanh(p * w).sum(), p, create_graph=True)
        return slope

    def candidate(x: Tensor, w: Tensor) -> Tensor:
        return w * (1 - torch.tanh(x.detach() * w) ** 2)

    x = _operands()[0]
    judgement = opassay.judge(candidate, spec, (x, x + 1), questions=["FWD:given", "VJP:grad"])
    assert judgement.verdict == "accepted", str(judgement)
    judgement = opassay.judge(
        lambda x, w: w * (1 - torch.tanh(x * w) ** 2), spec, (x, x + 1), questions=["FWD:given", "VJP:grad"]
    )
    assert [cause.question for cause in judgement.causes] == ["VJP:grad"]
