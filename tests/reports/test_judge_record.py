"""A judgement leaves a record, which every command reads that reads the record of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from opassay.oracles.verdicts.verdict import Code, Outcome
from opassay.reports.cli.main import main
from opassay.reports.exit_codes import OF_JUDGEMENTS
from opassay.reports.record import load

PAIR = """
import torch

def reference(x):
    return torch.softmax(x, -1)

def kernel(x):
    powers = torch.exp(x)
    return powers / powers.sum(-1, keepdim=True)

def tail(x):
    y = torch.softmax(x, -1)
    return torch.cat([y[:, :24], 2 * y[:, 24:]], -1)

def inputs():
    return (torch.randn(8, 32),)
"""


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied_candidates: None) -> Path:
    (tmp_path / "mine.py").write_text(PAIR)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _judge(name: str, *words: str) -> int:
    return main(["judge", f"mine.py:{name}", "--spec", "mine.py:reference", "--seed=0", *words])


def test_a_judgement_is_recorded_gated_compared_and_shown(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        _judge("kernel", "--report-dir", "report", "-k", "FWD:given", "-k", "FWD:offset", "-k", "FWD:params", "-q") == 1
    )
    output = capsys.readouterr().out
    assert output.startswith("rejected: FWD:offset\n")
    assert "report  report/report.html" in output
    run = load(pair / "report" / "run.json")
    outcomes = {verdict.cell.property: verdict.outcome for verdict in run.verdicts}
    assert outcomes == {"FWD:given": Outcome.VERIFIED, "FWD:offset": Outcome.FAIL, "FWD:params": Outcome.UNSUPPORTED}
    assert {verdict.cell.op for verdict in run.verdicts} == {"mine.py:kernel"}
    failure = next(verdict.failure for verdict in run.verdicts if verdict.failure)
    assert failure.code is Code.SPECIAL
    assert "opassay judge mine.py:kernel --spec mine.py:reference --seed=0 -k FWD:offset" in failure.message
    assert (run.exit_code, run.exit_reasons) == (1, ("rejected: FWD:offset",))
    page = (pair / "report" / "report.html").read_text()
    assert "values: around 100" in page
    assert "did not repeat" not in page
    assert main(["gate", "report/run.json"]) == 1
    assert main(["report", "compare", "report/run.json", "report/run.json"]) == 0


def test_a_nan_that_spreads_otherwise_is_recorded_as_what_held(pair: Path) -> None:
    assert _judge("kernel", "--report-dir", "report", "-k", "FWD:given", "-k", "SPECIAL:inf") == 0
    first, spread = load(pair / "report" / "run.json").verdicts
    assert (first.outcome, spread.outcome, spread.code) == (Outcome.VERIFIED, Outcome.VERIFIED, Code.HELD)
    assert spread.reason.startswith("an infinity at x[")
    assert spread.failure is None


def test_the_card_of_the_record_says_where_elements_are_wrong(pair: Path) -> None:
    assert _judge("tail", "--report-dir", "report", "-k", "FWD:given") == 1
    (verdict,) = load(pair / "report" / "run.json").verdicts
    assert verdict.failure is not None
    assert "only columns 24 to 31 (the last tile of 8); off by the factor 2" in verdict.failure.message
    assert "input      x: float32[8, 32]" in verdict.failure.message
    assert verdict.measure.worst is not None
    assert verdict.measure.worst.ratio > 1


def test_a_right_candidate_leaves_a_record_without_failures(pair: Path) -> None:
    assert _judge("reference", "--report-dir", "report", "-k", "FWD:given", "-k", "PURE:untouched") == 0
    run = load(pair / "report" / "run.json")
    assert [verdict.outcome for verdict in run.verdicts] == [Outcome.VERIFIED, Outcome.VERIFIED]
    assert (run.exit_code, run.exit_reasons) == (0, ())


def test_a_folder_that_is_not_ours_ends_the_command_before_anything_runs(
    pair: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pair / "report").mkdir()
    (pair / "report" / "run.json").write_text("mine")
    assert _judge("kernel", "--report-dir", "report") == 2
    assert "--report-dir" in capsys.readouterr().err
    assert (pair / "report" / "run.json").read_text() == "mine"


def test_wrong_command_lines_are_told(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _judge("kernel", "-k", "OFSET") == 2
    assert "did you mean 'FWD:offset'?" in capsys.readouterr().err
    assert main(["judge", "mine.py:reference"]) == 2
    assert "--spec: got none" in capsys.readouterr().err
    assert main(["judge", "mine.py:kernel", "--demo"]) == 2
    assert "--demo" in capsys.readouterr().err


def test_a_candidate_that_does_not_compile_is_told_before_anything_runs(
    pair: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pair / "open.py").write_text("def kernel(x:\n    return x\n")
    (pair / "null.py").write_text("x = 1\0\n")
    (pair / "mine.py").write_text("raise SystemExit('the spec ran')\n" + PAIR)
    for name, line in (
        ("open", "SyntaxError: '(' was never closed (open.py, line 1): def kernel(x:"),
        ("null", "null"),
    ):
        assert main(["judge", f"{name}.py:kernel", "--spec", "mine.py:reference"]) == 2
        error = capsys.readouterr().err
        assert f"{name}.py does not compile: " in error
        assert line in error


def test_the_demonstration_needs_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["judge", "--demo", "-k", "FWD:given", "-k", "FWD:offset"]) == 1
    output = capsys.readouterr().out
    assert "def kernel(x" in output
    assert "rejected: FWD:offset" in output


def test_every_verdict_has_an_exit_code() -> None:
    assert set(OF_JUDGEMENTS.values()) == {0, 1, 3, 4}
