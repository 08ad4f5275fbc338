"""Graphs that inductor has compiled are held forward and backward, from each result as it was computed."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import opassay
from opassay.oracles.verdicts.verdict import Outcome
from opassay.properties.watch.compiled import GraphRegion
from opassay.properties.watch.judging import CallJudge
from opassay.properties.watch.recorder import Recorder

Loss = Callable[..., torch.Tensor]
#: torch says that hooks on all modules see a compiled module as well, which ours know.
pytestmark = pytest.mark.filterwarnings("ignore:Using `torch.compile", "ignore:`torch.jit")


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.LayerNorm(16), nn.Linear(16, 4))


def _watch(model: nn.Module, loss_of: Loss, *, dynamic: bool = False) -> opassay.Watcher:
    torch.manual_seed(2)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=opassay.watched("inductor"), dynamic=dynamic or None)
    with opassay.watch(model) as watcher:
        loss_of(compiled).backward()
    return watcher


def _outcomes(watcher: opassay.Watcher) -> list[Outcome]:
    assert watcher.result is not None
    return [site.outcome for site in watcher.result.sites if site.kind == "region"]


def test_a_graph_is_held_from_each_result_as_it_was_computed() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        middle = torch.tanh(x) * 3
        return middle, middle.exp().view(-1)

    x = torch.randn(3, 4)
    graph = make_fx(function)(x)
    recorder = Recorder()
    recorder.start()
    try:
        recorder.record_region(GraphRegion("graph", graph), (x,), {}, lambda: function(x))
    finally:
        recorder.stop()
    (call,) = [each for each in recorder.store.calls if each.name == "graph"]
    assert CallJudge().hold(call).wrong is None
    middle, last = call.results
    # What follows goes on from the wrong number, and is right for it.
    call.results = (middle * 1.001, (middle * 1.001).exp().view(-1))
    wrong = CallJudge().hold(call).wrong
    assert wrong is not None
    assert wrong.title.startswith("mul[")
    call.results = (middle, last * 1.001)
    wrong = CallJudge().hold(call).wrong
    assert wrong is not None
    assert wrong.title.startswith("view[")


@pytest.mark.slow
def test_a_compiled_step_is_held_and_a_wrong_one_is_outside() -> None:
    watcher = _watch(_mlp(), lambda m: m(torch.randn(6, 8)).square().mean())
    assert _outcomes(watcher) == [Outcome.VERIFIED, Outcome.VERIFIED]
    assert watcher.result is not None
    assert dict(watcher.result.regions) == {}
    assert watcher.ledger is not None
    for call in watcher.ledger.regions():
        first, *rest = call.results
        call.results = (first * 1.001, *rest)
        wrong = CallJudge().hold(call).wrong
        assert wrong is not None
        assert re.match(r"\w+ \(\d\)\[", wrong.title)  # the operation, and its module


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_steps_are_held(dtype: torch.dtype, dynamic: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.GELU(approximate="tanh"), nn.Linear(16, 4)).to(dtype)
    watcher = _watch(model, lambda m: m(torch.randn(6, 8, dtype=dtype)).square().mean(), dynamic=dynamic)
    assert _outcomes(watcher) == [Outcome.VERIFIED, Outcome.VERIFIED]


@pytest.mark.slow
def test_compiled_convolutions_are_held() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    labels = torch.tensor([0, 1])
    watcher = _watch(model, lambda m: F.cross_entropy(m(torch.randn(2, 3, 8, 8)), labels))
    assert _outcomes(watcher) == [Outcome.VERIFIED, Outcome.VERIFIED]


def test_another_backend_is_refused() -> None:
    with pytest.raises(ValueError, match="backend: got 'eager'"):
        opassay.watched("eager")
