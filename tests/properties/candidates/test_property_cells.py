"""Every property of the table can be asked of a candidate; one that cannot be is refused with the reason."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from opassay.oracles.verdicts.verdict import Outcome
from opassay.properties.candidates.judgement import Judgement, Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.table import PROPERTIES, property_of
from opassay.reports.cli.main import main
from tests.properties.candidates import candidates as of_questions
from tests.properties.candidates import of_properties as candidates

FILE = Path(candidates.__file__)


def _judge(candidate: Any, *codes: str, spec: Any = candidates.spec, inputs: Any = None) -> Judgement:
    return judge(candidate, spec, candidates.inputs() if inputs is None else inputs, questions=codes)


@pytest.fixture(scope="module")
def of_right() -> Judgement:
    """A right candidate, asked every property."""
    return _judge(candidates.right, *PROPERTIES)


@pytest.mark.fast_cases("JVP", "VMAP")
@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("JVP", candidates.zero_tangent),
        ("VMAP", candidates.mixed_rows),
        ("ORD2", candidates.constant_statistic),
        ("FAKE", candidates.half_fake),
        ("SAVE", candidates.hidden_input),
    ],
)
def test_a_planted_fault_is_rejected_and_a_right_candidate_accepted(code: str, fault: Any) -> None:
    judgement = _judge(fault, code)
    assert judgement.verdict is Ruling.REJECTED, str(judgement)
    assert [finding.question for finding in judgement.causes] == [code]
    (right,) = [finding for finding in _judge(candidates.right, code).findings if finding.question == code]
    assert right.verdict is not None
    assert right.verdict.outcome is Outcome.VERIFIED


class _FewTangents(candidates.Right):
    """Its jvp forgets the rows behind the fourth, which the given inputs do not have."""

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor) -> Any:
        whole = candidates.Right.jvp(ctx, *tangents)
        return torch.cat([whole[:4], torch.zeros_like(whole[4:])])


@pytest.mark.slow
def test_properties_are_asked_at_the_other_sizes_that_candidate_and_spec_take() -> None:
    def forgets(x: torch.Tensor, w: torch.Tensor) -> Any:
        return candidates._apply(_FewTangents, x, w)

    judgement = _judge(forgets, "JVP")
    assert [finding.question for finding in judgement.causes] == ["JVP"], str(judgement)

    def takes_few(x: torch.Tensor, w: torch.Tensor) -> Any:
        if len(x) > 4:
            raise RuntimeError("need at most 4 rows")
        return forgets(x, w)

    assert _judge(takes_few, "JVP").verdict is Ruling.ACCEPTED


_FOUND_BY_ONE = [row for row in of_questions.WRONG if row[2] != "FWD:given"]


@pytest.mark.parametrize(("name", "make", "question"), _FOUND_BY_ONE, ids=[row[0] for row in _FOUND_BY_ONE])
def test_the_property_of_a_question_finds_what_the_question_finds(
    name: str, make: Any, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "softmax", torch.softmax)  # set back in the end
    shapes, generator = ((5, 13), (11, 13), (11,)), torch.Generator().manual_seed(1)
    inputs = tuple(torch.randn(shape, generator=generator) for shape in shapes)
    judgement = _judge(make(), property_of(question), spec=of_questions.spec, inputs=inputs)
    assert question in [finding.question for finding in judgement.causes], str(judgement)


def test_the_process_is_compared_before_the_engine_makes_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "softmax", torch.softmax)  # set back in the end

    def patching(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        torch.softmax = torch.nn.functional.softmax  # type: ignore[assignment]
        return candidates.spec(x, w)

    judgement = _judge(patching, "JVP", "PURE")
    assert [finding.question for finding in judgement.causes] == ["PURE:untouched"], str(judgement)


def _refuses_none(x: torch.Tensor) -> torch.Tensor:
    if not x.numel():
        raise RuntimeError("a grid of 0 blocks")
    return x * 2


@pytest.mark.slow
def test_inputs_without_elements_are_asked() -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))

    def flat(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.numel() else torch.zeros(0)

    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    for candidate, code, verdict in (
        (double, "EMPTY", Ruling.ACCEPTED), (flat, "EMPTY", Ruling.REJECTED), (_refuses_none, "EMPTY", Ruling.REJECTED),
        (double, "SIZE:sizes", Ruling.ACCEPTED), (flat, "SIZE:sizes", Ruling.REJECTED),
        (_refuses_none, "SIZE:sizes", Ruling.ACCEPTED),
    ):  # fmt: skip
        judgement = _judge(candidate, code, spec=double, inputs=(x,))
        assert judgement.verdict is verdict, (candidate, code, str(judgement))


def test_a_property_of_other_processes_is_not_answered_here() -> None:
    judgement = _judge(candidates.right, "FWAD")
    assert judgement.findings[-1].outcome is Outcome.UNSUPPORTED
    assert judgement.weaknesses[-1].endswith("FWAD is asked of ops that other processes know by name")


@pytest.mark.slow
def test_a_property_imports_no_production_op() -> None:
    text = "import sys, torch, opassay; opassay.judge(torch.relu, torch.relu, (torch.ones(3),), questions=('FWD',))"
    check = "print([name for name in sys.modules if name.startswith('opassay.impl')])"
    done = subprocess.run([sys.executable, "-c", f"{text}; {check}"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_a_candidate_does_not_offer_is_refused_and_said() -> None:
    judgement = _judge(candidates.old_style, "VJP", "JVP", "VMAP")
    outcomes = {each.question: each.verdict.outcome for each in judgement.findings if each.verdict is not None}
    assert outcomes == {"VJP": Outcome.VERIFIED, "JVP": Outcome.REFUSED, "VMAP": Outcome.REFUSED}
    assert judgement.verdict is Ruling.WEAK
    first, second = judgement.weaknesses
    assert first.startswith("JVP was not judged: the candidate offers no forward mode: "), first
    assert second.startswith("VMAP was not judged: the candidate offers no torch.vmap: "), second


def test_a_candidate_of_another_device_says_so() -> None:
    judgement = _judge(candidates.of_cuda_alone, "VMAP")
    assert judgement.verdict is Ruling.WEAK
    assert "need cuda" in judgement.weaknesses[-1]


@pytest.mark.slow
def test_every_property_of_the_table_has_a_verdict(of_right: Judgement) -> None:
    assert not of_right.causes, str(of_right)
    verdicts = {each.question: each.verdict for each in of_right.findings if each.verdict is not None}
    assert {*verdicts, "AUTOCAST"} == set(PROPERTIES)
    assert not [verdict for verdict in verdicts.values() if verdict.outcome is Outcome.ERROR], str(of_right)


@pytest.mark.fast_cases("VJP")
@pytest.mark.parametrize("code", ["VJP", "JVP"])
def test_parameters_and_buffers_are_operands(code: str) -> None:
    torch.manual_seed(0)
    spec, candidate = candidates.Module(), candidates.Module()
    judgement = _judge(candidate, code, spec=spec, inputs=(torch.randn(6, 24),))
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)


@pytest.mark.slow
def test_the_command_asks_in_a_process_apart_and_records_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["judge", f"{FILE}:zero_tangent", "--spec", f"{FILE}:spec", "-k", "FWD:given", "-k", "JVP", "-k", "VJP"]
    assert main([*words, "--report-dir", str(tmp_path / "report"), "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert [cause["question"] for cause in record["causes"]] == ["JVP"]
    assert record["asked"] == ["FWD:given", "VJP", "JVP"]
    run = json.loads((tmp_path / "report" / "run.json").read_text())
    outcomes = {verdict["cell"]["property"]: verdict["outcome"] for verdict in run["verdicts"]}
    assert outcomes == {"FWD:given": "verified", "VJP": "verified", "JVP": "fail"}
    (case,) = (tmp_path / "report" / "cases").glob("*.json")
    assert main(["replay", str(case), "--op", f"{FILE}:zero_tangent"]) == 1
