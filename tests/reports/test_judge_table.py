"""A folder of problems and a folder of candidates: a line each, the most urgent code, what an interrupt leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opassay.reports.cli.judge import problem_table
from opassay.reports.cli.main import main

SPEC = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)

def get_inputs():
    return [torch.randn(4, 6)]
"""
CANDIDATE = "import torch\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {value}\n"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("problems", "candidates"):
        (tmp_path / name).mkdir()
    for name, value in (("right", "torch.softmax(x, -1)"), ("wrong", "torch.softmax(x, 0)")):
        (tmp_path / "problems" / f"{name}.py").write_text(SPEC)
        (tmp_path / "candidates" / f"{name}.py").write_text(CANDIDATE.format(value=value))
    (tmp_path / "problems" / "alone.py").write_text(SPEC)
    (tmp_path / "problems" / "_shared.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


WORDS = ["judge", "candidates", "--spec", "problems"]


@pytest.mark.slow
def test_every_problem_has_a_line_and_the_code_is_the_most_urgent(
    folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folders / "torch.py").write_text("raise RuntimeError('from the current folder')")
    assert main([*WORDS, "-k", "FWD:given", "--json"]) == 2
    alone, right, wrong = map(json.loads, capsys.readouterr().out.splitlines())
    assert [each["problem"] for each in (alone, right, wrong)] == ["alone", "right", "wrong"]
    assert (alone["verdict"], alone["error"]) == ("error", "no candidate alone.py in candidates")
    assert (right["verdict"], right["error"], wrong["verdict"]) == ("accepted", "", "rejected"), right
    (folders / "problems" / "alone.py").unlink()
    assert main([*WORDS, "-k", "FWD:given"]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.split()[:2] == ["accepted", "right"]
    assert second.split()[:2] == ["rejected", "wrong"]
    assert "FWD:given: out[" in second
    assert last == "1 of 2 accepted"


def test_an_interrupt_leaves_the_lines_before_it(
    folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answers(rows: list[problem_table.ProblemRow], question: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for row in rows:
            if row.name == "wrong":
                raise KeyboardInterrupt
            yield {"error": "no verdict"}

    monkeypatch.setattr(problem_table, "_answers", answers)
    assert main(WORDS) == 130
    streams = capsys.readouterr()
    assert [line.split()[:2] for line in streams.out.splitlines()] == [["error", "alone"], ["error", "right"]]
    assert "interrupted" in streams.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--spec", "candidates/none"], "no such file"),
        (["--spec", "empty"], "--spec: empty: has no task.yml, no config_forward.json and no problems"),
        (["--spec", "problems", "--report-dir", "report"], "--report-dir: got 3 judgements, need one"),
        (["--spec", "problems", "--time", "--interpret"], "--time: got --interpret, too"),
        (["--spec", "definition.json"], "definition.json: name: got None, need a str"),
    ],
)
def test_what_cannot_be_judged_is_a_sentence(
    words: list[str], message: str, folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folders / "empty").mkdir()
    (folders / "definition.json").write_text("{}")
    assert main(["judge", "candidates/right.py", *words]) == 2
    assert message in capsys.readouterr().err
    assert main(["judge", "candidates/right.py", *words, "--json"]) == 2
    assert message in capsys.readouterr().out


def test_a_broken_problem_is_a_line_of_its_own(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folders / "problems" / "definition.json").write_text('{"name": 3}')
    rows = problem_table.rows_of("candidates", "problems", {})
    assert [row.name for row in rows if row.error] == ["alone", "definition"]
    assert "name: got 3, need a str" in next(row.error for row in rows if row.name == "definition")
