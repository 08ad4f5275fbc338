"""Runs of the command line in a process of its own, and what must hold after each of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from opassay.reports import record
from opassay.reports.record import Run

HERE = Path(__file__).resolve().parent
BAD, GOOD = "trace", "softmax"


def command(*words: str, stub: bool = True) -> list[str]:
    """The program that runs the command line; with `stub`, workers without torch judge."""
    worker = f", worker=[sys.executable, {str(HERE / 'hostile_suite.py')!r}]" if stub else ""
    program = f"import sys\nfrom opassay.reports.cli.main import main\nsys.exit(main(sys.argv[1:]{worker}))"
    return [sys.executable, "-c", program, *words]


def environment(faults: dict[str, str] | None = None, pace: float = 0.0, **more: str) -> dict[str, str]:
    return {**os.environ, "HOSTILE": json.dumps(faults or {}), "PACE": str(pace), **more}


def cells(*ops: str, properties: Sequence[str] = ("FWD", "VJP", "JVP")) -> list[str]:
    return [*ops, "--dtype=float32", *(f"--property={name}" for name in properties)]


def run(folder: Path, *words: str, faults: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("run", *words), cwd=folder, env=environment(faults), capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


def load(folder: Path) -> Run:
    return record.load(folder / "opassay-report" / "run.json")


def outcomes(run: Run, op: str) -> list[str]:
    return [str(verdict.outcome) for verdict in run.verdicts if verdict.cell.op == op]


def wait_for(what: Callable[[], bool], seconds: float = 30.0) -> None:
    """Until something holds."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            raise AssertionError(f"did not come true within {seconds} s")
        time.sleep(0.01)


def log_of(folder: Path) -> str:
    """The log of the newest run in a folder's report folder; empty while there is none."""
    logs = sorted((folder / "opassay-report/.opassay").glob("*.ndjson"))
    return logs[-1].read_text() if logs else ""


def workers_of(owner: int) -> list[int]:
    """Processes that have the mark of a worker of that owner."""
    results = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and f"OPASSAY_WORKER={owner}.".encode() in (entry / "environ").read_bytes():
                results.append(int(entry.name))
        except OSError:
            continue
    return results
