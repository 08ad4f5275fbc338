"""The arithmetic of the Triton kernels has the errors that it claims on every GPU that keeps to its documents."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "arithmetic_program.py"


def test_errors_are_those_claimed_whatever_a_gpu_may_do() -> None:
    pytest.importorskip("triton", reason="Triton is not installed, so nothing interprets kernels")
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    errors = json.loads(done.stdout.splitlines()[-1])
    assert errors.keys() == {"upper", "lower", "both"}
    for exp, log1p, log_sigmoid in errors.values():
        assert exp <= 0.9  # ulp
        assert 2.0 < log1p <= 3.3  # u; less would say that no error was put in
        assert log_sigmoid <= 0.6  # of the half-width of its accept set
