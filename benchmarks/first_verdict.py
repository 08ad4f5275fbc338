"""Seconds until the verdict of a small `opassay judge`, by a process that loads all and by a copy of a warm one.

    python benchmarks/first_verdict.py [ROUNDS]

Cold and warm take turns. Seconds of the processor are those of the command and of the copies that have ended; of a
candidate in a pid namespace nobody counts them, so that on a quiet machine the clock is the upper end. Needs Linux.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_KERNEL = """
import torch
def reference(x): return torch.softmax(x, -1)
def kernel(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)
def inputs(): return (torch.randn(8, 32),)
"""
_SCRIPT = Path(sys.executable).with_name("opassay")


def copies_of(folder: str) -> list[int]:
    """The warm processes of a folder."""
    paths = Path("/proc").glob("[0-9]*/cmdline")
    return [int(path.parent.name) for path in paths if any(w.startswith(folder) for w in _words(path)[-3:])]


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").split("\0")
    except OSError:
        return []


def ticks_of(pids: list[int]) -> float:
    """Seconds of the processor that processes and their ended children have taken."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(sum(map(int, each[11:15])) for each in fields) / os.sysconf("SC_CLK_TCK")


def take(folder: str, warm: bool) -> tuple[float, float]:
    """Seconds of the processor and of the clock of one judgement."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": folder, "OPASSAY_WARM": "1" if warm else "0"}
    pids, before, began = copies_of(folder), resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    first = ticks_of(pids)
    subprocess.run([_SCRIPT, "judge", "mine.py", "-q"], cwd=folder, env=environment, check=True, capture_output=True)
    clock, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return own + ticks_of(pids) - first, clock


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with tempfile.TemporaryDirectory(prefix="first-", dir="/tmp") as folder:
        Path(folder, "mine.py").write_text(_KERNEL)
        take(folder, warm=True)
        while not [*Path(folder).glob("opassay-*/*.socket")]:
            time.sleep(0.1)
        rows = [(take(folder, warm=False), take(folder, warm=True)) for _ in range(rounds)]
        for number, name in enumerate(("cold", "warm")):
            processor, clock = (statistics.median(row[number][i] for row in rows) for i in range(2))
            print(f"{name}: {processor:.2f} s of the processor, {clock:.2f} s of the clock (medians of {rounds})")
        for pid in copies_of(folder):
            os.kill(pid, 15)


if __name__ == "__main__":
    main()
