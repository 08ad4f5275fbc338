"""A program in a process of its own, and what its exit code says it found.

This is what programs of `corpus` and of `benchmarks/findings` have in common: 0 means that the fault is not there, 1
that it is, 2 that nothing was found out, and 3 that the judges disagree. An exception ends a program with 1, too, so a
program that has judged says so by words on its standard output.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

FIXED, PRESENT, NOT_RUN, DISAGREED = 0, 1, 2, 3
ERROR = "error"
OUTCOMES: Mapping[int, str] = {FIXED: "fixed", PRESENT: "present", NOT_RUN: "not run", DISAGREED: "disagreed"}
#: What a program prints before its line of JSON.
CLAIMED = "corpus: "
ROOT = Path(__file__).resolve().parents[1]


def run_program(arguments: Sequence[str], words: str, seconds: float) -> tuple[str, str]:
    """The outcome of a program, or `ERROR` where it broke, and what it printed.

    Args:
        arguments: of the interpreter. words: that a program prints which has judged. seconds: it may take.
    """
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    settings["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    command = [sys.executable, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=settings, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return ERROR, f"no end within {seconds:.0f} s"
    if done.returncode not in OUTCOMES or (done.returncode != NOT_RUN and words not in done.stdout):
        return ERROR, (done.stderr or done.stdout or f"ended with {done.returncode}").strip()
    return OUTCOMES[done.returncode], done.stdout.strip()
