"""What passes through the ring has its bits in memory and in the file, however slow or full the disk is."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from opassay.oracles.op.bits import same_bits
from opassay.properties.watch import memory_ring
from opassay.properties.watch.mapped_memory import TensorCopies
from opassay.properties.watch.memory_ring import BLOCK
from opassay.properties.watch.recorder import Recorder

#: Elements of int32, from one to more than the ring has: within a block, across two, and over many.
_SIZES = (1, 1000, BLOCK // 4 - 7, BLOCK // 4 + 1, *[BLOCK // 11] * 30, 3 * BLOCK, 77, *[BLOCK // 5] * 30, 9)


def _numbers(seed: int, size: int) -> torch.Tensor:
    return torch.randint(-(2**31), 2**31 - 1, (size,), dtype=torch.int32, generator=torch.Generator().manual_seed(seed))


def _patch_disk(monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None]) -> None:
    """Have something done before each write to the file, which is told where."""
    write = memory_ring.write_all

    def write_later(file: int, start: int, address: int, size: int) -> None:
        before(start)
        write(file, start, address, size)

    monkeypatch.setattr(memory_ring, "write_all", write_later)


@pytest.mark.parametrize("is_slow", [False, True], ids=["fast", "slow"])
def test_copies_have_their_bits(is_slow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_slow:
        monkeypatch.setattr(memory_ring, "_PATIENCE", 0)
    memory, copies = TensorCopies(tmp_path / "tensors"), []
    for seed, size in enumerate(_SIZES):
        x = _numbers(seed, size)
        copies.append(memory.copy(x))
        assert memory.has(copies[-1], x) or size * 4 > BLOCK
        x[-1] ^= 1 << seed % 32
        assert not memory.has(copies[-1], x)
    memory.flush()
    content = (tmp_path / "tensors").read_bytes()
    for seed, (size, copied) in enumerate(zip(_SIZES, copies, strict=True)):
        wanted, (start, _) = _numbers(seed, size), memory.place_of(copied)
        assert same_bits(copied, wanted)
        assert content[start : start + 4 * size] == wanted.numpy().tobytes()


def test_a_system_that_refuses_such_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "memfd_create", refuse)
    memory, x = TensorCopies(tmp_path / "tensors"), _numbers(0, 1000)
    copied = memory.copy(x)
    assert same_bits(copied, x)
    assert memory.copy(x) is copied
    x[0] ^= 1
    assert not same_bits(memory.copy(x), copied)
    memory.flush()
    start, _ = memory.place_of(copied)
    assert (tmp_path / "tensors").read_bytes()[start : start + 4000] == _numbers(0, 1000).numpy().tobytes()


def test_room_on_the_disk_is_used_again(tmp_path: Path) -> None:
    memory = TensorCopies(tmp_path / "tensors")
    first = memory.copy(_numbers(0, 1000))
    start, _ = memory.place_of(first)
    del first
    others = [memory.copy(_numbers(3 + i, BLOCK // 8)) for i in range(30)]
    again = memory.copy(_numbers(2, 1000))
    assert memory.place_of(again)[0] == start
    memory.flush()
    assert (tmp_path / "tensors").read_bytes()[start : start + 4000] == _numbers(2, 1000).numpy().tobytes()
    assert same_bits(again, _numbers(2, 1000))
    assert all(same_bits(each, _numbers(3 + i, BLOCK // 8)) for i, each in enumerate(others))


def test_calls_that_find_no_room_on_the_disk_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program goes on, and what was kept before stays as it was."""

    def fill(start: int) -> None:
        if start >= 2 * BLOCK:
            raise OSError(errno.ENOSPC, "no room")

    _patch_disk(monkeypatch, fill)
    recorder, x = Recorder(), torch.zeros(BLOCK // 8)
    recorder.start()
    try:
        for _ in range(40):
            x = x + 1
    finally:
        recorder.stop()
    assert bool((x == 40).all())
    calls = [call for call in recorder.store.calls if call.name == "aten::add"]
    assert 4 <= len(calls) < 40
    assert sum(recorder.faults.values()) == 40 - len(calls)
    assert all("no room" in text for text in recorder.faults)
    assert [float(call.results[0].max()) for call in calls] == [float(call.results[0].min()) for call in calls]
    assert [float(call.results[0][0]) for call in calls] == [i + 1.0 for i in range(len(calls))]
    with pytest.raises(OSError, match="no room"):
        recorder.copies.flush()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_copy_of_the_process_records_nothing() -> None:
    recorder, x = Recorder(), torch.zeros(1000)
    recorder.start()
    try:
        y = x + 1
        if not (child := os.fork()):
            x + 5  # which would lie where the parent has its next call
            os._exit(len(recorder.store.calls))
        _, status = os.waitpid(child, 0)
        z = y + 2
    finally:
        recorder.stop()
    assert os.waitstatus_to_exitcode(status) == 1
    calls = [call for call in recorder.store.calls if call.name == "aten::add"]
    assert [float(call.results[0].max()) for call in calls] == [1, 3]
    assert float(z.max()) == 3
