"""A mutant is asked in a copy of the process: what it does to that copy refuses it, and reaches nothing else."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
from collections.abc import Iterator

from opassay.oracles.verdicts.verdict import Cell, Verdict
from workshop.mutation.trial import Asking, begin, wait_for_trial

FIRST, SECOND = (Cell("trace", code, "float32", "cpu", "opassay") for code in ("FWD", "VJP"))


def _end(cell: Cell, examples: int | None) -> Verdict:
    faulthandler.disable()  # pytest's would print the stacks
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


@contextlib.contextmanager
def _nowhere() -> Iterator[None]:
    raise LookupError("no such place")
    yield


def test_a_mutant_that_cannot_be_planted_says_why() -> None:
    _, answer = wait_for_trial([begin(Asking("a mutant", [FIRST], _nowhere, 30.0, judge=_end))])
    assert (answer["outcome"], answer["asked"], answer["reason"]) == ("not planted", 0, "LookupError: no such place")


def test_a_mutant_that_ends_its_process_is_refused_by_a_crash() -> None:
    trials = [begin(Asking("a mutant", [FIRST, SECOND], contextlib.nullcontext, 30.0, judge=_end))]
    trial, answer = wait_for_trial(trials)
    assert trials == []
    assert (trial.asking.key, answer["outcome"], answer["how"]) == ("a mutant", "killed", "crash")
    assert (answer["cell"], answer["asked"], answer["of"]) == (FIRST.key, 0, 2)
    assert answer["reason"] == "its process ended with -11"
