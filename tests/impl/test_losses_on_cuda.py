"""The CUDA kernels of the losses, interpreted in a process of their own: what no cell of subject triton asks."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.impl import interpreted_losses

REPOSITORY = Path(__file__).resolve().parents[2]

# Triton is not imported here: whoever does decides for the whole process whether kernels are interpreted.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="Triton is not installed here; opassay[triton] brings it"
    ),
]


@pytest.fixture(scope="module")
def faults() -> dict[str, str]:
    """What went wrong in each case; nothing where it is empty."""
    command = [sys.executable, "-W", "ignore", "-m", interpreted_losses.__name__]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize("case", interpreted_losses.CASES)
def test_case(case: str, faults: dict[str, str]) -> None:
    assert faults[case] == ""


def test_every_case_was_run(faults: dict[str, str]) -> None:
    assert set(faults) == set(interpreted_losses.CASES)
