"""Every outcome of a cell, from ops that deserve it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from opassay import Cell, Code, Op, Outcome, Settings, replay_case, run_cell, verify
from opassay.impl import layer_norm
from opassay.oracles.bound import accept
from opassay.oracles.bound.accept import ReadingError
from opassay.oracles.judge import judge
from opassay.oracles.op.declaration import OWN, Sample
from opassay.oracles.verdicts.case import CaseError, dump_case, load_case
from opassay.properties.catalog.loading import load_op
from opassay.properties.checks import CHECKS
from opassay.properties.engine import cells
from opassay.properties.engine.profiles import PROFILES
from opassay.properties.engine.samples import Opened

FEW = Settings("commit", max_examples=8)


def cell(code: str, dtype: str = "float32", subject: str = "mine", device: str = "cpu") -> Cell:
    return Cell("layer_norm", code, dtype, device, subject)


def declared(subject: Any) -> Op:
    op: Op = load_op("layer_norm")
    return dataclasses.replace(op, subjects={"mine": subject})


def doubled(x: Any, shape: Any, w: Any, b: Any, eps: float) -> Any:
    return 2 * layer_norm(x, shape, w, b, eps)


def test_a_right_op_is_verified_with_its_measures() -> None:
    verdict = run_cell(cell("FWD"), FEW, declared(layer_norm))
    assert verdict.outcome == Outcome.VERIFIED
    assert verdict.measure.samples == 8
    assert 0.005 < verdict.measure.max_ratio <= 1
    assert verdict.measure.worst is not None
    assert verdict.seconds > 0
    assert {name for name, _ in verdict.timing} == {"generate", "op", "reference", "compare"}


@pytest.mark.slow
def test_the_same_seed_gives_the_same_samples_and_another_seed_others() -> None:
    ratios = [
        run_cell(cell("VJP"), Settings("commit", seed, 20), declared(torch.nn.functional.layer_norm)).measure.judged
        for seed in (0, 0, 1)
    ]
    assert ratios[0] == ratios[1]


def test_a_wrong_op_fails_with_a_case_that_replays() -> None:
    verdict = run_cell(cell("FWD"), FEW, declared(doubled))
    assert verdict.outcome == Outcome.FAIL
    assert verdict.failure is not None
    assert "times its bound" in verdict.failure.message
    loaded, sample = load_case(verdict.failure.case)
    assert loaded == verdict.cell
    assert sample.args[0].numel() <= 8, "the sample should have shrunk"


def test_a_case_of_a_correct_op_replays_as_verified() -> None:
    verdict = run_cell(cell("FWD"), FEW, declared(doubled))
    assert verdict.failure is not None
    text = verdict.failure.case.replace('"mine"', '"opassay"')
    assert replay_case(text).outcome == Outcome.VERIFIED


def test_a_case_file_is_judged_on_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[str] = []
    open_cell = cells.open_cell

    def open_on_the_host(cell: Cell, **more: Any) -> Opened:
        return dataclasses.replace(open_cell(dataclasses.replace(cell, device="cpu"), **more), cell=cell)

    monkeypatch.setattr(cells, "open_cell", open_on_the_host)
    monkeypatch.setitem(CHECKS, "LAW", lambda judge, sample: devices.append(sample.args[0].device.type))
    case = dump_case(Cell("trace", "LAW", "float32", "meta", OWN), Sample((torch.ones(2, 2),)))
    cells.judge_case(case)
    cells.judge_sample(*load_case(case))
    assert devices == ["meta", "meta"]


def test_a_broken_case_is_refused() -> None:
    with pytest.raises(CaseError, match="not JSON"):
        replay_case("{")


def test_a_fault_that_comes_and_goes_is_unstable() -> None:
    calls = iter(range(10**6))

    def moody(x: Any, shape: Any, w: Any, b: Any, eps: float) -> Any:
        y = layer_norm(x, shape, w, b, eps)
        return y + 1 if next(calls) == 5 else y

    assert run_cell(cell("FWD"), FEW, declared(moody)).outcome == Outcome.UNSTABLE


def test_an_op_that_raises_fails() -> None:
    def raising(*args: Any) -> Any:
        raise ValueError("no")

    verdict = run_cell(cell("FWD"), FEW, declared(raising))
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, Code.RAISED)
    assert "raised ValueError on valid input" in verdict.reason


@pytest.mark.parametrize(
    ("cell", "outcome", "code"),
    [
        (cell("ORD3", "float32"), Outcome.UNSUPPORTED, Code.DTYPE_OUTSIDE),
        (cell("FWD", subject="other"), Outcome.UNSUPPORTED, Code.NO_SUBJECT),
        (cell("COMM"), Outcome.UNSUPPORTED, Code.NOT_APPLICABLE),
        (cell("NONE"), Outcome.UNSUPPORTED, Code.NOT_BUILT),
    ],
)
def test_what_is_not_asked_has_a_reason(cell: Cell, outcome: Outcome, code: Code) -> None:
    verdict = run_cell(cell, FEW, declared(layer_norm))
    assert (verdict.outcome, verdict.code) == (outcome, code)
    assert verdict.reason


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device_is_not_run() -> None:
    verdict = run_cell(cell("FWD", device="cuda"), FEW, declared(layer_norm))
    assert (verdict.outcome, verdict.code) == (Outcome.NOT_RUN, Code.NO_DEVICE)


def test_contradicting_readings_are_an_error_not_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def contradict(*args: Any, **kwargs: Any) -> Any:
        raise ReadingError("exact value outside its ball")

    monkeypatch.setattr(accept, "place_in_accept_sets", contradict)
    verdict = run_cell(cell("FWD"), FEW, declared(layer_norm))
    assert (verdict.outcome, verdict.code) == (Outcome.ERROR, Code.READING)


def test_a_fault_of_the_framework_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise KeyError("harness")

    monkeypatch.setattr(judge, "balls", fail)
    verdict = run_cell(cell("FWD"), FEW, declared(layer_norm))
    assert (verdict.outcome, verdict.code) == (Outcome.ERROR, Code.HARNESS)


def test_mostly_unjudged_samples_are_weak() -> None:
    def beyond(x: Any) -> Any:
        return x * 1e38 * 1e38

    overflow = dataclasses.replace(declared(beyond), reference=beyond, samples=_overflowing, differentiable=("x",))
    verdict = run_cell(cell("FWD"), FEW, overflow)
    assert (verdict.outcome, verdict.code) == (Outcome.WEAK, Code.MOSTLY_NOT_JUDGED)


def _overflowing(dtype: str, kind: str) -> Any:
    from hypothesis import strategies as st

    from opassay import Draft, Unsupported

    if kind == "large":
        raise Unsupported(Code.NOT_APPLICABLE, "four elements in all")
    return st.just(Draft(lambda rng: (torch.from_numpy(1 + rng.random(4)).float(),), "benign"))


def test_verify_gives_a_verdict_for_every_property_and_dtype() -> None:
    verdicts = verify(load_op("layer_norm"), properties=("FWD", "ADJ"), dtypes=("float32", "bfloat16"), settings=FEW)
    assert [v.outcome for v in verdicts] == [Outcome.VERIFIED] * 4


def test_an_op_without_differentiable_arguments_has_no_derivative_to_ask_for() -> None:
    op = dataclasses.replace(declared(layer_norm), differentiable=())
    verdict = run_cell(cell("VJP"), FEW, op)
    assert (verdict.outcome, verdict.code) == (Outcome.UNSUPPORTED, Code.NOT_DIFFERENTIABLE)


def test_a_long_profile_is_steered_towards_the_worst_input() -> None:
    verdict = run_cell(cell("FWD"), Settings("nightly", 3, 40), declared(layer_norm))
    assert verdict.outcome == Outcome.VERIFIED
    assert verdict.measure.samples >= 40


def test_a_smaller_profile_asks_the_same_questions_of_fewer_samples() -> None:
    few = run_cell(cell("ADJ"), Settings("brief"), declared(layer_norm))
    assert few.outcome == Outcome.VERIFIED
    assert PROFILES["brief"].examples <= few.measure.samples < PROFILES["commit"].examples


@pytest.mark.slow
def test_compiled_code_is_judged_where_torch_s_own_op_is_declared() -> None:
    op = dataclasses.replace(declared(layer_norm), subjects={"torch": torch.nn.functional.layer_norm})
    verdict = run_cell(dataclasses.replace(cell("FWD"), subject="compiled"), Settings("brief"), op)
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason
    unasked = run_cell(dataclasses.replace(cell("LAW"), subject="compiled"), Settings("brief"), op)
    assert unasked.outcome == Outcome.UNSUPPORTED
    assert "not asked of compiled code" in unasked.reason
