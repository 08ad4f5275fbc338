"""Triton kernels of others, judged as the PTX that is compiled of them: `opassay judge --compiled`."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest

import opassay
from opassay.oracles.machine.ptx import books, sparse
from opassay.oracles.verdicts.verdict import Code, Outcome
from opassay.properties.candidates.asking import sizes
from opassay.properties.candidates.host.quarters import Confinement
from opassay.properties.candidates.judge_files import judge_file
from opassay.properties.candidates.judgement import Judgement, Ruling
from opassay.properties.candidates.question_plan import QuestionPlan
from opassay.reports.cli.main import main

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
_FILE = Path(__file__).with_name("strange_kernels.py")
_FEW = ("FWD:given", "CALLS:again")


def _judge(candidate: str, spec: str, questions: tuple[str, ...] = _FEW, seconds: float = 60.0) -> Judgement:
    return judge_file(
        f"{_FILE}:{candidate}", f"{_FILE}:{spec}", contract="torch",
        confinement=Confinement(seconds, compiled=True), plan=QuestionPlan(questions),
    )  # fmt: skip


def _interpret(candidate: str) -> Judgement:
    return judge_file(
        f"{_FILE}:{candidate}", f"{_FILE}:doubled", contract="torch", confinement=Confinement(interpret=True),
        plan=QuestionPlan(("FWD:given",)),
    )  # fmt: skip


def test_a_right_kernel_is_accepted_in_every_variant() -> None:
    judgement = _judge("softmax", "reference", (*_FEW, "COMP:compiled"))
    assert all(each.outcome is Outcome.VERIFIED for each in judgement.findings), str(judgement)
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    (line,) = json.loads(judgement.as_json())["executed"]
    # One call for FWD:given, one for the time of a call, and in CALLS:again approximations on four kinds of hardware,
    # and warps apart on a fifth; and one from torch.compile's trace.
    assert line == "softmax_rows: 8 launches without a fault"


def test_a_fault_of_a_launch_is_told_whatever_the_candidate_catches() -> None:
    judgement = _judge("beyond_the_end", "reference", ("FWD:given",))
    assert judgement.verdict is Ruling.REJECTED, str(judgement)
    (cause,) = judgement.causes
    assert cause.wrong is not None
    assert cause.wrong.code is Code.OUT_OF_BOUNDS
    assert "softmax_rows: strange_kernels.py:21" in cause.text
    assert any("0 bytes behind the end of it" in line and ": Y;" in line for line in cause.wrong.lines), cause.wrong


@pytest.mark.slow
def test_a_configuration_that_is_wrong_is_named() -> None:
    judgement = _judge("twice", "doubled")
    assert judgement.verdict is Ruling.REJECTED, str(judgement)
    (cause,) = judgement.causes
    assert cause.question == "CALLS:again"
    assert "scale_elements with BLOCK: 32, PART: 2" in str(cause.wrong)


def test_a_configuration_that_does_not_fit_is_left_out_and_told() -> None:
    judgement = _judge("turned", "reversed_order")
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    left_out = [line for line in json.loads(judgement.as_json())["executed"] if "turn_around: left out" in line]
    for why, line in zip(("Required: 2048", "shared memory", "CompileTimeAssertionFailure"), left_out, strict=True):
        assert why in line


def test_where_no_configuration_compiles_the_candidate_raises() -> None:
    judgement = _judge("in_no_way", "doubled", ("FWD:given",))
    assert judgement.verdict is Ruling.REJECTED, str(judgement)
    assert "CompileTimeAssertionFailure" in judgement.causes[0].text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("candidate", "spec", "code"),
    [("without_maximum", "reference", Code.SPECIAL), ("racing_sum", "summed", Code.RACE)],
)
def test_a_wrong_kernel_is_rejected(candidate: str, spec: str, code: Code) -> None:
    judgement = _judge(candidate, spec, ("FWD:given", "FWD:offset"))
    assert judgement.verdict is Ruling.REJECTED, str(judgement)
    assert {each.wrong.code for each in judgement.causes if each.wrong} == {code}, str(judgement)


@pytest.mark.slow
def test_a_right_kernel_is_accepted_at_every_question() -> None:
    assert _judge("softmax", "reference", ()).verdict is Ruling.ACCEPTED


@pytest.mark.parametrize(("text", "verdict"), [(books.TOO_MUCH, Ruling.ACCEPTED), ("is not known", Ruling.WEAK)])
def test_a_size_that_takes_more_memory_than_is_executed_is_not_asked(
    text: str, verdict: Ruling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else of the executor it meets makes the verdict a weak one."""
    monkeypatch.setattr(sizes, "_SECONDS", math.inf)
    monkeypatch.setattr(sparse, "_MOST", 2000)
    monkeypatch.setattr(sparse, "TOO_MUCH", text)
    kernels: Any = importlib.import_module("tests.properties.candidates.strange_kernels")
    judgement = opassay.judge(
        kernels.in_blocks, kernels.doubled, kernels.inputs(), compiled="sm_90", questions=["FWD:given", "SIZE:sizes"]
    )
    assert judgement.verdict is verdict, str(judgement)
    assert verdict is Ruling.ACCEPTED or text in str(judgement)


