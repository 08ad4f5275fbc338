"""A recorded program computes the same bits, and its calls are recorded as they were made."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from opassay.oracles.op.bits import same_bits
from opassay.properties.watch.call import DispatcherCall, kind_of, name_of
from opassay.properties.watch.keeping import Keep
from opassay.properties.watch.recorder import Recorder
from tests.watch.programs import PROGRAMS, Doubled, Program


def record(program: Program, keep: Keep | None = None, of: str = "") -> tuple[list[torch.Tensor], Recorder]:
    """What a program gives from seed 0, and its recording."""
    torch.manual_seed(0)
    recorder = Recorder(keep, of=of)
    recorder.start()
    try:
        return program(), recorder
    finally:
        recorder.stop()


def calls_of(recorder: Recorder, name: str) -> list[DispatcherCall]:
    """The calls of an operation, in order."""
    return [call for call in recorder.store.calls if call.name == f"aten::{name}"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recorded_program_computes_the_same_bits(name: str) -> None:
    torch.manual_seed(0)
    plain = PROGRAMS[name]()
    watched, recorder = record(PROGRAMS[name])
    assert not recorder.faults
    assert recorder.store.calls
    assert len(plain) == len(watched)
    assert all(same_bits(a.detach(), b.detach()) for a, b in zip(plain, watched, strict=True))


class _Listening(TorchDispatchMode):
    """Counts the operations that compute or move something."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[name_of(func)] += not func.is_view and func.namespace != "profiler"
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "threads"])  # a mode is of one thread
def test_a_recorded_program_makes_the_same_calls(name: str) -> None:
    """A gradient that the recording still held would be copied where autograd adds it up."""
    torch.manual_seed(0)
    with _Listening() as plain:
        PROGRAMS[name]()
    _, recorder = record(PROGRAMS[name])
    assert Counter(call.name for call in recorder.store.calls) == +plain.counts


def test_nothing_stays_when_a_recording_has_ended() -> None:
    before = torch.autograd.backward, threading.Thread.run
    record(PROGRAMS["mlp"])
    assert (torch.autograd.backward, threading.Thread.run) == before
    assert not torch.nn.modules.module._global_forward_hooks
    assert not torch.nn.modules.module._global_forward_pre_hooks
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


def test_operands_are_kept_as_they_were_before_the_call() -> None:
    def program() -> list[torch.Tensor]:
        x = torch.ones(3)
        x.add_(1).mul_(3)
        return [x]

    _, recorder = record(program)
    (added,), (scaled,) = calls_of(recorder, "add_"), calls_of(recorder, "mul_")
    assert added.tensors[0].tolist() == [1, 1, 1]
    assert [y.tolist() for y in added.results] == [[2, 2, 2]]
    assert scaled.tensors[0].tolist() == [2, 2, 2]
    assert scaled.tensors[0] is added.results[0]  # one copy of the same memory with the same bits


def test_memory_that_something_else_writes_is_copied_again() -> None:
    def program() -> list[torch.Tensor]:
        x = torch.ones(3)
        y = x + 1
        x.numpy()[0] = 5  # torch's dispatcher sees nothing of it
        return [y, x + 1]

    _, recorder = record(program)
    first, second = calls_of(recorder, "add")
    assert (first.tensors[0].tolist(), second.tensors[0].tolist()) == ([1, 1, 1], [5, 1, 1])


def test_an_origin_has_module_line_and_node() -> None:
    _, recorder = record(PROGRAMS["mlp"])
    forward = calls_of(recorder, "silu")[0]
    backward = calls_of(recorder, "silu_backward")[0]
    assert (forward.origin.module, forward.origin.node) == ("Sequential.1", "")
    assert forward.origin.line.startswith("tests/watch/programs.py:")
    assert (backward.origin.module, backward.origin.line) == (forward.origin.module, forward.origin.line)
    assert backward.origin.node == "SiluBackward0"


