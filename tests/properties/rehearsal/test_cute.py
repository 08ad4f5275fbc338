"""Kernels of CuTe DSL are judged as their host code launches them, right and wrong ones."""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch

import opassay
from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Violation
from opassay.properties.rehearsal.environment import LIBRARY

pytestmark = [
    pytest.mark.rehearsal,
    pytest.mark.skipif(LIBRARY not in os.environ, reason="tests of python -m tests.rehearsal -m pytest"),
    pytest.mark.skipif(importlib.util.find_spec("cutlass") is None, reason="CuTe DSL is not installed (extra cute)"),
]


def _judge(name: str, questions: list[str]) -> opassay.Judgement:
    from tests.properties.rehearsal import cute_kernels

    inputs = cute_kernels.inputs()
    candidate = getattr(cute_kernels, name)
    return opassay.judge(candidate, cute_kernels.reference, inputs, questions=questions, compiled="sm_90")


@pytest.mark.parametrize("name", ["right", "compiled"])
def test_a_right_kernel_is_accepted(name: str) -> None:
    judgement = _judge(name, ["FWD:given", "FWD:wide", "CALLS:again", "SIZE:sizes"])
    assert judgement.verdict == "accepted", str(judgement)
    assert any("_scale" in line for line in judgement.execution), judgement.execution


def test_launches_under_a_compiler_are_not_traced() -> None:
    judgement = _judge("compiled", ["FWD:given", "COMP:compiled"])
    assert judgement.verdict == "accepted", str(judgement)
    assert "refused" not in judgement.report(verbose=True), judgement.report(verbose=True)


@pytest.mark.parametrize(("name", "code"), [("beyond", "OA112"), ("unscaled", "OA101")])
def test_a_kernel_with_a_fault_is_rejected(name: str, code: str) -> None:
    judgement = _judge(name, ["FWD:given"])
    assert judgement.verdict == "rejected", str(judgement)
    assert code in str(judgement), str(judgement)


def test_host_code_refuses_as_on_a_gpu() -> None:
    from tests.properties.rehearsal import cute_kernels

    x = torch.randn(4, device="cuda")
    cute_kernels.compiled(x)
    with pytest.raises(ValueError, match="dtype"):
        cute_kernels.COMPILED[torch.float32, 0](x.half(), torch.empty_like(x), 1.0)


@pytest.mark.parametrize("name", ["compiled", "right"])
def test_what_a_launch_raises_comes_through_compiled_host_code(name: str) -> None:
    from tests.properties.rehearsal import cute_kernels

    call = {"compiled": lambda x: cute_kernels.compiled(x, 1), "right": cute_kernels.beyond}[name]
    with pytest.raises(Violation, match="0 bytes behind"):
        call(torch.randn(100, device="cuda"))


def test_boxes_come_by_maps_that_host_code_makes() -> None:
    from tests.properties.rehearsal import cute_kernels

    x = torch.randn(20, 32, device="cuda")  # the last box is not full
    assert torch.equal(cute_kernels.carried(x).cpu(), x.cpu() * 2.5)
    with pytest.raises(Violation, match="still copies there") as error:
        cute_kernels.carried(x, waits=False)
    assert error.value.code is Code.RACE
