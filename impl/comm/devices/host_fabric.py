"""`HostFabric`: logical devices on a machine without any, on which a missing wait is an error and not a wrong number.

Data moves at once, in the memory of the host. What is modelled is order: every stream has a vector clock (C. Fidge,
Proc. 11th Australian Computer Science Conf., 1988), every read and write of a buffer is an event of a stream, and two
of them that touch the same buffer, one of them a write, must be ordered by waits.

What is hard here: a missing wait on a GPU shows once in a thousand runs, as a wrong number. Here the numbers are always
right, since the host copies at once, and cannot show the fault; only the order of events can. The clock of a stream
says which events of other streams it has waited for. A use of a buffer whose last write is not among those is a race,
whenever it happens to run. The same test shows memory that is freed too early, at the moment when it is freed.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .fabric import DeviceName, Stream
from .logical import BookedFabric, Buffer, LogicalStream, LogicalTensor

HOST = torch.device("cpu")


@dataclass(frozen=True)
class Transfer:
    """A copy as it was booked; devices by name, "cpu" is the host."""

    source: str
    destination: str
    size: int


class HostFabric(BookedFabric):
    """`size` logical devices, "cpu:0" to "cpu:{size − 1}", in the memory of one host.

    A tensor on one of them is a `LogicalTensor`: it has its device, computes like any tensor, refuses operands of other
    devices, and goes through autograd. Logical devices prove logic and the order of events, and nothing about links,
    peer copies or drivers.

    Attributes:
        ledger: a `Transfer` for every copy between devices so far.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"HostFabric: got size={size}, need at least 1.")
        super().__init__()
        self.devices = tuple(torch.device("cpu", i) for i in range(size))
        self.ledger: list[Transfer] = []
        self._now = {device: LogicalStream(device, "main") for device in self.devices}
        self._side: dict[tuple[torch.device, int], LogicalStream] = {}
        self._buffers: weakref.WeakValueDictionary[int, Buffer] = weakref.WeakValueDictionary()  # by their storage

    def device(self, name: DeviceName) -> torch.device:
        device = super().device(name)
        if device != HOST and device not in self._now:
            raise ValueError(f"device: got device={name}, need the host or one of {len(self.devices)} logical devices.")
        return device

    def copy(
        self, x: Tensor, device: torch.device, stream: LogicalStream | None = None, out: Tensor | None = None
    ) -> Tensor:
        source = x.device if isinstance(x, LogicalTensor) else HOST
        if isinstance(x, LogicalTensor) and x.fabric.devices is not self.devices:
            raise RuntimeError(f"copy: x is on {source} of another fabric.")
        own, there = self._now.get(source), self._now.get(self.device(device))
        # A copy to the host runs on a stream of the source, for the host has none.
        runs = stream or there or own
        what = f"copy {source} to {device}"
        raw = x.raw if isinstance(x, LogicalTensor) else x
        # As torch orders copies between devices: after the work that the source has, and before its next work.
        ordered = own is not None and source != device
        if ordered:
            self.wait(runs, own)
        if isinstance(x, LogicalTensor):
            self.read(x.buffer, runs, what)
        copy = self._store(raw, device, runs, out, what)
        if ordered:
            self.wait(own, runs)
        if source != device and x.numel():
            self.ledger.append(Transfer(str(source), str(device), x.numel() * x.element_size()))
        return copy

    def _store(self, raw: Tensor, device: torch.device, runs: Stream, out: Tensor | None, what: str) -> Tensor:
        if isinstance(out, LogicalTensor):
            self.write(out.buffer, runs, what)
            out.raw.copy_(raw)
            return out
        if out is not None:
            return out.copy_(raw)
        moved = raw.clone(memory_format=torch.contiguous_format)
        return self.on_device(moved, device, what, runs)

    def empty(self, like: Tensor, shape: Sequence[int], device: torch.device) -> Tensor:
        return self.on_device(torch.empty(shape, dtype=like.dtype), device, "")

    def on_device(self, raw: Tensor, device: torch.device, what: str, stream: Stream = None) -> Tensor:
        """As `BookedFabric` says; for the host itself, the same tensor."""
        if device not in self._now:
            return raw
        runs = stream or self._now[device]
        # Tensors that share memory share a buffer, as a view and a result in place do. They are known by the address of
        # their storage. The buffer ends with the last of them, before other memory can get this address.
        address = raw.untyped_storage()._cdata
        buffer = self._buffers.get(address)
        if buffer is None:
            buffer = self._buffers[address] = Buffer(self, runs)
            if what:
                self.write(buffer, runs, what)
        return LogicalTensor(raw, device, self, buffer)

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
            x.buffer.keepers.add(stream)

    @contextlib.contextmanager
    def on(self, stream: LogicalStream) -> Iterator[None]:
        """A context in which `stream` is the current one of its device."""
        # At the end the stream from before comes back, and not "main", because contexts may be nested.
        before, self._now[stream.device] = self._now[stream.device], stream
        try:
            yield
        finally:
            self._now[stream.device] = before

    def count_sent_bytes(self) -> int:
        return sum(entry.size for entry in self.ledger)

    def bytes_between(self, source: torch.device | str, destination: torch.device | str) -> int:
        """Bytes that went from one device to another."""
        names = (str(source), str(destination))
        return sum(entry.size for entry in self.ledger if (entry.source, entry.destination) == names)
