"""Cells of ops that harm the process they run in: PURE fails and says why, and no neighbour is any the worse."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from opassay import Cell, Code, Draft, Op, Outcome, Settings, run_cell, verify
from opassay.oracles.op.declaration import Refusal
from opassay.oracles.process.settings import SampleSettings
from opassay.oracles.verdicts.cleaning import MAX_LINE, MAX_LINES
from opassay.oracles.verdicts.verdict import Verdict
from opassay.oracles.verdicts.violation import Unsupported
from opassay.properties.engine import cells
from workshop.functions import FUNCTION

from ..oracles.planted_changes import CHANGES, CHANGES_OF_PROCESSES, release
from ..oracles.planted_ops import declared, scaled

FEW = Settings("commit", max_examples=3, simpler=False)
#: Properties that a product has an answer to, with and without derivatives, through every way subjects are called.
QUESTIONS = ("FWD", "VJP", "JVP", "ADJ", "VMAP", "DUAL", "LAYOUT", "PURE", "FAKE", "DET", "SAVE", "SPECIAL")


@pytest.fixture(autouse=True)
def _release() -> Iterator[None]:
    yield
    release()


def _samples(dtype: str, kind: str) -> Any:
    if kind == "large":
        raise Unsupported(Code.NOT_APPLICABLE, "these samples are small")

    def draw(rng: Any) -> tuple[Tensor, ...]:
        return tuple(torch.from_numpy(rng.standard_normal(shape)).to(getattr(torch, dtype)) for shape in ((4, 5), (5,)))

    return st.just(Draft(draw, "benign"))


def plant(subject: Callable[..., Any], **changes: Any) -> Op:
    return declared(subject, samples=_samples, **changes)


def ask(code: str, dtype: str = "float32") -> Cell:
    return Cell("scaled", code, dtype, "cpu", "opassay")


def after(change: Callable[[], object]) -> Callable[[Tensor, Tensor], Tensor]:
    """The right op, which changes something on its way."""

    def op(x: Tensor, w: Tensor) -> Tensor:
        y = scaled(x, w)
        change()
        return y

    return op


def once(change: Callable[[], object]) -> Callable[[], object]:
    """The change, the first time only."""
    changes = [change]
    return lambda: changes.pop()() if changes else None


def without_times(verdict: Verdict) -> Verdict:
    return replace(verdict, seconds=0.0, timing=())


EVERY = {**CHANGES, **CHANGES_OF_PROCESSES}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_pure_fails_and_names_the_change(name: str) -> None:
    change, line = EVERY[name]
    verdict = run_cell(ask("PURE"), FEW, plant(after(change)))
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, Code.MUTATED), verdict.reason
    assert verdict.failure is not None
    assert line in verdict.failure.message
    assert any(result.startswith(line) for result in verdict.changed)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EVERY if name != "grad mode"])  # FWD calls with gradients off
def test_a_setter_that_fires_once_fails_pure_wherever_it_fired(name: str) -> None:
    change, line = EVERY[name]
    first = run_cell(ask("PURE"), FEW, plant(after(once(change))))
    assert (first.outcome, first.code) == (Outcome.FAIL, Code.MUTATED), first.reason
    fired, pure = verify(plant(after(once(change))), properties=("FWD", "PURE"), dtypes=("float32",), settings=FEW)
    assert fired.outcome == Outcome.VERIFIED, fired.reason
    assert any(result.startswith(line) for result in fired.changed)
    assert pure.changed == ()
    assert (pure.outcome, pure.code) == (Outcome.FAIL, Code.MUTATED)
    assert "seen in FWD[float32]" in pure.reason


@pytest.fixture(scope="module")
def alone() -> dict[str, Verdict]:
    """The right op's verdicts where nothing has run before."""
    return {code: without_times(run_cell(ask(code), FEW, plant(scaled))) for code in QUESTIONS}


