"""A recording in a folder has the calls that it was made of; what was found is kept, and the rest is judged later."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from opassay.oracles.op.bits import same_bits
from opassay.properties.watch import judging_queue
from opassay.properties.watch.call import DispatcherCall
from opassay.properties.watch.judging import CallFinding, CallJudge
from opassay.properties.watch.judging_process import JudgingProcess
from opassay.properties.watch.judging_queue import JudgingQueue
from opassay.properties.watch.ledger import CallLedger
from opassay.properties.watch.recorder import Recorder
from opassay.properties.watch.recording import Recording
from opassay.properties.watch.recording_files import (
    FINDINGS,
    TENSORS,
    RecordingError,
    findings_of,
    read_recording,
    write_recording,
)
from opassay.properties.watch.sweep import finish_recording


def _step() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(12, 4).t().expand(2, 4, 12)[:, :, ::2]
    torch.nn.functional.cross_entropy(model(x).flatten(0, 1), torch.arange(8) % 3).backward()
    optimizer.step()


def _record(folder: Path) -> Recording:
    recorder = Recorder(file=folder / TENSORS)
    recorder.start()
    try:
        _step()
    finally:
        recorder.stop()
    recording = finish_recording(recorder)
    write_recording(folder, recording, recorder.copies)
    return recording


def _tensors_of(call: DispatcherCall) -> list[torch.Tensor]:
    return [each for each in (*call.tensors, *call.results, *call.adjoints) if each is not None]


def test_a_recording_is_written_and_read_back(tmp_path: Path) -> None:
    recording = _record(tmp_path)
    again = read_recording(tmp_path)
    assert len(recording.calls) > 30
    for a, b in zip(recording.calls, again.calls, strict=True):
        assert (a.op, a.structure, a.origin, a.switches, a.number) == (
            b.op,
            b.structure,
            b.origin,
            b.switches,
            b.number,
        )
        assert [each is None for each in a.adjoints] == [each is None for each in b.adjoints]
        for x, y in zip(_tensors_of(a), _tensors_of(b), strict=True):
            assert same_bits(x, y)
            assert x.stride() == y.stride() or not x.is_contiguous()
    assert (again.order, again.losses, again.last) == (recording.order, recording.losses, recording.last)
    assert again.sources == recording.sources
    first, second = (CallLedger(each, CallJudge()) for each in (recording, again))
    for ledger in (first, second):
        ledger.judge_calls()
    assert first.result("step").sites == second.result("step").sites


def test_what_was_found_is_not_judged_again(tmp_path: Path) -> None:
    recording, numbers = _record(tmp_path), list[int]()

    class CountingJudge(CallJudge):
        def hold(self, call: DispatcherCall) -> CallFinding:
            numbers.append(call.number)
            if len(numbers) == 5:
                raise KeyboardInterrupt
            return super().hold(call)

    with pytest.raises(KeyboardInterrupt):
        CallLedger(recording, CountingJudge()).judge_calls(folder=tmp_path)
    known = numbers[:4]
    content = (tmp_path / FINDINGS).read_bytes()
    (tmp_path / FINDINGS).write_bytes(content + content[:20])  # whoever wrote it was stopped in the midst
    with (tmp_path / FINDINGS).open("rb") as file:
        assert [number for number, _ in findings_of(file)] == known
    numbers[:] = [-1] * 5
    ledger = CallLedger(read_recording(tmp_path), CountingJudge())
    ledger.judge_calls(folder=tmp_path)
    with (tmp_path / FINDINGS).open("rb") as file:
        assert len(dict(findings_of(file))) > len(known)
    assert not set(numbers) & set(known)
    whole = CallLedger(recording, CallJudge())
    whole.judge_calls()
    assert ledger.result("step").sites == whole.result("step").sites


@pytest.mark.parametrize("name", [TENSORS, "calls.bin"])
def test_a_folder_without_a_recording_is_refused(name: str, tmp_path: Path) -> None:
    _record(tmp_path)
    content = (tmp_path / name).read_bytes()
    for broken in (b"nothing", content[:40], b""):
        (tmp_path / name).write_bytes(broken)
        with pytest.raises(RecordingError, match="no recording"):
            read_recording(tmp_path)
    with pytest.raises(RecordingError, match="no recording"):
        read_recording(tmp_path / "nothing")


_BEGAN = threading.Event()


class _PatientJudge(CallJudge):
    """Leaves something to others."""

    def hold(self, call: DispatcherCall) -> CallFinding:
        _BEGAN.wait(60)
        return super().hold(call)


class _Helper:
    """In place of a process: judges three calls of the first group, and ends."""

    def __init__(self, _: Path, judge: CallJudge) -> None:
        self._left = 3

    def wait_until_ready(self) -> bool:
        return True

    def judge(self, numbers: Sequence[int]) -> Iterator[tuple[int, CallFinding]]:
        _BEGAN.set()
        for number in numbers[: self._left]:
            yield number, CallFinding(ratio=math.inf)
        self._left -= len(numbers)

    def stop(self) -> None: ...

    def close(self) -> None: ...


def test_what_a_process_leaves_is_judged_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging_queue, "JudgingProcess", _Helper)
    monkeypatch.setattr(judging_queue, "_START", 0.0)
    recording, findings = _record(tmp_path), dict[int, CallFinding]()
    calls = [call for call in recording.calls if call.number > 3]
    JudgingQueue(calls, _PatientJudge(), findings.__setitem__).judge(tmp_path, beside=1)
    assert set(findings) == {call.number for call in calls}
    assert any(finding.ratio == math.inf for finding in findings.values())


def test_two_processes_find_what_one_finds(tmp_path: Path) -> None:
    recording, alone, together = _record(tmp_path), dict[int, CallFinding](), dict[int, CallFinding]()
    JudgingQueue(recording.calls, CallJudge(), alone.__setitem__).judge()
    process = JudgingProcess(tmp_path, CallJudge())
    assert process.wait_until_ready()
    for number, finding in process.judge([call.number for call in recording.calls]):
        together[number] = finding
    process.close()
    assert list(together) == [call.number for call in recording.calls]
    assert str(together) == str({number: alone[number] for number in together})