@pytest.mark.slow
def test_what_cannot_be_executed_has_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["judge", f"{_FILE}:unheard", "--spec", f"{_FILE}:doubled", "--compiled", "--json", "-k", "FWD:given"])
    reply = json.loads(capsys.readouterr().out)
    assert (code, reply["verdict"]) == (3, "error")
    assert "reverse_bits: no meaning is built for the PTX of" in reply["error"]
    assert "lop3.b32" in reply["error"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        ("on_tensor_cores", "wgmma.fence.sync.aligned: what tensor cores do by themselves is not executed"),
        ("through_descriptors", "double_tile: a kernel with descriptors of tensors (TMA) in scratch memory"),
        ("through_arguments", "double_described: an argument of type tensordesc<fp32[32, 32]> (TMA)"),
    ],
)
def test_hoppers_own_instructions_have_no_verdict_whatever_comes_of_them(
    candidate: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The candidates return what is right, without what the kernel would write."""
    monkeypatch.setenv("OPASSAY_PTX_ARCHITECTURE", "sm_90")
    judgement = _judge(candidate, "doubled", ("FWD:given",))
    assert judgement.verdict is Ruling.ERROR, str(judgement)
    assert message in judgement.error


@pytest.mark.slow
def test_time_is_none_of_a_kernels_faults_here() -> None:
    judgement = _judge("late", "doubled", ("FWD:given",), seconds=0.1)
    assert judgement.verdict is Ruling.ERROR, str(judgement)
    assert "PTX is executed slowly" in judgement.error


@pytest.mark.slow
def test_a_candidate_that_asks_for_a_gpu_is_none_of_these() -> None:
    judgement = _judge("of_a_gpu", "doubled", ("FWD:given",))
    assert judgement.verdict is Ruling.ERROR, str(judgement)
    assert "asks for a GPU, and there is none here: AssertionError: Torch not compiled with CUDA" in judgement.error


@pytest.mark.slow
@pytest.mark.parametrize(("candidate", "limit"), [("by_library", "'NoneType'"), ("by_assembly", "inline_asm not supp")])
def test_what_the_interpreter_lacks_is_no_fault_of_a_kernel(candidate: str, limit: str) -> None:
    judgement = _interpret(candidate)
    assert judgement.verdict is Ruling.ERROR, str(judgement)
    assert judgement.error.startswith("Triton's interpreter cannot run this: ")
    assert limit in judgement.error
    assert judgement.error.endswith("judge it by --compiled")


@pytest.mark.slow
@pytest.mark.parametrize("candidate", ["of_other_shapes", "of_no_such_name"])
def test_a_mistake_of_an_interpreted_kernel_is_its_own(candidate: str) -> None:
    assert _interpret(candidate).verdict is Ruling.REJECTED


def test_kernels_run_in_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    for more, message in (("--interpret", "kernels run in one way"), ("--time", "times of executed PTX say nothing")):
        assert main(["judge", "a.py", "--spec", "b.py", "--compiled", more]) == 2
        assert message in capsys.readouterr().err
