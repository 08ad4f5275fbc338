"""Modules as subjects: they are judged as ops are, and what they keep is asked about."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay import Cell, Code, Outcome, Settings, Verdict, declare, run_cell, strategies
from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.properties.catalog.loading import load_op, op_names
from opassay.properties.checks.ways.module_calls import ModuleCall, ModuleSubject
from opassay.properties.engine.cells import judge_sample
from opassay.properties.engine.failures import calls_of, kernel_of
from opassay.properties.engine.plan import Selection, plan
from opassay.properties.picking.drafting import drafts

OPS = (
    "layer_norm", "rms_norm", "group_norm", "batch_norm", "sync_batch_norm", "softmax", "log_softmax", "log_sigmoid",
    "nll_loss", "cross_entropy", "cross_map_lrn2d",
)  # fmt: skip
OWN = ("layer_norm", "rms_norm", "group_norm", "batch_norm", "sync_batch_norm", "cross_map_lrn2d")
FEW = Settings("brief", max_examples=3, simpler=False)


@pytest.mark.one_fast_in(6)
@pytest.mark.parametrize("op", OPS)
def test_every_module_of_torch_gives_the_values_of_its_op(op: str) -> None:
    verdict = run_cell(Cell(op, "FWD", "float64", "cpu", "module"), FEW)
    if op in ("nll_loss", "cross_entropy") and verdict.failure is not None:
        # torch's losses refuse targets of uint8 where there are more than two dims, and that alone.
        assert "Byte" in verdict.failure.message or "int64 for index" in verdict.failure.message
        return
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason


@pytest.mark.parametrize("op", ["nll_loss", "cross_entropy"])
def test_the_losses_of_torch_give_the_values_of_their_ops_for_targets_that_they_take(op: str) -> None:
    judged = 0
    for number, draws in enumerate(drafts(load_op(op), "float64", "ordinary", seed=0).first(24)):
        sample = draws.draft.sample(number)
        if sample.args[1].dtype == torch.int64:
            verdict = judge_sample(Cell(op, "FWD", "float64", "cpu", "module"), sample)
            assert verdict.failure is None, verdict.reason
            judged += verdict.outcome == Outcome.VERIFIED  # one sample of a hard regime may have nothing to judge
    assert judged >= 3


@pytest.mark.one_fast_in(6)
@pytest.mark.parametrize("code", ["VJP", "VMAP", "WAYS"])
@pytest.mark.parametrize("op", OWN)
def test_the_production_modules_are_judged_as_their_ops_are(op: str, code: str) -> None:
    verdict = run_cell(Cell(op, code, "float32", "cpu", "own_module"), FEW)
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason


@pytest.mark.parametrize("op", ["layer_norm", "group_norm"])
def test_the_op_that_does_the_work_of_a_module_is_known(op: str) -> None:
    judge = Judge(load_op(op), "module", contract("float32"))
    sample = next(iter(drafts(load_op(op), "float32", "ordinary", seed=0).first(1))).draft.sample(0)
    assert kernel_of(judge, sample) == f"native_{op}"
    for path in ("vjp (func)", "jvp∘vjp (eager)"):
        assert calls_of(judge, sample, path) == [f"native_{op}", f"native_{op}_backward"]
    assert {f"native_{op}", "mul"} <= set(calls_of(judge, sample, "vjp∘jvp (func)"))


def test_an_implementation_that_ships_is_not_said_to_be_the_op_that_it_calls() -> None:
    def square(x: torch.Tensor) -> torch.Tensor:
        return torch.mul(x, x)

    op = declare(
        lambda x: x * x, {"opassay": square, "torch": square}, name="square", samples=strategies.same_shape(1),
        differentiable=("x",), dtypes=lambda x: (x.dtype,),
    )  # fmt: skip
    sample = next(iter(drafts(op, "float32", "ordinary", seed=0).first(1))).draft.sample(0)
    results = [kernel_of(Judge(op, subject, contract("float32")), sample) for subject in ("opassay", "torch")]
    assert results == ["", "mul"]


def test_an_argument_without_a_derivative_hides_no_op_that_is_called() -> None:
    judge = Judge(load_op("log_sigmoid_backward"), "torch", contract("float32"))
    sample = next(iter(drafts(judge.op, "float32", "ordinary", seed=0).first(1))).draft.sample(0)
    assert calls_of(judge, sample, "vjp (func)")[0] == "log_sigmoid_backward"
    assert set(calls_of(judge, sample, "vjp (func)")) > {"log_sigmoid_backward", "sigmoid"}


def test_compiled_code_that_builds_a_module_of_torch_is_asked_of_nobody() -> None:
    verdict = run_cell(Cell("layer_norm", "COMP", "float32", "cpu", "module"), FEW)
    assert (verdict.outcome, verdict.code) == (Outcome.UNSUPPORTED, Code.NOT_APPLICABLE)
    assert "a module is built before it is compiled" in verdict.reason


def test_modules_are_asked_for_by_name_and_not_by_default() -> None:
    assert {cell.subject for cell in plan(Selection(ops=("layer_norm",)))} == {"opassay"}
    assert plan(Selection(ops=("layer_norm",), subjects=("module",), properties=("FWD",)))[0].subject == "module"
    having = {name: set(load_op(name).subjects) & {"module", "own_module"} for name in op_names()}
    assert {op for op, subjects in having.items() if subjects} == set(OPS)
    assert {op for op, subjects in having.items() if "own_module" in subjects} == set(OWN)


class _EvaluationCounts(torch.nn.BatchNorm1d):
    def forward(self, x: Tensor) -> Tensor:
        if self.running_mean is not None and not self.training:
            self.running_mean.mul_(1.5)
        return super().forward(x)


class _CountsNothing(torch.nn.BatchNorm1d):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.zero_()
        return y


class _TenthForNone(torch.nn.BatchNorm1d):
    def forward(self, x: Tensor) -> Tensor:
        if self.momentum is not None:
            return super().forward(x)
        self.momentum = 0.1
        try:
            return super().forward(x)
        finally:
            self.momentum = None


class _KeepsNoStatistics(torch.nn.BatchNorm1d):
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        if self.running_mean is not None:
            self.register_buffer("running_mean", self.running_mean, persistent=False)


class _ReadsNothing(torch.nn.BatchNorm1d):
    def load_state_dict(self, *args: Any, **named: Any) -> Any:
        return torch.nn.Module().load_state_dict({}, strict=False)


class _TrainsInEvaluation(torch.nn.BatchNorm1d):
    def eval(self) -> Any:
        return self


FAULTS: dict[str, tuple[type[torch.nn.BatchNorm1d], str]] = {
    "evaluation changes a statistic": (_EvaluationCounts, "outside its accept set"),
    "batches are not counted": (_CountsNothing, "num_batches_tracked is 0, need 1"),
    "momentum None is a tenth": (_TenthForNone, "with momentum None"),
    "a statistic is not written": (_KeepsNoStatistics, "running_mean is not in it"),
    "what is read is ignored": (_ReadsNothing, "gives other bits"),
    "eval() does nothing": (_TrainsInEvaluation, "evaluation changes running_mean"),
}


def _verdict(kind: type[torch.nn.BatchNorm1d], code: str = "WAYS") -> Verdict:
    def build(
        x: Tensor, mean: Any, var: Any, weight: Any = None, bias: Any = None,
        training: bool = False, momentum: float | None = 0.1, eps: float = 1e-5,
    ) -> ModuleCall:  # fmt: skip
        module = kind(x.shape[1], eps, momentum, track_running_stats=mean is not None).train(training)
        # Any number of dims will do here.
        setattr(module, "_check_input_dim", lambda x: None)  # noqa: B010
        for name, value in (("weight", weight), ("bias", bias)):
            if value is None:
                module.register_parameter(name, None)
        return ModuleCall(module, {"running_mean": mean, "running_var": var, "weight": weight, "bias": bias}, (x,))

    op = dataclasses.replace(load_op("batch_norm"), subjects={"faulty": ModuleSubject(build)})
    return run_cell(
        Cell("batch_norm", code, "float32", "cpu", "faulty"), Settings("brief", max_examples=6, simpler=False), op
    )


@pytest.mark.fast_cases("evaluation changes a statistic")
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    kind, text = FAULTS[name]
    results = [verdict for verdict in (_verdict(kind, code) for code in ("WAYS", "FWD")) if verdict.failure]
    assert results
    assert any(text in verdict.failure.message for verdict in results if verdict.failure)
    assert all(verdict.code != Code.HARNESS for verdict in results)


def test_the_right_module_passes() -> None:
    assert _verdict(torch.nn.BatchNorm1d).outcome == Outcome.VERIFIED
