"""What a loop costs at an extent is known before it is read, so that large samples of loops are no longer than that."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import opassay
from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.oracles.specs.work import exceeds
from opassay.properties.engine import draws
from opassay.properties.picking import drafting


def carried(x: Tensor) -> Tensor:
    state, states = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        state = torch.tanh(state + x[:, t])
        states.append(state)
    return torch.stack(states, 1)


def running(x: Tensor) -> Tensor:
    return x.logcumsumexp(-1)


def test_work_is_counted_by_operations_and_by_steps_of_one_operation() -> None:
    assert not exceeds(carried, [torch.zeros(2, 30)], 100)
    assert exceeds(carried, [torch.zeros(2, 40)], 100)
    assert not exceeds(running, [torch.zeros(2, 100)], 100)
    assert exceeds(running, [torch.zeros(2, 101)], 100)
    assert not exceeds(torch.tanh, [torch.zeros(2, 10_000)], 100)
    assert not exceeds(torch.linalg.inv, [torch.zeros(2, 2)], 100)  # which raises


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize(("spec", "most"), [(carried, 2000), (running, 6000), (torch.tanh, 40_000)])
def test_large_samples_are_as_long_as_can_be_read(spec: object, most: int) -> None:
    op = opassay.custom_kernel(spec, spec, {"input" if spec is torch.tanh else "x": ("N", "T")})  # type: ignore[arg-type]
    choice = draws.Large(Judge(op, "opassay", contract("float32")), 4, 70_000)
    extents = []
    for entry in drafting.drafts(op, "float32", "large", 0).first(400):
        if choice.wants(entry.draft):
            extents.append(entry.draft.extents)
            if not choice.took(entry.draft, entry.draft.sample(0)):
                break
    assert len(extents) == 4
    assert any(each["N"] > draws.LONG for each in extents)
    assert max(each["T"] for each in extents) <= most
    assert any(each["T"] > min(draws.LONG, most // 20) for each in extents)
