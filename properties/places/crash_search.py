"""Which sample ended a process that judged a cell, and a program that ends by it, too.

A process that has ended says nothing of what it was doing. So the cell is asked once more, in a process that writes
every sample down before it judges it; where that one ends as well, the last sample is the one. A program is made of
it, and is kept only if a signal ends it, too: it does not hold what another path or an earlier sample did.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...oracles.verdicts.verdict import MAX_CASE, Cell
from .pool import ALONE
from .process import AnswerError, EndedError, Process

#: Seconds for a program to end by itself.
_SECONDS = 60.0


@dataclass(frozen=True)
class Culprit:
    """The sample that ended a process.

    Attributes:
        case_id: its name. case: its case file. program: one that a signal ends; empty where none was found.
    """

    case_id: str
    case: str
    program: str = ""


def culprit(
    cell: Cell, settings: Mapping[str, Any], seconds: float, command: Sequence[str],
    stopped: Callable[[], bool] = lambda: False,
) -> Culprit | None:  # fmt: skip
    """The sample that ends a process; None where it does not come again, or where the cell is judged elsewhere.

    Args:
        cell: one that ended its process. settings: of `samples.Settings`, as data. seconds: for the cell.
        command: the program of a worker. stopped: once it is true, nothing is waited for.

    Raises:
        KeyboardInterrupt: it was stopped.
    """
    with tempfile.TemporaryDirectory(prefix="opassay-") as folder:
        told = Path(folder) / "told.json"
        if not _ends(cell, settings, told, seconds, command, stopped):
            return None
        try:
            case_id, case, program = map(str, json.loads(told.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return None  # it ended before its first sample, or while it wrote
    if len(case) > MAX_CASE:
        return None
    return Culprit(case_id, case, program if _is_ended(program) else "")


def _ends(
    cell: Cell, settings: Mapping[str, Any], told: Path, seconds: float, command: Sequence[str],
    stopped: Callable[[], bool],
) -> bool:  # fmt: skip
    """Whether a process that judges the cell ends by itself."""
    process = Process(ALONE, command=command)
    try:
        question = [cell.op, cell.property, cell.dtype, cell.device, cell.subject]
        process.ask({"cell": question, "settings": settings, "retell": str(told)})
        for _ in ("ready", "retold"):
            process.answer(time.monotonic() + seconds, stopped)
    except EndedError:
        return process.ended
    except AnswerError:
        return False
    finally:
        process.kill()
        process.close()
    return False


def _is_ended(program: str) -> bool:
    """Whether a signal ends a program."""
    if not program:
        return False
    command = [sys.executable, "-W", "ignore", "-c", "import sys; exec(sys.stdin.read())"]
    try:
        done = subprocess.run(command, input=program, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode < 0
