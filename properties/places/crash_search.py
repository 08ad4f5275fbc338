"""Finds the sample that ended a process which judged a cell, and makes a program of it that a signal ends, too.

A process that has ended says nothing of what it was doing. So the cell is judged once more, in a process that writes
every sample to a file before it judges the sample; where that process ends as well, the last sample ended it. The
sample is written as a program, which is kept only if a signal ends it, too: another path, or an earlier sample, may
have caused the end, and neither is in the program.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from ...oracles.verdicts.verdict import MAX_CASE, Cell
from .pool import ALONE
from .process import AnswerError, EndedError, Process

#: Seconds for a program to end by itself.
_SECONDS = 60.0


@dataclass(frozen=True)
class Culprit:
    """The sample that ended a process: its name, its case file, and a program that a signal ends, if one was found."""

    case_id: str
    case: str
    program: str = ""


def find_culprit(
    cell: Cell, settings: Mapping[str, Any], seconds: float, command: Sequence[str],
    stopped: Callable[[], bool] = lambda: False,
) -> Culprit | None:  # fmt: skip
    """The sample that ends a process; None where the process does not end again, or another one judges the cell.

    Args:
        cell: one that ended its process. settings: of `samples.Settings`, as data. seconds: for the cell.
        command: the program of a worker. stopped: once it is true, nothing is waited for.

    Raises:
        KeyboardInterrupt: it was stopped.
    """
    with tempfile.TemporaryDirectory(prefix="opassay-") as folder:
        record = Path(folder) / "told.json"
        if not _does_process_end(cell, settings, record, seconds, command, stopped):
            return None
        try:
            case_id, case, program = map(str, json.loads(record.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None  # it ended before its first sample, or while it wrote
    if len(case) > MAX_CASE:
        return None
    return Culprit(case_id, case, program if _does_signal_end(program) else "")


def _does_process_end(
    cell: Cell, settings: Mapping[str, Any], record: Path, seconds: float, command: Sequence[str],
    stopped: Callable[[], bool],
) -> bool:  # fmt: skip
    """Whether a process that judges the cell, and writes each sample to `record` first, ends by itself."""
    with contextlib.closing(Process(ALONE, command=command)) as process:
        process.ask({"cell": astuple(cell), "settings": settings, "retell": str(record)})
        try:
            for _ in ("ready", "retold"):
                process.answer(time.monotonic() + seconds, stopped)
        except EndedError:
            return process.ended
        except AnswerError:
            pass
    return False


def _does_signal_end(program: str) -> bool:
    """Whether a signal ends a program."""
    if not program:
        return False
    command = [sys.executable, "-W", "ignore", "-c", "import sys; exec(sys.stdin.read())"]
    try:
        process = subprocess.run(command, input=program, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return process.returncode < 0
