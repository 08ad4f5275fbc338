"""Graphs that inductor has compiled are held forward and backward, from each result as it was computed."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import opassay
from opassay.oracles.verdicts.verdict import Outcome
from opassay.properties.watch.call import DispatcherCall, Origin, Switches
from opassay.properties.watch.compiled import GraphRegion, compile_inner
from opassay.properties.watch.judging import CallJudge
from opassay.properties.watch.recorder import Recorder, active_recorder

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


def test_a_half_result_goes_on_as_it_was_before_its_rounding() -> None:
    """A compiler may keep a sum that it stores in bfloat16; a library that multiplies matrices has what is stored."""

    def function(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = a + b
        return total, total.view(-1).float().exp(), total.t() @ w

    torch.manual_seed(0)
    a, b, w = (torch.randn(16, 16).bfloat16() for _ in range(3))
    total, power, product = function(a, b, w)
    wide = a.float() + b.float()
    leaves, structure = pytree.tree_flatten(((a, b, w), {}))
    region = GraphRegion("graph", make_fx(function)(a, b, w))

    def title(*results: torch.Tensor) -> str:
        call = DispatcherCall(region, tuple(leaves), structure, results, Origin(), Switches(), 0)
        finding = CallJudge().hold(call)
        assert finding.reason == ""
        return "" if finding.wrong is None else finding.wrong.title.partition("[")[0]

    unrounded = wide.view(-1).exp()
    assert not torch.equal(unrounded, power)
    assert [title(total, some, product) for some in (power, unrounded)] == ["", ""]
    assert title(total, (total.view(-1).float() * (1 + 2.0**-7)).exp(), product) == "exp"
    assert title(total, power, (wide.t() @ w.float()).bfloat16()) == "mm"


def _quantize(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the second result what stands for the operation knows nothing."""
    rounded, inside = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 0, -8, 7)
    return rounded.t().exp(), inside


def test_an_operation_of_which_the_first_result_alone_is_known_is_read_in_a_graph() -> None:
    x = torch.linspace(-1.5, 1.5, 12).reshape(3, 4)
    region, results = GraphRegion("graph", make_fx(_quantize)(x)), _quantize(x)
    leaves, structure = pytree.tree_flatten(((x,), {}))
    call = DispatcherCall(region, tuple(leaves), structure, results, Origin(), Switches(), 0)
    right = CallJudge().hold(call)
    assert (right.reason, right.wrong) == ("", None)
    call.results = (results[0] * 1.001, results[1])
    wrong = CallJudge().hold(call).wrong
    assert wrong is not None
    assert wrong.title.startswith("exp[")


class _GraphCall(torch.autograd.Function):
    """A graph as a region of a program, without a compiler."""

    @staticmethod
    def forward(ctx: Any, graph: torch.fx.GraphModule, *args: torch.Tensor) -> Any:
        recorder, state = active_recorder(), torch.get_rng_state()
        assert recorder is not None
        output, call = recorder.record_region(GraphRegion("graph", graph), args, {}, lambda: graph(*args))
        call.generator = state
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return None, gradients[1], None


def _mix(x: torch.Tensor, mean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Choices, draws, and memory that is written."""
    y = torch.tanh(x @ x)
    z = torch.where(y > 0.1, y.exp(), y) * torch.rand(5, 5)
    mean.copy_(mean * 0.9 + z.mean())
    return z.square().mean(), y


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_graph_is_made_again_in_float64_with_what_it_drew_and_chose(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    region: Any = _GraphCall
    x, mean = torch.randn(5, 5).to(dtype), torch.ones((), dtype=dtype)
    graph = make_fx(_mix)(x, mean.clone())
    x.requires_grad_()
    torch.manual_seed(3)
    with opassay.watch() as watcher:
        middle, y = region.apply(graph, x, mean)
        loss = middle * y.sum() * mean
        loss.backward()
    torch.manual_seed(3)
    wide = x.detach().double()
    right = torch.tanh(wide @ wide)
    z = torch.where(y > 0.1, right.exp(), right) * torch.rand(5, 5)
    error = float(loss.detach().double() - z.square().mean() * right.sum() * (0.9 + z.mean()))
    assert watcher.result is not None
    facts = watcher.result.loss
    assert facts is not None
    assert facts.unknown == ()
    assert abs(facts.error - error) <= 1e-5 * facts.size
    assert abs(facts.explained - error) <= 0.01 * facts.size
    assert watcher.ledger is not None
    (call,) = watcher.ledger.regions()
    assert CallJudge().hold(call).wrong is None
    call.results = (*call.results[:-1], call.results[-1] * 1.1)
    wrong = CallJudge().hold(call).wrong
    assert wrong is not None
    assert wrong.title.startswith("copy_")


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
    assert watcher.result is not None
    facts = watcher.result.loss
    assert facts is not None
    assert facts.error
    assert abs(facts.error - facts.explained) <= 0.01 * facts.size


@pytest.mark.slow
def test_a_gradient_is_followed_through_compiled_graphs() -> None:
    torch.manual_seed(2)
    torch._dynamo.reset()
    model, x = _mlp(), torch.randn(6, 8)
    exact = copy.deepcopy(model).double()
    compiled = torch.compile(model, backend=opassay.watched("inductor"))
    with opassay.watch(model, of="model.0.weight.grad[0, 0]") as watcher:
        compiled(x).square().mean().backward()
    exact(x.double()).square().mean().backward()
    computed, right = (next(each.parameters()).grad for each in (model, exact))
    assert computed is not None
    assert right is not None
    error = float(computed[0, 0].double() - right[0, 0])
    assert watcher.result is not None
    facts = watcher.result.loss
    assert facts is not None
    assert abs(facts.error - error) <= 1e-5 * facts.size
    assert abs(facts.explained - error) <= 0.01 * facts.size


class _Recomputed(nn.Module):
    """Draws in a part that is computed again for its gradients, and a factor, which is checked in order."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = checkpoint(self.part, x, use_reentrant=False)
        factor: torch.Tensor = torch.linalg.cholesky(y @ y.t() + torch.eye(len(y)))
        return factor


@pytest.mark.slow
def test_parts_that_are_computed_again_and_effects_in_order_are_read() -> None:
    watcher = _watch(_Recomputed(), lambda m: m(torch.randn(4, 8)).square().mean())
    assert _outcomes(watcher) == [Outcome.VERIFIED, Outcome.VERIFIED]
    assert watcher.result is not None
    facts = watcher.result.loss
    assert facts is not None
    assert facts.error  # it could be made again in float64
    assert abs(facts.error - facts.explained) <= 0.01 * facts.size


@pytest.mark.slow
def test_a_graph_without_an_operation_runs() -> None:
    graph = torch.fx.symbolic_trace(lambda x: x)
    x = torch.randn(3)
    assert compile_inner(graph, [x])([x]) is x


def test_another_backend_is_refused() -> None:
    with pytest.raises(ValueError, match="backend: got 'eager'"):
        opassay.watched("eager")
