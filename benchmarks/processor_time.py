"""Seconds of the processor of a command and of all that it starts, by looking at the processes again and again.

getrusage(2) would leave out a candidate in a pid namespace: when the judge ends the namespace's first process, the
system drops the seconds of the others there, because nobody asks how they ended.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

#: Of prctl(2): what loses its parent becomes a child of this process, so that it is seen as one of the command's.
_SET_CHILD_SUBREAPER = 36
#: Seconds between two looks. What a process takes after the last look at it is not counted.
_PAUSE = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")


class Run(NamedTuple):
    """A command that has ended: what it wrote, its exit code, and seconds: of user and system, of system, of clock."""

    output: str
    errors: str
    code: int
    processor: float
    system: float
    clock: float


def run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Run:
    """Run a command of Linux to its end in a folder."""
    if sys.platform != "linux":
        raise RuntimeError(f"platform {sys.platform}: need Linux, whose /proc has the seconds of other processes")
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ticks: dict[tuple[int, int], tuple[int, int]] = {}
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=errors)
        while process.poll() is None:
            time.sleep(_PAUSE)
            ticks |= _ticks_below(os.getpid())
        clock = time.perf_counter() - start
        output.seek(0)
        errors.seek(0)
        user, system = (sum(column) / _TICKS for column in zip(*ticks.values(), strict=True))
        return Run(output.read(), errors.read(), process.returncode, user + system, system, clock)


def _ticks_below(root: int) -> dict[tuple[int, int], tuple[int, int]]:
    """(number, start) of each process below one -> its ticks in user and in system mode."""
    parents, ticks = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            content = (folder / "stat").read_bytes()
        except OSError:  # it has ended
            continue
        # Behind the program's name, which may have any characters: state, parent, ..., as of proc(5) from field 3 on.
        fields = content[content.rfind(b")") + 2 :].split()
        pid = int(folder.name)
        parents[pid] = int(fields[1])
        ticks[pid, int(fields[19])] = int(fields[11]), int(fields[12])
    return {key: value for key, value in ticks.items() if _is_below(key[0], root, parents)}


def _is_below(pid: int, root: int, parents: Mapping[int, int]) -> bool:
    while pid in parents and parents[pid] != root:
        pid = parents[pid]
    return pid in parents