def test_a_backward_of_ones_own_has_its_own_line() -> None:
    _, recorder = record(PROGRAMS["custom_function"])
    (call, *_) = [each for each in calls_of(recorder, "exp") if each.origin.node]
    lines = Doubled.backward.__code__.co_firstlineno, Doubled.backward.__code__.co_firstlineno + 4
    assert lines[0] < int(call.origin.line.rpartition(":")[2]) <= lines[1]


def test_threads_are_recorded_as_one_after_another_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call with its module, however often the interpreter turns from one thread to the other."""

    def sites_of(recorder: Recorder) -> Counter[str]:
        return Counter(f"{call.name} {call.origin.module} {call.tracked}" for call in recorder.store.calls)

    interval = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-6)
        recorded = [sites_of(record(PROGRAMS["threads"])[1]) for _ in range(20)]
    finally:
        sys.setswitchinterval(interval)

    def one_after_another() -> list[torch.Tensor]:
        with monkeypatch.context() as patched:
            start = threading.Thread.start
            patched.setattr(threading.Thread, "start", lambda thread: (start(thread), thread.join()))
            return PROGRAMS["threads"]()

    wanted = sites_of(record(one_after_another)[1])
    assert recorded == [wanted] * 20


def test_kinds_of_calls() -> None:
    def program() -> list[torch.Tensor]:
        x = torch.empty(4).normal_()
        return [x.half(), x.clone(), x.argmax(), x + 1, x.float()]

    _, recorder = record(program)
    kinds = {call.name.removeprefix("aten::"): kind_of(call) for call in recorder.store.calls}
    assert kinds == {
        "empty": "memory", "normal_": "random", "_to_copy": "casts", "clone": "moves", "argmax": "integers",
        "add": "computes",
    }  # fmt: skip


def test_one_step_in_two_is_recorded() -> None:
    def program() -> list[torch.Tensor]:
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(4):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        return []

    _, recorder = record(program, Keep(every=2))
    assert len(calls_of(recorder, "addmm")) == 2
    assert recorder.steps == 4


def test_calls_of_a_module_alone_are_kept() -> None:
    _, recorder = record(PROGRAMS["mlp"], Keep(modules=("Sequential.2",)))
    assert {call.origin.module for call in recorder.store.calls} == {"Sequential.2"}


def test_a_reservoir_keeps_so_many_of_a_site() -> None:
    def program() -> list[torch.Tensor]:
        x = torch.zeros(1)
        for _ in range(50):
            x = x + 1
        return [x]

    _, recorder = record(program, Keep(per_site=3, seed=4))
    assert len(calls_of(recorder, "add")) == 3
    assert sum(recorder.store.counts.values()) == 51
    assert max(float(call.results[0]) for call in calls_of(recorder, "add")) > 3


def test_beyond_the_limit_of_memory_calls_are_counted() -> None:
    def program() -> list[torch.Tensor]:
        x = torch.zeros(1000)
        for _ in range(5):
            x = x + 1
        return [x]

    _, recorder = record(program, Keep(memory=8000))
    assert recorder.store.beyond == 4
    assert len(calls_of(recorder, "add")) == 1


@pytest.mark.parametrize(
    "make", [lambda: Keep(every=0), lambda: Keep(per_site=-1), lambda: Keep(memory=-1)], ids=["every", "site", "memory"]
)
def test_impossible_choices_are_refused(make: Callable[[], Keep]) -> None:
    with pytest.raises(ValueError, match=r"got (0|-1), need"):
        make()


def test_switches_are_recorded_as_they_stand() -> None:
    def program() -> list[torch.Tensor]:
        x = torch.ones(2, 2)
        torch.set_float32_matmul_precision("medium")
        try:
            return [x @ x]
        finally:
            torch.set_float32_matmul_precision("highest")

    _, recorder = record(program)
    (call,) = calls_of(recorder, "mm")
    assert call.switches.products == "bf16"
    assert not call.switches.flush
