"""Runs and verdicts that the tests of the reports share."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from opassay.oracles.verdicts.verdict import Cell, Code, Failure, Measure, Outcome, Verdict, Worst
from opassay.reports.cli.main import main
from opassay.reports.record import Run, plan_digest

HERE = Path(__file__).resolve().parent
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\x00\x07\u202e &amp; 'q\" \ud800 http://evil.example/ ]]>"

#: The program of a process that judges, and its arguments.
STUBS = [sys.executable, str(HERE / "stub_suite.py")]

MakeRun = Callable[..., Run]


def verdict(
    name: str = "FWD",
    outcome: Outcome = Outcome.VERIFIED,
    code: Code = Code.HELD,
    *,
    op: str = "softmax",
    ratio: float = 0.5,
    judged: int = 100,
    subject: str = "opassay",
    reason: str = "held",
) -> Verdict:
    cell = Cell(op, name, "float32", "cpu", subject)
    worst = Worst("out[0]", "vjp", "0x1.8p+1", "3.1", ratio * 4, ratio)
    figures = (ratio * 4, ratio, 4.0, math.inf, worst, 0.25, ratio * 2)
    full = Measure(8, 1, judged, 3, *figures, scaled_median=0.01, scaled_p99=0.5, scaled_max=ratio)
    measure = full if judged else Measure()
    failure = None
    if outcome is Outcome.FAIL:
        failure = Failure(code, "worse than its bound", "line 1\nline 2", f"{cell.id}-0001", '{"op": 1}', "exit(1)")
    timing = (("op", 0.25), ("reference", 0.5))
    return Verdict(cell, outcome, code, reason, measure, failure, 0.75, timing, "a property")


def failed(name: str = "VJP", *, ratio: float = 3.9, op: str = "softmax") -> Verdict:
    return verdict(name, Outcome.FAIL, Code.VALUE, ratio=ratio, op=op)


def make_run(*verdicts: Verdict, profile: str = "commit", started: str = "2026-03-01T10:00:00+00:00") -> Run:
    return Run(
        version="0.1.0",
        profile=profile,
        seed=0,
        plan_digest=plan_digest(item.cell for item in verdicts),
        started=started,
        verdicts=verdicts,
        environment={"torch": "2.13.0", "platform": "Linux 6 x86_64"},
        command=("opassay", "run"),
    )


@pytest.fixture(name="opassay")
def _opassay(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command line with the stub suite in a process of its own, in an empty folder."""

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command_line(*words), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )

    return call


@pytest.fixture(name="opassay_here")
def _opassay_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The same in this process, which has imported all that a command needs."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        code = main(words, worker=STUBS)
        return subprocess.CompletedProcess(words, code, *capfd.readouterr())

    return call


def command_line(*words: str) -> list[str]:
    program = f"import sys\nfrom opassay.reports.cli.main import main\nsys.exit(main(sys.argv[1:], worker={STUBS!r}))"
    return [sys.executable, "-c", program, *words]
