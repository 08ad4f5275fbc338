"""The program of a dossier in a process of its own, under the interpreter of any environment."""

from __future__ import annotations

import os
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from .dossier import BROKEN, FIXED, NOT_RUN, PRESENT, Attempt, Dossier

#: What a program prints at the beginning of a line.
ACTUAL, EXPECTED = "actual", "expected"
_VERSION = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
_OUTCOMES = {0: FIXED, 1: PRESENT}
#: How torch and a driver say that a program needs a GPU.
_NO_GPU = ("Torch not compiled with CUDA enabled", "Found no NVIDIA driver")


def try_program(dossier: Dossier, python: str, seconds: float = 300.0) -> Attempt:
    """Run the program of a dossier, and say what came.

    Args:
        python: the interpreter of the environment that has the library. seconds: that the program may take.
    """
    day, library = datetime.now(UTC).date().isoformat(), dossier.heading.library
    lookup = subprocess.run([python, "-c", _VERSION, library], capture_output=True, text=True, check=False)
    if lookup.returncode:
        return Attempt("", day, NOT_RUN, f"{library} is not installed")
    version, _, _ = lookup.stdout.strip().partition("+")  # torch's wheels name what they were built for
    settings = {**os.environ, "PYTHONWARNINGS": "ignore", **dossier.environment}
    settings.pop("PYTHONPATH", None)  # a maintainer has nothing of ours
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.py")  # Triton reads the source of a kernel from a file
        path.write_text(dossier.program, encoding="utf-8")
        try:
            process = subprocess.run(
                [python, str(path)], capture_output=True, text=True, env=settings, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return Attempt(version, day, BROKEN, f"no end within {seconds:.0f} s")
    outcome = read_outcome(process.returncode, process.stdout)
    if outcome == BROKEN and any(words in process.stderr for words in _NO_GPU):
        return Attempt("", day, NOT_RUN, f"the program needs a GPU, with {library} {version}")
    return Attempt(version, day, outcome, (process.stderr if outcome == BROKEN else process.stdout).strip())


def read_outcome(code: int, output: str) -> str:
    """The outcome by exit code; an exception ends a program with 1, too, so one that has judged says so in words."""
    words = {line.partition(" ")[0] for line in output.splitlines()}
    return _OUTCOMES.get(code, BROKEN) if {ACTUAL, EXPECTED} <= words else BROKEN
