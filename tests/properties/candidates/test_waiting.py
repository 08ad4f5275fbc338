"""A process that waits for a processor loses no time of its own; one that sleeps, or lets others compute, does."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from opassay.properties.candidates.host import weighing
from opassay.properties.candidates.host.weighing import OwnTime

SPINS = "while True: pass"


@contextlib.contextmanager
def _on_one_processor(program: str) -> Iterator[int]:
    """A process that runs a program, on one processor."""
    cpu = min(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{cpu}])\n{program}"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def _share_of(program: str, others: int = 0) -> float:
    """Which share of two seconds is a program's own, beside others that compute on its processor."""
    with ExitStack() as stack:
        for _ in range(others):
            stack.enter_context(_on_one_processor(SPINS))
        pid = stack.enter_context(_on_one_processor(program))
        time.sleep(0.5)  # it has begun
        own, start = OwnTime(pid), time.monotonic()
        while time.monotonic() < start + 2:
            time.sleep(0.1)
            own.look()
        return own.seconds() / (time.monotonic() - start)


def test_time_in_wait_for_a_processor_is_not_a_programs_own() -> None:
    assert _share_of(SPINS, others=5) < 0.6


def test_time_asleep_is_a_programs_own() -> None:
    assert _share_of("import time; time.sleep(60)") > 0.6


def test_nothing_is_gained_by_threads_that_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    uses = iter([{"1": (5.0, 7.0)}, {"1": (15.0, 97.0), "2": (40.0, 60.0), "3": (50.0, 50.0)}])
    clock = iter([100.0, 101.0, 200.0])
    monkeypatch.setattr(weighing, "_uses", lambda root: next(uses))
    monkeypatch.setattr("opassay.properties.candidates.host.weighing.monotonic", lambda: next(clock))
    own = OwnTime(1)
    own.look()
    assert own.seconds() == 10 + 40 + 50  # though the first waited for 90 of 100 seconds


def test_what_children_take_that_have_ended_gives_no_time_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    uses = iter([{"1": (5.0, 7.0)}, {"1": (6.0, 106.0)}])
    clock = iter([100.0, 101.0, 200.0])
    monkeypatch.setattr(weighing, "_uses", lambda root: next(uses))
    monkeypatch.setattr("opassay.properties.candidates.host.weighing.monotonic", lambda: next(clock))
    own = OwnTime(1)
    own.look()
    assert own.seconds() == 10


def test_a_short_question_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weighing, "_uses", lambda root: pytest.fail("was looked at"))
    own = OwnTime(os.getpid())
    own.look()
    assert own.seconds() < 0.25
