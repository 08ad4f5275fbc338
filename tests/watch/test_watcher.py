"""What is found about a program: calls outside their bounds, the error of the loss, and the first NaN."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import opassay
from opassay.oracles.verdicts.verdict import Outcome
from opassay.oracles.verdicts.watched import Watched
from opassay.properties.watch.call import DispatcherCall
from opassay.properties.watch.judging import CallJudge
from opassay.properties.watch.keeping import Keep
from opassay.properties.watch.sweep import sweep_back
from opassay.properties.watch.writers import MemoryPlace, Writing
from opassay.reports.watch.text import lines_of
from tests.watch.programs import PROGRAMS
from tests.watch.test_recorder import record


def _model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 7))


def _result(watcher: opassay.Watcher) -> Watched:
    assert watcher.result is not None
    return watcher.result


def _step(dtype: torch.dtype) -> tuple[Watched, float]:
    """A step that is watched, and the error of its loss against the same step in float64."""
    model = _model().to(dtype)
    exact = copy.deepcopy(model).double()
    x, y = torch.randn(9, 12, dtype=dtype), torch.randint(0, 7, (9,))
    with opassay.watch(model) as watcher:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
    return _result(watcher), float(loss.detach().double() - F.cross_entropy(exact(x.double()), y).detach())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_contributions_explain_the_error_of_the_loss(dtype: torch.dtype) -> None:
    watched, error = _step(dtype)
    assert watched.loss is not None
    assert abs(watched.loss.explained - error) <= 0.05 * watched.loss.size
    assert watched.loss.unknown == ()


def test_a_right_step_is_held() -> None:
    watched, _ = _step(torch.float32)
    assert {site.outcome for site in watched.sites} <= {Outcome.VERIFIED, Outcome.NOT_RUN}
    assert {site.place.module for site in watched.sites if site.place.op == "aten::addmm"} == {"0", "3"}
    assert watched.special is None


def _tampered(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> tuple[DispatcherCall, DispatcherCall]:
    """A call of an operation in a recorded step, and the same call with another result."""
    _, recorder = record(PROGRAMS["mlp"])
    call = next(each for each in recorder.store.calls if each.name == f"aten::{name}")
    wrong = copy.copy(call)
    wrong.results = (change(call.results[0].clone()), *call.results[1:])
    return call, wrong


@pytest.mark.parametrize("name", ["addmm", "silu", "native_layer_norm", "mm", "silu_backward", "add_", "pow"])
@pytest.mark.parametrize(
    "change",
    [lambda y: y * 1.001, lambda y: y.flatten().roll(1).view_as(y) + 1e-3, lambda y: y * torch.nan],
    ids=["factor", "rolled", "NaN"],
)
def test_a_wrong_result_is_outside(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    right, wrong = _tampered(name, change)
    right_one, wrong_one = CallJudge().hold(right), CallJudge().hold(wrong)
    assert (right_one.wrong, right_one.reason) == (None, "")
    assert right_one.ratio <= 1
    assert wrong_one.wrong is not None
    assert wrong_one.ratio > 1


def test_a_move_is_held_to_the_bit() -> None:
    _, recorder = record(lambda: [torch.arange(4.0).flip(0)])
    call = next(each for each in recorder.store.calls if each.name == "aten::flip")
    assert CallJudge().hold(call).wrong is None
    call.results = (torch.nextafter(call.results[0], torch.tensor(9.0)),)
    assert CallJudge().hold(call).wrong is not None


def test_calls_of_one_form_share_a_trace() -> None:
    judge = CallJudge()
    _, recorder = record(lambda: [torch.ones(3).exp() for _ in range(4)])
    findings = [judge.hold(call) for call in recorder.store.calls if call.name == "aten::exp"]
    assert len(findings) == 4
    assert len(judge._specs) == 1


def test_the_first_nan_is_named_with_its_operands_and_its_reason() -> None:
    scale = torch.ones(3, requires_grad=True)
    with opassay.watch() as watcher:
        x = torch.tensor([1.0, 0.0, 2.0])
        loss = (scale * x / x).sum() + 1
        loss.backward()
    special = _result(watcher).special
    assert special is not None
    assert _result(watcher).sites[special.site].place.op == "aten::div"
    assert (special.what, special.why.partition(";")[0]) == ("out[1] is NaN", "no number: div(0, 0) is nan")
    assert [_result(watcher).sites[i].place.op for i in special.chain] == ["aten::div", "aten::sum", "aten::add"]


def test_an_overflow_says_of_what() -> None:
    with opassay.watch() as watcher:
        x = torch.tensor([10.0, 300.0], dtype=torch.float16)
        _ = x * x
    special = _result(watcher).special
    assert special is not None
    assert special.why == "overflow: mul(300, 300) is inf; float16 ends at 6.55e+04"


def test_a_mask_of_infinities_is_no_finding() -> None:
    with opassay.watch() as watcher:
        mask = torch.zeros(3, 3).masked_fill(torch.ones(3, 3).triu(1).bool(), -math.inf)
        _ = torch.softmax(torch.randn(3, 3) + mask, -1)
    assert _result(watcher).special is None
    assert not [site for site in _result(watcher).sites if site.outcome is Outcome.FAIL]


def test_draws_have_no_verdict_and_what_follows_is_held() -> None:
    with opassay.watch() as watcher:
        _ = F.dropout(torch.ones(20, 4), 0.5)
    outcomes = {site.place.op: site.outcome for site in _result(watcher).sites}
    assert outcomes["aten::bernoulli_"] is Outcome.NOT_RUN
    assert outcomes["aten::mul"] is Outcome.VERIFIED


def test_a_nan_that_goes_on_accuses_nobody() -> None:
    with opassay.watch() as watcher:
        x = torch.tensor([math.nan, 1.0, math.inf])
        _ = [x.sqrt(), x.exp().sum(), x / 3, torch.softmax(x, 0), x.cumsum(0)]
    assert not [site for site in _result(watcher).sites if site.outcome is Outcome.FAIL]


def test_switches_widen_the_contract() -> None:
    _, recorder = record(lambda: [torch.randn(8, 64) @ torch.randn(64, 8)])
    call = next(each for each in recorder.store.calls if each.name == "aten::mm")
    a, b = call.tensors
    call.results = ((a.bfloat16().float() @ b.bfloat16().float()),)
    assert CallJudge().hold(call).wrong is not None
    call.switches = replace(call.switches, products="bf16")
    assert CallJudge().hold(call).wrong is None


def test_what_a_user_gets_wrong_is_refused() -> None:
    with pytest.raises(ValueError, match="contract: got 'tf33'"):
        opassay.watch(contract="tf33")


def test_gradients_within_a_loss_contribute_to_its_error() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    exact, points = copy.deepcopy(model).double(), torch.rand(6, 2)

    def loss_of(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        (slope,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        return slope.square().mean()

    with opassay.watch(model) as watcher:
        loss = loss_of(model, points.requires_grad_())
        loss.backward()
    error = float(loss.detach().double() - loss_of(exact, points.detach().double().requires_grad_()).detach())
    facts = _result(watcher).loss
    assert facts is not None
    assert abs(facts.explained - error) <= 0.05 * facts.size


def test_what_asks_for_no_gradient_contributes_as_well() -> None:
    torch.manual_seed(4)
    frozen, model = nn.Linear(6, 8).requires_grad_(False), nn.Linear(8, 3)
    whole = copy.deepcopy(nn.Sequential(frozen, model)).double()
    x, angles = torch.randn(5, 6), torch.arange(8.0)

    def loss_of(first: nn.Module, second: nn.Module, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        table = torch.cos(angles * 0.1)[None].expand(5, 8)
        loss: torch.Tensor = second(torch.tanh(first(x)) * table).square().mean()
        return loss

    with opassay.watch() as watcher:
        loss = loss_of(frozen, model, x, angles)
        loss.backward()
    error = float(loss.detach().double() - loss_of(whole[0], whole[1], x.double(), angles.double()).detach())
    facts = _result(watcher).loss
    assert facts is not None
    assert facts.unknown == ()
    assert abs(facts.explained - error) <= 0.05 * facts.size
    sizes = {site.place.op: site.totals.size for site in _result(watcher).sites}
    assert sizes["aten::tanh"] > 0
    assert sizes["aten::cos"] > 0


def test_dropout_of_a_mask_contributes() -> None:
    torch.manual_seed(5)
    x = torch.randn(40, 30, requires_grad=True)
    with opassay.watch() as watcher:
        F.dropout(x, 0.3).square().mean().backward()
    facts = _result(watcher).loss
    assert facts is not None
    assert facts.unknown == ()


def test_calls_that_were_not_kept_are_told_and_not_counted_as_held() -> None:
    model, x = _model(), torch.randn(9, 12)
    with opassay.watch(model, keep=Keep(modules=("1",))) as watcher:
        model(x)
    watched = _result(watcher)
    kinds = {site.place.module: site.kind for site in watched.sites}
    assert (kinds["1"], kinds["0"], kinds["3"]) == ("computes", "unkept", "unkept")
    assert lines_of(watched, ["addmm"])[0].endswith("1 computing call held; 3 calls not kept")
    assert any(
        "aten::addmm cannot be ruled out: 2 of 2 calls not judged" in line for line in lines_of(watched, ["addmm"])
    )


@pytest.mark.parametrize("is_reused", [False, True])
def test_memory_that_is_used_again_gives_no_derivative_to_its_former_writer(is_reused: bool) -> None:
    weight, place = torch.randn(8, requires_grad=True), MemoryPlace((8,), (1,), 0)

    def program() -> list[torch.Tensor]:
        table = torch.exp(torch.linspace(0, 1, 8))
        (weight * (torch.full((8,), 0.3) if is_reused else table)).sum().backward()
        return []

    _, recorder = record(program)
    recording = recorder.recording()
    calls, sources = recording.calls, recording.sources
    former, product = (next(c for c in calls if c.name == f"aten::{name}") for name in ("exp", "mul"))
    # As if the second factor lay where the table was before.
    sources[product.number][1] = (Writing(former.number, 0, 0, place),), place
    sweep_back(calls, sources, recording.last)
    assert (former.adjoints[0] is None) == is_reused
