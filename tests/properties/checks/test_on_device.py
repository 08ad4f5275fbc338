"""Where the samples are on a device, laws, refusals and devices are asked without tensors of the host among theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.oracles.op.declaration import OWN
from opassay.oracles.verdicts.violation import Violation
from opassay.properties.catalog import CATALOG
from opassay.properties.catalog.loading import load_op
from opassay.properties.checks.calls import memory
from opassay.properties.checks.calls.truth import Truth, observe_truth
from opassay.properties.checks.comm.devices import check_places, torch_nests
from opassay.properties.checks.laws import check_laws
from opassay.properties.picking import drafting
from opassay.properties.table import PROPERTIES
from tests.oracles import stand_in_device
from tests.oracles.stand_in_device import DEVICE, DeviceTensor, StandInJudge, on_host

#: How many samples are judged of each op.
SAMPLES = 2
WITH_LAWS = [name for name in CATALOG if load_op(name).laws]


@pytest.mark.one_fast_in(18)
@pytest.mark.parametrize("name", WITH_LAWS)
def test_laws_hold_on_a_device(name: str) -> None:
    op = load_op(name)
    op = replace(op, subjects={OWN: on_host(op.subjects[OWN])})
    judge = StandInJudge(op, OWN, contract("float32"), "cuda")
    with stand_in_device.present():
        for seed, draws in enumerate(drafting.drafts(op, "float32", "ordinary", 0).first(SAMPLES)):
            check_laws(judge, draws.draft.sample(seed).on("cuda"))
    assert judge.tally.judged


@pytest.mark.parametrize("name", [name for name in CATALOG if load_op(name).refusals])
def test_refusals_leave_tensors_on_their_device(name: str) -> None:
    """An op that refused a tensor of the host would pass for one that refused the mistake."""
    op = load_op(name)
    with stand_in_device.present():
        sample = next(iter(drafting.drafts(op, "float32", "ordinary", 0).first(1))).draft.sample(0).on("cuda")
        wrong = {refusal.name: refusal.mutate(sample.args) or () for refusal in op.refusals}
    astray = {name for name, args in wrong.items() for a in args if isinstance(a, Tensor) and a.device != DEVICE}
    assert {name for name in astray if "another device" not in name} == set()


class _OfTheHost(Judge):
    """Refuses tensors of the device, of which autograd would end a process that has none."""

    def call(self, function: Callable[..., Any], *args: Any, **more: Any) -> Any:
        assert not any(isinstance(a, DeviceTensor) for a in args), "the path got a tensor of the device"
        return super().call(function, *args, **more)


@pytest.mark.one_fast_in(4)
@pytest.mark.parametrize("name", [name for name in CATALOG if load_op(name).production.devices])
def test_ops_over_devices_are_judged_from_a_sample_on_a_device(name: str) -> None:
    op = load_op(name)
    op = replace(op, production=replace(op.production, ranks=None))
    judge = _OfTheHost(op, OWN, contract("float32"), "cuda")
    draws = next(iter(drafting.drafts(op, "float32", "ordinary", 0).first(1))).draft
    slices = PROPERTIES["COMM"].sampling.slices
    with stand_in_device.present():
        for seed in range(1, SAMPLES + 1):
            check_places(judge, draws.sample(seed, slices).on("cuda"))
    assert judge.tally.judged


def test_memory_that_grows_on_a_device_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    allocation = {"bytes": 0}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: allocation["bytes"] if device else 0)
    judge = Judge(load_op("trace"), OWN, contract("float32"))

    def leak() -> None:
        allocation["bytes"] += 512

    memory.require_no_growth(judge, lambda: None, "keeps nothing")
    with pytest.raises(Violation, match="memory grows with the number of calls") as result:
        memory.require_no_growth(judge, leak, "keeps a tensor")
    assert "+32768 bytes on GPUs" in result.value.message


def test_what_the_thread_of_a_gpu_lets_go_is_not_kept_by_the_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """Autograd's thread of a GPU still has the gradients when the caller has them."""
    op, pending = load_op("trace"), []
    judge = Judge(op, OWN, contract("float32"))
    truth = observe_truth(judge, next(iter(drafting.drafts(op, "float32", "ordinary", 0).first(1))).draft.sample(0), "")
    differentiate = Truth.differentiate

    def also_in_a_thread(*args: Any, **more: Any) -> list[Tensor]:
        grads = differentiate(*args, **more)
        pending.extend(grads)
        return grads

    monkeypatch.setattr(Truth, "differentiate", also_in_a_thread)
    with pytest.raises(Violation, match="keeps the memory of the gradient"):
        memory.require_release(judge, truth, "a call")
    monkeypatch.setattr(memory, "settle_autograd", lambda device: pending.clear())
    memory.require_release(judge, truth, "a call")


def test_the_thread_of_a_gpu_goes_through_another_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[Tensor] = []
    monkeypatch.setattr(torch.autograd, "grad", lambda y, x: passes.append(x))
    memory.settle_autograd("cpu")
    memory.settle_autograd("meta")
    assert [x.device.type for x in passes] == ["meta"]


def test_nested_torch_func_is_asked_of_one_gpu_alone() -> None:
    first, second = torch.device("cuda", 0), torch.device("cuda", 1)
    assert torch_nests(("vjp", "vjp"), (first, first))
    assert torch_nests(("jvp", "vjp"), (first, second))
    assert not torch_nests(("vjp", "jvp"), (first, second))


def test_an_output_that_is_not_on_the_device_is_refused() -> None:
    op = load_op("trace")
    op = replace(op, subjects={OWN: on_host(op.subjects[OWN])})
    with stand_in_device.present():
        sample = next(iter(drafting.drafts(op, "float32", "ordinary", 0).first(1))).draft.sample(0).on("cuda")
        StandInJudge(op, OWN, contract("float32"), "cuda").hold(sample)
        with pytest.raises(Violation, match="trace forward: out is on cpu, need cuda"):
            Judge(op, OWN, contract("float32"), "cuda").hold(sample)
