"""Times `opassay run` on three properties of layer_norm, with one worker and with two."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial

from measurement import Row, fastest, line

PROPERTIES = ("FWD", "VJP", "ORD2")
WORKERS = (1, 2)
RUNS = 2
#: Exit codes of a run that was judged to its end: passed, failed, incomplete.
EXIT_CODES = (0, 1, 4)


def run(workers: int) -> None:
    """One run, as a process of its own.

    Raises:
        RuntimeError: the run was not judged to its end.
    """
    words = [part for name in PROPERTIES for part in ("--property", name)]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "opassay", "run", "--op", "layer_norm", *words, "-n", str(workers)]
        done = subprocess.run(
            [*command, "--report-dir", folder], capture_output=True, text=True, check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    if done.returncode not in EXIT_CODES:
        text = (done.stdout + done.stderr).strip()[-500:]
        raise RuntimeError(f"opassay run: got exit code {done.returncode}, need one of {EXIT_CODES}: {text}")


def rows() -> Iterator[Row]:
    for workers, best in zip(WORKERS, fastest([partial(run, workers) for workers in WORKERS], RUNS), strict=True):
        case = f"layer_norm, {' '.join(PROPERTIES)}, {workers} worker{'s' * (workers > 1)}"
        yield Row("suite", case, best, "s")


if __name__ == "__main__":
    for row in rows():
        print(line(row), flush=True)