@pytest.mark.one_fast_in(23)
@pytest.mark.parametrize("name", CHANGES)
def test_a_neighbour_is_judged_as_if_nothing_had_run_before(name: str, alone: dict[str, Verdict]) -> None:
    run_cell(ask("FWD"), FEW, plant(after(CHANGES[name][0])))
    again = {code: without_times(run_cell(ask(code), FEW, plant(scaled))) for code in ("FWD", "VJP", "SPECIAL")}
    # NaN is not equal to itself, so the measures are compared as text, which tells every bit of a float.
    assert {code: repr(verdict) for code, verdict in again.items()} == {code: repr(alone[code]) for code in again}


def test_a_right_op_is_not_accused(alone: dict[str, Verdict]) -> None:
    assert {code: verdict.changed for code, verdict in alone.items()} == dict.fromkeys(QUESTIONS, ())
    assert alone["PURE"].outcome == Outcome.VERIFIED


@pytest.mark.slow
@pytest.mark.parametrize("op", ["layer_norm", "batch_norm", "softmax", "nll_loss", "broadcast", FUNCTION])
def test_ops_of_the_catalog_are_not_accused(op: str) -> None:
    few = Settings("brief", max_examples=1)
    results = [run_cell(Cell(op, code, "float32", "cpu", "opassay"), few) for code in ("VJP", "PURE", "COMP", "COMM")]
    assert [verdict.changed for verdict in results] == [()] * len(results)
    assert results[1].outcome == Outcome.VERIFIED, results[1].reason


def test_an_error_of_ours_in_a_process_that_the_subject_changed_is_the_subject_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: Any) -> Any:
        raise KeyError("harness")

    monkeypatch.setattr(cells, "_judge_samples", fail)
    op = plant(scaled)
    assert run_cell(ask("FWD"), FEW, op).outcome == Outcome.ERROR
    monkeypatch.setattr(cells, "_judge_samples", lambda *args: [os.environ.update(OPASSAY_PLANTED="1"), fail()])
    verdict = run_cell(ask("FWD"), FEW, op)
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, Code.MUTATED)
    assert "OPASSAY_PLANTED" in verdict.reason


# ------------------------------------------------------------------------------------------------- exceptions


class _Unusual(BaseException):
    pass


@pytest.mark.one_fast_in(7)
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, _Unusual, RecursionError, MemoryError])
@pytest.mark.parametrize("code", ["FWD", "VJP", "ADJ", "VMAP", "PURE", "FAKE", "DET", "AUTOCAST", "SAVE", "MEM"])
def test_what_a_subject_raises_is_its_failure(kind: type[BaseException], code: str) -> None:
    def raising(x: Tensor, w: Tensor) -> Tensor:
        raise kind("planted")

    verdict = run_cell(ask(code), FEW, plant(raising))
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, Code.RAISED), verdict.reason
    assert f"raised {kind.__name__} on valid input" in verdict.reason


def test_a_refusal_that_would_end_the_process_is_a_failure() -> None:
    def exiting(x: Tensor, w: Tensor) -> Tensor:
        raise SystemExit(0)

    refusal = Refusal("no second factor", lambda args: (args[0], None), TypeError, ())
    verdict = run_cell(ask("ERROR"), FEW, plant(exiting, refusals=(refusal,)))
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, Code.RAISED), verdict.reason


def test_the_text_of_an_exception_is_bounded() -> None:
    def raising(x: Tensor, w: Tensor) -> Tensor:
        raise type("E" * 10**6, (ValueError,), {})(("x" * 10**6 + "\n") * 50)

    verdict = run_cell(ask("FWD"), FEW, plant(raising))
    assert verdict.failure is not None
    assert len(verdict.failure.message) < (MAX_LINES + 1) * (MAX_LINE + 3)


def test_an_exception_without_a_text_is_a_failure() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    def raising(x: Tensor, w: Tensor) -> Tensor:
        raise Mute

    verdict = run_cell(ask("FWD"), FEW, plant(raising))
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, Code.RAISED)


# ------------------------------------------------------------------------------------------------- interrupts


def _swallowing(x: Tensor, w: Tensor) -> Tensor:
    with contextlib.suppress(KeyboardInterrupt):
        time.sleep(0.002)
    return scaled(x, w)


