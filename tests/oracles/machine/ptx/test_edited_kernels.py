"""Faults in the PTX of the library's own kernels: the cells of subject "ptx" see them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.oracles.machine.ptx import edited_kernels

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed"),
]

RIGHT, WRONG, SPECIAL = ["verified", "OA100"], ["fail", "OA101"], ["fail", "OA102"]
BEYOND, RACE, UNKNOWN = ["fail", "OA112"], ["fail", "OA113"], ["unsupported", "OA306"]
#: What each cell of an edit must say.
EXPECTED = {
    "none": [RIGHT, RIGHT],
    "no edit of a backward pass": [RIGHT, RIGHT],
    "first barrier removed": [RACE, RACE],
    "predicate of a store dropped": [BEYOND, BEYOND],
    "lt to le": [BEYOND, BEYOND],
    "operands of fma swapped": [SPECIAL],
    "distance of a shuffle": [WRONG],
    "subnormal numbers flushed": [WRONG],
    "an unknown rounding": [UNKNOWN],
}


@pytest.fixture(scope="module")
def answers() -> dict[str, list[list[str]]]:
    """What a process says that compiles kernels, edits them, and does nothing else."""
    command = [sys.executable, "-W", "ignore", "-m", edited_kernels.__name__]
    done = subprocess.run(command, cwd=Path(__file__).parents[4], capture_output=True, text=True, check=True)
    faults: dict[str, list[list[str]]] = json.loads(done.stdout.splitlines()[-1])
    return faults


def test_every_edit_has_an_answer(answers: dict[str, list[list[str]]]) -> None:
    assert set(answers) == set(EXPECTED) == set(edited_kernels.EDITS)


@pytest.mark.parametrize("edit", EXPECTED)
def test_an_edit_is_seen(answers: dict[str, list[list[str]]], edit: str) -> None:
    assert answers[edit] == EXPECTED[edit]
