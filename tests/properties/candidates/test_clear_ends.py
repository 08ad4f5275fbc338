"""What a reading raises ends in a sentence, and hides no verdict; a program gets its line of JSON whatever happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import opassay
from opassay.oracles.specs import rules
from opassay.oracles.verdicts.verdict import Code
from opassay.properties.candidates import judge_files
from opassay.properties.candidates.host.calls import GoneError
from opassay.properties.candidates.host.host import CandidateHost
from opassay.properties.candidates.judgement import Ruling
from opassay.properties.candidates.judging import judge
from opassay.reports.cli.main import main

GENERATOR = torch.Generator().manual_seed(5)


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


def experts(x: Tensor, router: Tensor, w: Tensor) -> Tensor:
    """The two likeliest of four experts: which ones they are a wide ball does not decide."""
    shares = torch.softmax(x @ router, -1)
    best, which = shares.topk(2, -1)
    gates = torch.zeros_like(shares).scatter(1, which, best / best.sum(-1, keepdim=True))
    return torch.einsum("te,td,ehd->th", gates, x, w)


@pytest.mark.parametrize("right", [True, False])
def test_terms_that_cannot_be_read_hide_no_verdict(right: bool) -> None:
    def candidate(x: Tensor, router: Tensor, w: Tensor) -> Tensor:
        out = experts(x, router, w)
        out[-1] *= 1.0 if right else 0.0
        return out

    inputs = (_normal(5, 8), _normal(8, 4), _normal(4, 6, 8))
    judgement = judge(candidate, experts, inputs, questions=["GIVEN", "SEEDS"])
    assert judgement.verdict is (Ruling.ACCEPTED if right else Ruling.REJECTED), str(judgement)
    assert (judgement.kept == "") is not right


def test_whatever_a_rule_raises_names_the_line_of_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Any:
        return dict[str, Any]()["float7"]

    monkeypatch.setitem(rules.RULES, torch.ops.aten.erf.default, fail)
    with pytest.raises(
        opassay.SpecError, match=r"aten\.erf\.default in line \d+ .*cannot be read there.*KeyError: 'float7'"
    ):
        opassay.bound(lambda x: torch.special.erf(x), _normal(3))
    judgement = judge(torch.special.erf, lambda x: torch.special.erf(x), (_normal(3),))
    assert judgement.verdict is Ruling.ERROR
    assert "KeyError" in judgement.error


def test_a_fault_of_the_judge_is_a_line_of_json_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def faulty(*args: Any, **named: Any) -> Any:
        raise KeyError("planted")

    monkeypatch.setattr(judge_files, "judge_file", faulty)
    assert main(["judge", "any.py", "--spec", "any.py", "--json"]) == 3
    (line,) = capsys.readouterr().out.splitlines()
    reply = json.loads(line)
    assert reply["verdict"] == "error"
    assert reply["error"] == "internal error, KeyError: 'planted'"


def test_outputs_that_are_not_shown_again_are_not_taken_for_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(_: CandidateHost) -> None:
        raise GoneError("after 65 s: no answer", True)

    monkeypatch.setattr(CandidateHost, "review", late)
    judgement = judge(torch.relu, torch.relu, (_normal(4, 8),), questions=["GIVEN", "LEFT"])
    assert judgement.verdict is Ruling.REJECTED, str(judgement)
    assert [(each.question, each.wrong and each.wrong.code) for each in judgement.causes] == [("LEFT", Code.TIMED_OUT)]
