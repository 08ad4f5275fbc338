"""A recording in a folder: the tensors in one file, the calls in another, and what is known of them in a third.

So other processes can judge it: at the same time, later, after an interrupt, or beside another program.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import msgspec
import torch

from ..places.wire import DTYPES
from .call import Origin
from .call_data import CallData, call_of, data_of
from .judging import CallFinding
from .mapped_memory import TensorCopies
from .recording import FollowedError, FollowedNumber, ProgramRun, Recording
from .writers import Sources

#: What the files say that they are; a later form has another number.
_FORM = "opassay-recording/1"
TENSORS, CALLS, FINDINGS = "tensors.bin", "calls.bin", "findings.bin"
_TENSOR, _LENGTH = 1, 8


class RecordingError(ValueError):
    """A folder that has no recording."""


class _TensorPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a tensor lies in the file of tensors, in bytes; its strides are in elements."""

    start: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _RecordingData(msgspec.Struct, frozen=True):
    """The attributes of `Recording`; `order` has the positions of sites."""

    form: str
    run: ProgramRun
    calls: list[msgspec.Raw]
    sources: dict[int, Sources]
    sites: list[tuple[str, Origin]]
    order: list[int]
    losses: list[float]
    counts: tuple[int, int]
    functions: dict[str, int]
    choice: str
    faults: list[str]
    followed: tuple[FollowedNumber | None, FollowedError]


def write_recording(folder: Path, recording: Recording, memory: TensorCopies) -> None:
    """Write a recording; a call whose operands have no form in a file is left out.

    Args:
        folder: has the file of `memory`, in which nearly all tensors of the recording lie.
    """

    def place_of(value: Any) -> msgspec.msgpack.Ext:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"operand: got a {type(value).__name__}, which has no form in a file")
        start, strides = memory.place_of(value)
        where = _TensorPlace(start, str(value.dtype).removeprefix("torch."), tuple(value.shape), strides)
        return msgspec.msgpack.Ext(_TENSOR, msgspec.msgpack.encode(where))

    encoder, calls = msgspec.msgpack.Encoder(enc_hook=place_of), []
    for call in recording.calls:
        try:
            calls.append(msgspec.Raw(encoder.encode(data_of(call))))
        except (TypeError, ValueError, NotImplementedError):
            continue
    positions = {key: position for position, key in enumerate(dict.fromkeys(recording.order))}
    data = _RecordingData(
        _FORM, recording.run, calls, dict(recording.sources), list(positions),
        [positions[key] for key in recording.order], list(recording.losses), (recording.last, recording.views),
        dict(recording.functions), recording.choice, list(recording.faults), (recording.followed, recording.error),
    )  # fmt: skip
    memory.flush()
    (folder / CALLS).write_bytes(encoder.encode(data))


def read_recording(folder: Path) -> Recording:
    """The recording of a folder; no code of the files is run.

    Raises:
        RecordingError: there is none, or it is of another version.
    """
    try:
        with (folder / TENSORS).open("rb") as file:
            size = (folder / TENSORS).stat().st_size
            memory: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if size else bytearray()

        def tensor_of(code: int, content: memoryview) -> torch.Tensor:
            if code != _TENSOR:
                raise ValueError(f"got code={code}, need {_TENSOR}")
            return _tensor_of(msgspec.msgpack.decode(content, type=_TensorPlace), memory)

        data = msgspec.msgpack.decode((folder / CALLS).read_bytes(), type=_RecordingData)
        if data.form != _FORM:
            raise ValueError(f"got form={data.form!r}, need {_FORM!r}")
        decoder = msgspec.msgpack.Decoder(CallData, ext_hook=tensor_of)
        calls = [call_of(decoder.decode(each)) for each in data.calls]
        recording = Recording(
            calls, data.sources, [data.sites[position] for position in data.order], data.losses, data.counts[0],
            data.functions, data.counts[1], data.choice, data.faults, data.run, *data.followed,
        )  # fmt: skip
    except Exception as err:  # of files that somebody else wrote, anything
        reason = f"{type(err).__name__}: {str(err).partition(chr(10))[0]}"
        raise RecordingError(f"{folder}: no recording of a program: {reason}") from err
    return recording


def _tensor_of(where: _TensorPlace, memory: Any) -> torch.Tensor:
    dtype = DTYPES[where.dtype]
    if 0 in where.shape:
        return torch.empty(where.shape, dtype=dtype)
    last = sum((size - 1) * stride for size, stride in zip(where.shape, where.strides, strict=True))
    flat = torch.frombuffer(memory, dtype=dtype, count=last + 1, offset=where.start)
    return flat.as_strided(where.shape, where.strides)


def findings_as_bytes(findings: Iterable[tuple[int, CallFinding]]) -> bytes:
    """What was found, by the numbers of the calls, to be added to a file or sent."""
    contents = (msgspec.msgpack.encode(pair) for pair in findings)
    return b"".join(len(content).to_bytes(_LENGTH, "little") + content for content in contents)


def findings_of(file: Any) -> Iterator[tuple[int, CallFinding]]:
    """What `findings_as_bytes` wrote, up to the end, or to where somebody was interrupted while writing."""
    decoder = msgspec.msgpack.Decoder(tuple[int, CallFinding])
    while len(length := file.read(_LENGTH)) == _LENGTH:
        size = int.from_bytes(length, "little")
        if len(content := file.read(size)) < size:
            return
        yield decoder.decode(content)


class FindingsFile:
    """The file in the folder of a recording that has what was found, and grows with each call that is judged.

    Attributes:
        findings: what was there, by the numbers of the calls.
    """

    def __init__(self, folder: Path) -> None:
        self._file = (folder / FINDINGS).open("a+b")
        self._file.seek(0)
        self.findings = dict(findings_of(self._file))
        # Whoever wrote it last may have been stopped in the midst of a finding.
        self._file.truncate(len(findings_as_bytes(self.findings.items())))

    def add(self, number: int, finding: CallFinding) -> None:
        """Add what was found of a call."""
        self._file.write(findings_as_bytes([(number, finding)]))
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
