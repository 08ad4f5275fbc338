"""`pytest --opassay-report`: assertions of a session as cells of a record, and known failures, which are strict."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from opassay.oracles.verdicts.verdict import Outcome
from opassay.reports.gate import Files, find_regressions
from opassay.reports.record import load

THEIRS = """
import pytest, torch
from opassay import assert_conforms


def double(x):
    return x + x


X = torch.ones(3)


@pytest.mark.parametrize("case", ["a#1", "a#2"])
def test_right(case):
    assert_conforms(X * 2, double, X)


def test_wrong():
    assert_conforms(X * 3, double, X)


def test_known():
    assert_conforms(X * 3, double, X)


def test_worse():
    assert_conforms(X * 3, double, X)


def test_gone():
    assert_conforms(X * 2, double, X)


def test_wrong_on_purpose():
    with pytest.raises(AssertionError):
        assert_conforms(X * 3, double, X)


def test_two():
    assert_conforms(X * 2, double, X)
    assert_conforms(X[:2] * 2, double, X[:2])


def test_of_no_number():
    assert_conforms(X.double(), double, X)


def test_without_a_spec():
    assert_conforms(X, lambda x: x.item(), X)


def test_of_something_else():
    raise OSError
"""


def _entry(test: str, at_most: float | str) -> dict[str, object]:
    cell = f"test_theirs.py::{test}::FWD:given[float32-cpu-candidate]"
    texts = {"reason": "an older formula", "issue": "#12", "owner": "me", "expires": "2199-01-01"}
    return {"cell": cell, "code": "OA101", "at_most": at_most, **texts}


def _session(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    entries = [_entry("test_known", "inf"), _entry("test_worse", 2.0), _entry("test_gone", "inf")]
    (folder / "known.json").write_text(json.dumps({"schema": 2, "known": entries}))
    (folder / "test_theirs.py").write_text(THEIRS)
    command = [sys.executable, "-m", "pytest", "-rx", "-p", "no:cacheprovider", "--opassay-report", "report", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("words", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)])
def test_a_session_is_a_record(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = _session(tmp_path, *words)
    assert "6 failed, 4 passed, 1 xfailed" in done.stdout, done.stdout + done.stderr
    assert "XFAIL test_theirs.py::test_known - an older formula (#12)" in done.stdout
    assert "known was OA101 of at most 2 times its bound, now it is OA101 of" in done.stdout
    assert "is listed as a known failure, but holds; run `opassay gate prune`" in done.stdout
    assert "report/report.html, report/run.json" in done.stdout
    run = load(tmp_path / "report/run.json")
    outcomes = {v.cell.op.removeprefix("test_theirs.py::test_"): v.outcome for v in run.verdicts}
    assert outcomes == {
        "right[a#1]": Outcome.VERIFIED, "right[a#2]": Outcome.VERIFIED, "wrong": Outcome.FAIL,
        "known": Outcome.FAIL, "worse": Outcome.FAIL, "gone": Outcome.VERIFIED, "two": Outcome.VERIFIED,
        "two#2": Outcome.VERIFIED, "of_no_number": Outcome.FAIL, "without_a_spec": Outcome.ERROR,
    }  # fmt: skip
    assert (run.command[0], run.exit_code) == ("pytest", 2)
    assert run.environment["torch"]
    assert any(s.startswith("2 tests failed beside their verdicts: ") for s in run.exit_reasons)
    card = next(v.failure for v in run.verdicts if v.cell.op.endswith("test_wrong"))
    assert card is not None
    assert "again      pytest 'test_theirs.py::test_wrong'" in card.message
    assert "test_wrong" in (tmp_path / "report/junit.xml").read_text()
    assert "test_wrong" in (tmp_path / "report/report.html").read_text()
    kinds = [(each.kind, each.cell.partition("::FWD")[0][21:]) for each in find_regressions(run, Files())]
    assert ("new", "wrong") in kinds
    assert not [each for each in kinds if "purpose" in each[1]]


def test_what_cannot_be_written_or_read_is_told_before_the_first_test(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report/mine.txt").write_text("mine")
    done = _session(tmp_path)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--opassay-report: report folder 'report': holds 'mine.txt'" in done.stderr
    done = _session(tmp_path, "--opassay-known", "none.json")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "none.json" in done.stderr
