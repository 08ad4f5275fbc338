"""`opassay judge --eval`: specs with dropout, asked as in evaluation; what drops, or scales, there is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from opassay.oracles.specs.evaluation import without_dropout
from opassay.properties.candidates.judge_files import judge_file
from opassay.properties.candidates.judgement import Ruling
from opassay.properties.candidates.question_plan import QuestionPlan
from opassay.reports.cli.main import main

SPEC = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(6, 5)
        self.drop = torch.nn.Dropout(0.4)
        self.norm = torch.nn.BatchNorm1d(5)

    def forward(self, x):
        return F.dropout(self.norm(self.drop(self.fc(x))), 0.25)

def get_inputs():
    return [torch.randn(4, 6)]
"""
MODEL = """
import {spec}
import torch
import torch.nn.functional as F

class ModelNew({spec}.Model):
    def forward(self, x):
        y = self.fc(x)
        mean, var = self.norm.running_mean, self.norm.running_var
        y = {body}
        return (y - mean) * torch.rsqrt(var + 1e-5) * self.norm.weight + self.norm.bias
"""


def _pair(folder: Path, body: str) -> tuple[str, str]:
    spec, candidate = folder / "dropping.py", folder / "candidate.py"
    spec.write_text(SPEC)
    candidate.write_text(MODEL.format(spec=spec.stem, body=body))
    return str(candidate), str(spec)


@pytest.mark.fast_cases("y / 0.6")
@pytest.mark.parametrize(
    ("body", "right"),
    [
        ("self.drop(y)", True),
        ("y", True),
        ("F.dropout(y, 0.4)", False),
        ("y * 0.6", False),
        ("y / 0.6", False),
        ("torch.where(torch.rand_like(y) < 0.4, 0.0, y)", False),
    ],
)
@pytest.mark.usefixtures("copied_candidates")
def test_a_module_with_dropout_is_asked_in_evaluation(body: str, right: bool, tmp_path: Path) -> None:
    plan = QuestionPlan(["FWD:given", "VJP:grad"], evaluation=True)
    judgement = judge_file(*_pair(tmp_path, body), contract="torch", plan=plan)
    assert judgement.verdict is (Ruling.ACCEPTED if right else Ruling.REJECTED), str(judgement)
    assert not judgement.error


@pytest.mark.usefixtures("copied_candidates")
def test_the_command_asks_in_evaluation_and_so_does_its_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    candidate, spec = _pair(tmp_path, "y / 0.6")
    words = ["judge", candidate, "--spec", spec, "--seed", "0", "-k", "FWD:given", "--eval", "--report-dir", "report"]
    assert main(words) == 1
    (case,) = (tmp_path / "report" / "cases").glob("*.json")
    assert json.loads(case.read_text())["flags"] == ["eval"]
    (tmp_path / "candidate.py").write_text(MODEL.format(spec="dropping", body="y"))
    capsys.readouterr()
    assert main(["replay", str(case), "--op", candidate]) == 0, str(capsys.readouterr())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.dropout(x, 0.5, True),
        lambda x: torch.dropout(x, p=0.5, train=True),
        lambda x: torch.native_dropout(x, 0.5, True)[0],
        lambda x: F.dropout(x.clone(), 0.5, True, True),
        lambda x: F.feature_alpha_dropout(x, 0.5, training=True),
        lambda x: F.dropout1d(x),
        lambda x: torch.nn.AlphaDropout()(x),
    ],
)
def test_nothing_is_dropped_in_evaluation(function: object) -> None:
    x = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
    assert callable(function)
    assert torch.equal(without_dropout(function)(x), x)
    assert not torch.equal(function(x), x)


def test_attention_and_random_slopes_are_those_of_evaluation() -> None:
    q, k, v = torch.randn(3, 2, 5, 4, generator=torch.Generator().manual_seed(0)).unbind()

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, None, 0.5)

    module = torch.nn.MultiheadAttention(4, 2, dropout=0.5)
    assert torch.equal(without_dropout(attention)(q, k, v), F.scaled_dot_product_attention(q, k, v))
    right = without_dropout(module)(q, k, v)[0]
    assert torch.equal(right, module.eval()(q, k, v)[0])
    assert torch.equal(without_dropout(lambda x: F.rrelu(x, training=True))(q), F.rrelu(q))
    assert torch.equal(without_dropout(lambda x: torch.rrelu(x, 0.1, 0.3, True))(q), torch.rrelu(q, 0.1, 0.3))
