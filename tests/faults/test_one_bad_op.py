"""One bad op costs one op: whatever it does to its process, the others are judged and nothing is left behind."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.faults.hostile_suite import FAULTS
from tests.faults.runs import BAD, GOOD, cells, command, environment, load, outcomes, workers_of

pytestmark = pytest.mark.slow

#: What the cells of an op with that fault are; the first of three, the second, and the third.
CRASH = ["crash", "crash", "not run"]
TIMEOUT = ["timeout", "timeout", "not run"]
FINE = ["verified"] * 3
EXPECTED = {
    "ends with 0": CRASH,
    "ends with 1": CRASH,
    "ends with 5": CRASH,
    "segmentation fault": CRASH,
    "abort": CRASH,
    "kills itself": CRASH,
    "terminates itself": CRASH,
    "kills its group": CRASH,
    "stops itself": TIMEOUT,
    "sleeps": TIMEOUT,
    "spins": TIMEOUT,
    "sleeps with the lock": TIMEOUT,
    "sleeps without a watchdog": TIMEOUT,
    "sleeps deaf": TIMEOUT,
    "deadlocks": TIMEOUT,
    "closes every file": CRASH,
    "closes its output": FINE,
    "answers in its place": CRASH,
    "says nonsense": CRASH,
    "says without end": CRASH,
    "prints much": FINE,
    "reads input": FINE,
    "forks and goes on": FINE,
    "forks a sleeper": FINE,
    "forks a family": FINE,
    "leaves a daemon": FINE,
    "starts a program": FINE,
    "leaves a thread": FINE,
    "takes memory": ["error"] * 3,
    "takes shared memory": CRASH,
    "interrupts itself": FINE,
    "changes directory": FINE,
    "exits": CRASH,
    "overflows the stack": ["error"] * 3,
}
CODES = {"crash": 4, "timeout": 4, "verified": 0, "error": 3}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_its_op_alone(fault: str, tmp_path: Path) -> None:
    words = ("run", *cells(BAD, GOOD), "-n", "1", "--timeout", "20" if "memory" in fault else "0.5", "--memory", "0.8")
    process = subprocess.Popen(
        command(*words), cwd=tmp_path, env=environment({BAD: fault}), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    output, _ = process.communicate(timeout=60)
    result = load(tmp_path)
    assert outcomes(result, GOOD) == FINE, output
    assert outcomes(result, BAD) == EXPECTED[fault], output
    assert process.returncode == result.exit_code == CODES[EXPECTED[fault][0]], output
    assert len(output) < 20_000
    assert "\x1b" not in output
    end = time.monotonic() + 5
    while workers_of(process.pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert workers_of(process.pid) == []


def test_every_fault_has_its_expectation() -> None:
    assert set(EXPECTED) == set(FAULTS)