def _disguising(x: Tensor, w: Tensor) -> Tensor:
    try:
        time.sleep(0.002)
    except KeyboardInterrupt as err:
        raise RuntimeError("could not finish") from err
    return scaled(x, w)


def _slow(x: Tensor, w: Tensor) -> Tensor:
    time.sleep(0.002)
    return scaled(x, w)


@pytest.mark.one_fast_in(2)
@pytest.mark.parametrize("subject", [_slow, _swallowing, _disguising])
def test_an_interrupt_is_no_verdict(subject: Callable[[Tensor, Tensor], Tensor]) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed={seed}")
    moments = random.Random(seed)
    handler = signal.getsignal(signal.SIGINT)
    for _ in range(20):
        # The subject starts the timer, so that the signal comes while the cell runs and never within pytest.
        timer = threading.Timer(moments.uniform(0.0, 0.2), os.kill, (os.getpid(), signal.SIGINT))
        starts = iter([timer.start])
        with pytest.raises(KeyboardInterrupt):
            run_cell(ask("ADJ"), Settings("commit", max_examples=10_000), plant(_first(starts, subject)))
        timer.join()
        assert signal.getsignal(signal.SIGINT) is handler


def _first(
    starts: Iterator[Callable[[], None]], subject: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Tensor, Tensor], Tensor]:
    def op(x: Tensor, w: Tensor) -> Tensor:
        for start in starts:
            start()
        return subject(x, w)

    return op


@pytest.mark.parametrize("reader", ["read", "restored", "begin", "end"])
def test_a_signal_waits_while_the_state_is_read_and_put_back(reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, came = getattr(SampleSettings, reader), []

    def interrupted(*args: Any) -> Any:
        came.append(reader)
        signal.raise_signal(signal.SIGINT)
        return whole(*args)

    before, handler = torch.get_default_dtype(), signal.getsignal(signal.SIGINT)
    torch.set_default_dtype(torch.float64)
    monkeypatch.setattr(SampleSettings, reader, interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_cell(ask("FWD"), FEW, plant(scaled))
        assert came
        assert torch.get_default_dtype() is torch.float64
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        torch.set_default_dtype(before)


def test_an_interrupt_that_a_callback_of_the_garbage_collector_swallows_ends_the_cell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []
    signals = iter([signal.SIGINT])

    def collected(phase: str, info: dict[str, int]) -> None:
        for number in signals:
            signal.raise_signal(number)

    def op(x: Tensor, w: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) == 3:
            gc.callbacks.append(collected)
            gc.collect()
            gc.callbacks.remove(collected)
        return scaled(x, w)

    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)  # what Python says of the swallowed exception
    with pytest.raises(KeyboardInterrupt):
        run_cell(ask("FWD"), Settings("commit", max_examples=10_000), plant(op))
    assert len(calls) < 10


def test_an_interrupt_while_a_failure_is_repeated_is_no_verdict() -> None:
    calls: list[int] = []

    def failing(at: int) -> Callable[[Tensor, Tensor], Tensor]:
        def op(x: Tensor, w: Tensor) -> Tensor:
            calls.append(1)
            if len(calls) == at:
                signal.raise_signal(signal.SIGINT)
            return scaled(x, w) + 1

        return op

    assert run_cell(ask("FWD"), FEW, plant(failing(0))).outcome == Outcome.FAIL
    every = len(calls)
    for at in range(1, every + 1):
        calls.clear()
        with pytest.raises(KeyboardInterrupt):
            run_cell(ask("FWD"), FEW, plant(failing(at)))


def test_a_handler_of_the_user_that_raises_nothing_ends_nothing() -> None:
    signals: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: signals.append(number))
    try:
        op = plant(after(once(lambda: signal.raise_signal(signal.SIGINT))))
        assert run_cell(ask("FWD"), FEW, op).outcome == Outcome.VERIFIED
    finally:
        signal.signal(signal.SIGINT, before)
    assert signals == [signal.SIGINT]
