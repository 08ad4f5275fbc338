"""Every planted fault of a kernel is caught by the machine or by the judge, and every kernel without one passes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("planted_faults.py")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed"),
]


@pytest.fixture(scope="module")
def outcomes() -> Any:
    """What the program found; kernels can be interpreted only in a process that does nothing else."""
    done = subprocess.run([sys.executable, "-W", "ignore", str(PROGRAM)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_fault_is_caught_by_what_it_is_for(outcomes: Any) -> None:
    faults = outcomes["faults"]
    print()
    for name, how, by in faults:
        print(f"{name:40} {by or 'nothing':8} {'' if by == how else f'instead of {how}'}")
    assert len(faults) >= 25
    assert len({name for name, _, _ in faults}) == len(faults)
    assert {how for _, how, _ in faults} == {"OA112", "OA113", "OA104", "values"}
    assert [fault for fault in faults if fault[1] != fault[2]] == []


def test_kernels_without_a_fault_pass(outcomes: Any) -> None:
    assert len(outcomes["right"]) == 12
    assert {run: by for run, by in outcomes["right"].items() if by} == {}
