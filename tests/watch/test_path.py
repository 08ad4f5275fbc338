"""The error of the loss is that of the same step in float64, and what the calls add to it adds up to all of it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import opassay
from opassay.oracles.verdicts.watched import LossFacts
from opassay.properties.watch.keeping import Keep
from opassay.properties.watch.regions import TABLE
from opassay.reports.watch.text import lines_of

Loss = Callable[[Any, torch.Tensor], Any]
#: Roundings of float64 in a step of these sizes are far below this part of the errors of float32.
_SMALL = 1e-5


def _watch(module: nn.Module, loss_of: Loss, x: torch.Tensor, keep: Keep | None = None) -> tuple[LossFacts, float]:
    """What is said of a loss, and its error against the same step in float64, with the same draws."""
    exact = copy.deepcopy(module).double()
    torch.manual_seed(3)
    with opassay.watch(module, keep=keep) as watcher:
        loss = loss_of(module, x)
        loss.backward()
    assert watcher.result is not None
    assert watcher.result.loss is not None
    torch.manual_seed(3)
    return watcher.result.loss, float(loss.detach().double() - loss_of(exact, x.double()).detach())


def _detached(module: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        aim = torch.softmax(module[0](x), -1)
    return F.kl_div(torch.log_softmax(module[0](x).detach() + module(x), -1), aim, reduction="batchmean")


def _sliced(module: Any, x: torch.Tensor) -> Any:
    y, table = module[0](x), x.new_zeros(len(x), 24)
    table[:, 4:16] = torch.tanh(y)
    table[:, :4] = y[:, :4].square()
    table[:, 2:6].mul_(3).add_(y[:, 3:7])
    return module[2](table.T.reshape(24, -1).T[:, 3:15].contiguous()).exp().mean()


def _complex(module: Any, x: torch.Tensor) -> Any:
    y = module[0](x)
    waves = torch.fft.rfft(y.to(torch.promote_types(y.dtype, torch.float32)))  # There are none of bfloat16.
    return (waves.conj() * waves.roll(1, 0)).imag.sum(-1).square().mean() + torch.view_as_real(waves)[
        ..., 1
    ].sum().exp()


def _inner_gradient(module: Any, x: torch.Tensor) -> Any:
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(torch.tanh(module[0](x)).sum(), x, create_graph=True)
    return slope.square().mean()


def _dropout(module: Any, x: torch.Tensor) -> Any:
    return F.dropout(module[0](x), 0.4).square().mean()


def _top(module: Any, x: torch.Tensor) -> Any:
    weights, places = torch.softmax(module[0](x), -1).topk(3, -1)
    return (weights * module[2].weight.sum(0)[places]).sum().exp()


def _align(module: Any, x: torch.Tensor) -> Any:
    y = module[0](x).reshape(9, 3, 4)
    chances = torch.log_softmax(y.to(torch.promote_types(y.dtype, torch.float32)), -1)
    return F.ctc_loss(chances, torch.tensor([[1, 2], [3, 3], [2, 1]]), torch.tensor([9, 7, 8]), torch.tensor([2, 1, 2]))


def _divided(module: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        y = module[0](x)
        y = torch.div(y, y.norm(), out=y)
    return (module[2](x) * y).sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "loss_of",
    [_detached, _sliced, _complex, _inner_gradient, _dropout, _top, _align, _divided],
    ids=lambda f: f.__name__,
)
def test_the_error_of_the_loss_is_told_and_explained(loss_of: Loss, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(12, 12), nn.GELU(), nn.Linear(12, 12)).to(dtype)
    facts, error = _watch(module, loss_of, torch.randn(9, 12, dtype=dtype))
    assert error
    assert abs(facts.error - error) <= _SMALL * facts.size
    assert abs(facts.explained - error) <= 0.01 * facts.size
    assert facts.unknown == ()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_results_that_share_memory_are_followed(kind: type[nn.Module]) -> None:
    torch.manual_seed(1)
    facts, error = _watch(kind(5, 7), lambda module, x: module(x)[0].square().mean(), torch.randn(4, 2, 5))
    assert abs(facts.error - error) <= _SMALL * facts.size
    assert abs(facts.explained - error) <= 0.01 * facts.size


class _Shift(torch.autograd.Function):
    """The identity, with the wrong sign."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(-np.asarray(x.detach().numpy()))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def _shifted(module: Any, x: torch.Tensor) -> Any:
    shift: Any = _Shift
    return torch.exp(shift.apply(torch.tanh(module(x)))).mean()


def test_a_large_fault_is_explained_where_first_order_has_the_wrong_size() -> None:
    torch.manual_seed(1)
    module, x = nn.Linear(6, 6), torch.randn(8, 6) + 1
    opassay.spec(_Shift, lambda x: x)
    try:
        facts, _ = _watch(module, _shifted, x)
    finally:
        del TABLE[_Shift]
    exact = torch.exp(torch.tanh(module(x).detach().double())).mean()
    error = float(torch.exp(-torch.tanh(module(x).detach().double())).mean() - exact)
    assert abs(facts.error - error) <= _SMALL * facts.size
    assert abs(facts.explained - error) <= 0.01 * facts.size


def _unseen(module: Any, x: torch.Tensor) -> Any:
    unseen: Any = _Unseen
    return torch.exp(unseen.apply(torch.tanh(module(x)))).mean()


@pytest.mark.parametrize("loss_of", [_unseen, _shifted], ids=lambda f: f.__name__)
def test_what_is_written_unseen_leaves_the_error_unknown(loss_of: Loss) -> None:
    torch.manual_seed(1)
    facts, _ = _watch(nn.Linear(6, 6), loss_of, torch.randn(8, 6))
    assert math.isnan(facts.error)
    assert facts.size > 0


class _Unseen(torch.autograd.Function):
    """Twice its operand, written as a kernel would write it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        y.numpy()[...] = 2 * x.detach().numpy()
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 2 * gradient


@pytest.mark.parametrize("keep", [Keep(per_site=1), Keep(modules=("2",))])
def test_calls_that_were_not_kept_leave_the_error_unknown(keep: Keep) -> None:
    module = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    facts, _ = _watch(module, lambda module, x: module(module(x)).square().mean(), torch.randn(8, 6), keep)
    assert math.isnan(facts.error)


def test_a_loss_of_float64_has_no_wider_one() -> None:
    facts, _ = _watch(nn.Linear(6, 6).double(), lambda m, x: m(x).square().mean(), torch.randn(8, 6).double())
    assert math.isnan(facts.error)


def test_each_loss_is_explained_with_the_parameters_that_it_had() -> None:
    torch.manual_seed(1)
    module, x = nn.Linear(6, 3), torch.randn(8, 6)
    optimizer, error = torch.optim.SGD(module.parameters(), 0.5), 0.0
    with opassay.watch(module) as watcher:
        for _ in range(3):
            exact = copy.deepcopy(module).double()
            loss = module(x).square().mean()
            loss.backward()
            error += float(loss.detach().double() - exact(x.double()).square().mean().detach())
            optimizer.step()
    assert watcher.result is not None
    facts = watcher.result.loss
    assert facts is not None
    assert abs(facts.error - error) <= _SMALL * facts.size
    text = " ".join(lines_of(watcher.result))
    assert "off that of the same calls in float64" in text
    assert "first order" not in text
