"""`HostFabric`: logical devices on a machine without any, on which a missing wait is an error and not a wrong number.

Data moves at once, in the memory of the host. What is modelled is order: every stream has a vector clock (C. Fidge,
Proc. 11th Australian Computer Science Conf., 1988), every read and write of a buffer is an event of a stream, and two
of them that touch the same buffer, one of them a write, must be ordered by waits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .fabric import Fabric
from .logical import Buffer, LogicalTensor

HOST = torch.device("cpu")


class RaceError(RuntimeError):
    """Two uses of a buffer that nothing orders; the text names both, and their streams."""


class LogicalStream:
    """A queue of a logical device: what is on it happens in order.

    Attributes:
        clock: for every stream, how many of its events have happened before what this one does next.
    """

    def __init__(self, device: torch.device, name: str) -> None:
        self.device, self.name = device, name
        self.clock: dict[LogicalStream, int] = {self: 0}

    def __repr__(self) -> str:
        return f"{self.device}/{self.name}"

    def tick(self) -> int:
        """A new event; its number."""
        self.clock[self] += 1
        return self.clock[self]

    def wait_stream(self, other: LogicalStream) -> None:
        """What comes next here happens after all that is on the other by now."""
        for stream, count in other.clock.items():
            self.clock[stream] = max(self.clock.get(stream, 0), count)

    def has_seen(self, stream: LogicalStream, event: int) -> bool:
        return self.clock.get(stream, 0) >= event


@dataclass(frozen=True)
class Transfer:
    """A copy as it was booked; devices by name, "cpu" is the host."""

    source: str
    destination: str
    size: int


class HostFabric(Fabric):
    """`size` logical devices, "cpu:0" to "cpu:{size − 1}", in the memory of one host.

    A tensor on one of them is a `LogicalTensor`: it has its device, computes like any tensor, refuses operands of other
    devices, and goes through autograd. What is proved with them is logic, order and happens-before; not links, peer
    copies or drivers.

    Attributes:
        ledger: a `Transfer` for every copy between devices so far.
        races: what has been freed too early; `check` raises it.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"HostFabric: got size={size}, need at least 1.")
        self.devices = tuple(torch.device("cpu", i) for i in range(size))
        self.ledger: list[Transfer] = []
        self.races: list[str] = []
        self._now = {device: LogicalStream(device, "main") for device in self.devices}
        self._side: dict[tuple[torch.device, int], LogicalStream] = {}

    def copy(
        self, x: Tensor, device: torch.device, stream: LogicalStream | None = None, out: Tensor | None = None
    ) -> Tensor:
        source = x.device if isinstance(x, LogicalTensor) else HOST
        if isinstance(x, LogicalTensor) and x.fabric.devices is not self.devices:
            raise RuntimeError(f"copy: x is on {source} of another fabric.")
        own, there = self._now.get(source), self._now.get(device)
        runs = stream or there or own
        what = f"copy {source} to {device}"
        raw = x.raw if isinstance(x, LogicalTensor) else x
        if runs is not None and own is not None and isinstance(x, LogicalTensor):
            runs.wait_stream(own)  # as torch orders copies between devices: after what the source has to do ...
            self.read(x.buffer, runs, what)
        if source != device and x.numel():
            self.ledger.append(Transfer(str(source), str(device), x.numel() * x.element_size()))
        found = self._stored(raw, device, runs, out, what)
        if runs is not None and own is not None:
            own.wait_stream(runs)  # ... and what it does next after them
        return found

    def _stored(self, raw: Tensor, device: torch.device, runs: Any, out: Tensor | None, what: str) -> Tensor:
        if isinstance(out, LogicalTensor):
            self.write(out.buffer, runs, what)
            out.raw.copy_(raw)
            return out
        if out is not None:
            return out.copy_(raw)
        moved = raw.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        if device not in self._now:
            return moved
        found = LogicalTensor(moved, device, self, Buffer(self, runs))
        self.write(found.buffer, runs, what)
        return found

    def empty(self, like: Tensor, shape: Sequence[int], device: torch.device) -> Tensor:
        raw = torch.empty(shape, dtype=like.dtype)
        return LogicalTensor(raw, device, self, Buffer(self, self._now[device])) if device in self._now else raw

    def stream(self, device: torch.device) -> LogicalStream | None:
        return self._now.get(device)

    def side_stream(self, device: torch.device, lane: int = 0) -> LogicalStream | None:
        if device not in self._now:
            return None
        return self._side.setdefault((device, lane), LogicalStream(device, f"copies {lane}"))

    def wait(self, waiting: LogicalStream | None, awaited: LogicalStream | None) -> None:
        if waiting is not None and awaited is not None:
            waiting.wait_stream(awaited)

    def keep(self, x: Tensor, stream: LogicalStream | None) -> None:
        if isinstance(x, LogicalTensor) and stream is not None:
            x.buffer.kept.add(stream)

    @contextlib.contextmanager
    def on(self, stream: LogicalStream) -> Iterator[None]:
        """The current stream of its device, inside."""
        before, self._now[stream.device] = self._now[stream.device], stream
        try:
            yield
        finally:
            self._now[stream.device] = before

    def bytes_between(self, source: Any, destination: Any) -> int:
        """Bytes that went from one device to another."""
        names = (str(source), str(destination))
        return sum(entry.size for entry in self.ledger if (entry.source, entry.destination) == names)

    def check(self) -> None:
        """RaceError if a buffer was freed while a stream that its owner knows nothing of might have used it."""
        if self.races:
            raise RaceError("; ".join(self.races))

    # ------------------------------------------------------------------------------- events, told by the tensors

    def read(self, buffer: Buffer, stream: Any, what: str) -> None:
        """A read of a buffer: after its last write."""
        self._require(buffer.writes, stream, f"{what} on {stream} reads a buffer that is written")
        buffer.reads.append((stream, stream.tick(), what))

    def write(self, buffer: Buffer, stream: Any, what: str) -> None:
        """A write: after its last write, and after everything that read it since."""
        self._require(buffer.writes, stream, f"{what} on {stream} writes a buffer that is written")
        self._require(buffer.reads, stream, f"{what} on {stream} writes a buffer that is read")
        buffer.writes[:], buffer.reads[:] = [(stream, stream.tick(), what)], []

    def freed(self, buffer: Buffer) -> None:
        """The end of a buffer: its memory is used again, on the stream that it was made on."""
        for stream, event, what in (*buffer.writes, *buffer.reads):
            if stream not in buffer.kept and not buffer.owner.has_seen(stream, event):
                self.races.append(
                    f"the memory of a buffer of {buffer.owner} is used again while {what} on {stream} may use it: "
                    "no wait, and not kept for that stream"
                )

    def _require(self, events: Sequence[tuple[Any, int, str]], stream: Any, text: str) -> None:
        for other, event, what in events:
            if not stream.has_seen(other, event):
                raise RaceError(f"{text} by {what} on {other}: no wait in between")
