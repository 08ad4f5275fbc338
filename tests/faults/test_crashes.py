"""Of a process that ended, the sample is found by which it did, and a program that a signal ends as well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opassay.oracles.verdicts.case import load_case
from opassay.oracles.verdicts.verdict import Cell, Code
from opassay.properties.places.crash_search import find_culprit
from opassay.reports.causes.grouping import causes_of
from opassay.reports.causes.page import page
from opassay.reports.causes.severity import Severity
from tests.faults.runs import BAD, HERE, command, environment, load, outcomes, run

pytestmark = pytest.mark.slow

OP = "tests.faults.ending:op"
#: Where modules of the tests can be imported from.
ROOT = str(HERE.parents[1])


def test_the_sample_and_a_program_are_told_and_other_properties_are_asked(tmp_path: Path) -> None:
    words = ["run", OP, "--dtype=float64", "--dtype=float32", "--property=FWD", "--property=EMPTY", "--profile=brief"]
    done = subprocess.run(
        command(*words, "-n", "1", "--max-examples=4", stub=False), cwd=tmp_path, env=environment(PYTHONPATH=ROOT),
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    result = load(tmp_path)
    assert outcomes(result, OP) == ["verified", "verified", "crash", "crash"], done.stdout + done.stderr
    (cause,) = causes_of(result.verdicts)
    assert (cause.severity, len(cause.cells)) == (Severity.CRASH, 2)
    failure = cause.example.failure
    assert failure.code is Code.CRASHED
    assert load_case(failure.case)[1].args[0].numel() == 0
    assert (tmp_path / "opassay-report/cases" / f"{failure.case_id}.json").read_text() == failure.case
    assert "is ended by a signal" in page(cause, result)
    # The run has seen that a signal ends the program; with an element in each tensor, none does.
    whole = failure.snippet.replace("(0,", "(1,").replace("torch.empty", "torch.ones")
    assert subprocess.run([sys.executable, "-c", whole], cwd=ROOT, check=False).returncode == 0


def test_a_property_that_ends_two_processes_is_given_up(tmp_path: Path) -> None:
    dtypes = ["--dtype=float64", "--dtype=float32", "--dtype=bfloat16"]
    run(tmp_path, BAD, "--property=FWD", *dtypes, "-n", "1", faults={BAD: "abort"})
    result = load(tmp_path)
    assert outcomes(result, BAD) == ["crash", "crash", "not run"]
    assert "its other cells of FWD were not asked" in result.verdicts[-1].reason


@pytest.mark.parametrize("fault", ["abort", "says nonsense"])
def test_a_process_that_ends_without_a_word_has_no_culprit(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTILE", f'{{"{BAD}": "{fault}"}}')
    cell = Cell(BAD, "FWD", "float32", "cpu", "opassay")
    settings = {"profile": "brief", "seed": 0, "max_examples": 1}
    assert find_culprit(cell, settings, 20.0, [sys.executable, str(HERE / "hostile_suite.py")]) is None
