"""FAR: kernels beyond 2^31 elements, in a process that has a gigabyte."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

import opassay
from opassay.oracles.verdicts.verdict import Code, Outcome
from opassay.properties.candidates.host.quarters import Confinement
from opassay.properties.candidates.judge_files import judge_file
from opassay.properties.candidates.judgement import Judgement, Ruling
from opassay.properties.candidates.question_plan import QuestionPlan

_FILE = Path(__file__).with_name("wrapping_kernels.py")
executed = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def _judge(candidate: str, spec: str = "reference") -> Judgement:
    """What FAR says of a kernel, in a process of its own."""
    return judge_file(
        f"{_FILE}:{candidate}", f"{_FILE}:{spec}", contract="torch", confinement=Confinement(120, compiled=True),
        plan=QuestionPlan(("FWD:given",), others=("FAR",)), seed=0,
    )  # fmt: skip


def _lines(judgement: Judgement) -> list[str]:
    return [line for cause in judgement.causes if cause.wrong is not None for line in cause.wrong.lines]


@executed
def test_a_kernel_whose_index_is_wide_is_accepted() -> None:
    judgement = _judge("wide")
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    (far,) = [each for each in judgement.findings if each.question == "FAR"]
    assert far.outcome is Outcome.VERIFIED
    assert "rows of 96 elements" in far.sampled


@executed
def test_an_index_that_wraps_is_told_with_its_line_and_its_product() -> None:
    judgement = _judge("narrow")
    assert judgement.verdict is Ruling.REJECTED, str(judgement)
    (cause,) = judgement.causes
    assert cause.wrong is not None
    assert (cause.question, cause.wrong.code) == ("FAR", Code.OUT_OF_BOUNDS)
    assert "double_rows: wrapping_kernels.py:15" in cause.text
    assert any("wrapping_kernels.py:13" in line and "does not fit into 32 bits" in line for line in _lines(judgement))


@executed
def test_a_wrapped_index_that_stays_inside_shows_in_the_values() -> None:
    judgement = _judge("silent")
    assert judgement.verdict is Ruling.REJECTED, str(judgement)
    (cause,) = judgement.causes
    assert cause.question == "FAR"
    assert cause.wrong is not None
    assert cause.wrong.outlier is not None
    assert any(line.startswith("wrapped") and "does not fit into 32 bits" in line for line in _lines(judgement))
    row = next(line.split() for line in _lines(judgement) if line.startswith("row "))
    assert int(row[1]) * 96 + 95 >= 2**31


@executed
@pytest.mark.parametrize(
    ("candidate", "why"),
    [
        ("reads_what_others_wrote", "left to blocks that did not run"),
        ("computes_on_the_host", "the host's code computes mul"),
        ("adds_atomically", "by atomic operations"),
    ],
)
def test_what_some_blocks_cannot_tell_is_not_judged(candidate: str, why: str) -> None:
    judgement = _judge(candidate)
    assert judgement.verdict is Ruling.WEAK, str(judgement)
    assert not judgement.causes
    assert any("FAR was not judged" in line and why in line for line in judgement.weaknesses), judgement.weaknesses


@executed
def test_launches_that_read_each_others_rows_are_judged() -> None:
    judgement = _judge("in_three_launches")
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)


@executed
def test_a_kernel_may_refuse_and_a_spec_may_mix_rows() -> None:
    judgement = _judge("refuses")
    assert [each.outcome for each in judgement.findings if each.question == "FAR"] == [Outcome.REFUSED]
    assert not judgement.causes
    mixed = [each for each in _judge("wide", "mixed").findings if each.question == "FAR"]
    assert [each.outcome for each in mixed] == [Outcome.UNSUPPORTED]
    assert "does not take any number of rows" in mixed[0].text


@executed
@pytest.mark.slow
def test_rows_may_be_named_by_integers() -> None:
    kernels: Any = importlib.import_module("tests.properties.candidates.wrapping_kernels")
    arguments = kernels.rows_to_gather()
    for candidate, verdict in ((kernels.gathers, "accepted"), (kernels.gathers_narrowly, "rejected")):
        judgement = opassay.judge(
            candidate, kernels.gathered, arguments, compiled="sm_90", questions=["FWD:given", "FAR"], seed=0
        )
        assert judgement.verdict == verdict, str(judgement)


def test_what_is_not_executed_is_asked_for_rows_far_apart() -> None:
    judgement = opassay.judge(torch.relu, torch.relu, (torch.randn(3, 4),), questions=["FWD:given", "FAR"], seed=0)
    (far,) = [each for each in judgement.findings if each.question == "FAR"]
    assert far.outcome is Outcome.UNSUPPORTED
    assert "LAYOUT:strides" in far.text
    usual = opassay.judge(torch.relu, torch.relu, (torch.randn(3, 4),), seed=0, questions=["FWD"])
    assert all(each.question != "FAR" for each in usual.findings)
