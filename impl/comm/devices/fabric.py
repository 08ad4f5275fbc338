"""`Fabric`: several devices under one program. How tensors get from one to another, on which stream, and who waits."""

from __future__ import annotations

import contextlib
import contextvars
import copy
import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Self, TypeAlias

import torch
from torch import Tensor

from .planner import BUCKET

#: A device of torch, its name, or an index into the devices of a fabric.
DeviceName: TypeAlias = torch.device | str | int
#: A queue of a device: torch's class for that kind of device, or a logical one. They have no type in common.
Stream: TypeAlias = Any
# A context variable and no global one, so that each thread has the fabric that it made active itself.
_CURRENT: contextvars.ContextVar[Fabric | None] = contextvars.ContextVar("fabric", default=None)


class Fabric(ABC):
    """The interface between the production code and the devices that it moves tensors between.

    Attributes:
        devices: the devices, in order; one may occur more than once.
        bucket: how many bytes of small tensors travel together at most.
    """

    devices: tuple[torch.device, ...]
    bucket: int = BUCKET

    def device(self, name: DeviceName) -> torch.device:
        """The device of an index into `devices`, of a name, or of a device; −1 is the host, as in torch.

        Raises:
            ValueError: there is no such device here.
        """
        # True is an int to Python, but nobody means device 1 by it: `torch.device` refuses it.
        if isinstance(name, int) and not isinstance(name, bool):
            if not -1 <= name < len(self.devices):
                raise ValueError(f"device: got device={name}, need -1, the host, or an index of {len(self.devices)}.")
            return torch.device("cpu") if name == -1 else self.devices[name]
        return torch.device(name)

    @abstractmethod
    def copy(self, x: Tensor, device: torch.device, stream: Stream = None, out: Tensor | None = None) -> Tensor:
        """x on a device, in memory of its own, or in that of `out`; on a stream, by default the current one there."""

    @abstractmethod
    def empty(self, like: Tensor, shape: Sequence[int], device: torch.device) -> Tensor:
        """Contiguous memory of the dtype of `like` on a device."""

    @abstractmethod
    def stream(self, device: torch.device) -> Stream:
        """The current stream of a device; None where it has none."""

    @abstractmethod
    def side_stream(self, device: torch.device, lane: int = 0) -> Stream:
        """The stream of a device for copies in the background; None where it has none."""

    @abstractmethod
    def wait(self, waiting: Stream, awaited: Stream) -> None:
        """Work queued on `waiting` from now on starts after the work that is on `awaited` by now."""

    @abstractmethod
    def keep(self, x: Tensor, stream: Stream) -> None:
        """Keep the memory of x from being used again until the work that a stream has by now is done."""

    def count_sent_bytes(self) -> int | None:
        """Bytes that went from one device to another so far; None where the fabric does not count them."""
        return None

    def check(self) -> None:
        """Raise an error if two uses of memory raced so far. Where streams are real ones, a race cannot be seen."""
        return

    def with_bucket(self, size: int) -> Self:
        """The same devices, streams and books, with buckets of another size.

        Raises:
            ValueError: size < 1.
        """
        if size < 1:
            raise ValueError(f"with_bucket: got size={size}, need at least 1 byte.")
        # A shallow copy: streams and books are those of the original, so that what it books is counted there.
        other = copy.copy(self)
        other.bucket = size
        return other

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """A context in which all calls run on this fabric."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)


class TorchFabric(Fabric):
    """Devices of torch: CPU, one accelerator or several; by default all accelerators that torch sees.

    A copy from the host goes through a background stream of its destination, so that it overlaps with what the
    destination computes. Copies between accelerators are ordered by torch, after what both had to do.
    """

    def __init__(self, devices: Sequence[torch.device | str] | None = None) -> None:
        self.devices = tuple(_accelerators() if devices is None else map(torch.device, devices))
        self._side: dict[tuple[torch.device, int], Stream] = {}

    def device(self, name: DeviceName) -> torch.device:
        device = super().device(name)
        if device.type == "cpu":
            return torch.device("cpu")  # "cpu:0" is the same
        # "cuda" is the current GPU, which may be another one in the next call; the index says which it was in this.
        if device.index is None and _has_streams(device):
            return torch.device(device.type, torch.get_device_module(device).current_device())
        return device

    def copy(self, x: Tensor, device: torch.device, stream: Stream = None, out: Tensor | None = None) -> Tensor:
        # The host waits for no stream, so a copy to it must be complete when this returns.
        background = stream is not None and device.type != "cpu"
        with torch.get_device_module(device).stream(stream) if background else contextlib.nullcontext():
            if out is not None:
                return out.copy_(x, non_blocking=background)
            if x.layout != torch.strided:
                return x.to(device, non_blocking=background, copy=True)
            # A tensor may only be marked as conjugate or negative, with other numbers in its memory. The copy that
            # torch makes holds the conjugate or negative numbers themselves.
            return x.to(device, non_blocking=background, copy=True, memory_format=torch.contiguous_format)

    def empty(self, like: Tensor, shape: Sequence[int], device: torch.device) -> Tensor:
        return like.new_empty(shape, device=device)

    def stream(self, device: torch.device) -> Stream:
        return torch.get_device_module(device).current_stream(device) if _has_streams(device) else None

    def side_stream(self, device: torch.device, lane: int = 0) -> Stream:
        if not _has_streams(device):
            return None
        if (device, lane) not in self._side:
            self._side[device, lane] = torch.get_device_module(device).Stream(device)
        return self._side[device, lane]

    def wait(self, waiting: Stream, awaited: Stream) -> None:
        if waiting is not None and awaited is not None:
            waiting.wait_stream(awaited)

    def keep(self, x: Tensor, stream: Stream) -> None:
        if stream is not None:
            x.record_stream(stream)


class CudaFabric(TorchFabric):
    """All GPUs of this machine, or those of the given indices.

    Raises:
        RuntimeError: this machine has no GPU of such an index, or none at all.
    """

    def __init__(self, indices: Sequence[int] | None = None) -> None:
        there = torch.cuda.device_count()
        ordinals = range(there) if indices is None else indices
        if not ordinals or max(ordinals) >= there:
            raise RuntimeError(f"CudaFabric: got indices={list(ordinals)}, have {there} CUDA devices.")
        super().__init__([torch.device("cuda", i) for i in ordinals])


class FoldedFabric(TorchFabric):
    """One device in the place of `size` devices, whose streams are as many background streams of it.

    Args:
        size: how many devices it stands for.
        device: the device; by default the first accelerator, or the CPU, which has no streams.
    """

    def __init__(self, size: int, device: torch.device | str | None = None) -> None:
        if size < 1:
            raise ValueError(f"FoldedFabric: got size={size}, need at least 1.")
        first = torch.device(device) if device is not None else next(iter(_accelerators()), torch.device("cpu"))
        super().__init__([first] * size)


def current() -> Fabric:
    """The fabric that is active; by default that of torch's own devices."""
    return _CURRENT.get() or _all_of_torch()


@functools.cache
def _all_of_torch() -> Fabric:
    return TorchFabric()


def get_stream(device: DeviceName) -> Stream:
    """The background stream for copies between the host and a device; None for the CPU, and where there is none."""
    fabric = current()
    return fabric.side_stream(fabric.device(device))


def _has_streams(device: torch.device) -> bool:
    return device.type not in ("cpu", "meta") and hasattr(torch.get_device_module(device), "Stream")


def _accelerators() -> list[torch.device]:
    if not torch.accelerator.is_available():
        return []
    kind = torch.accelerator.current_accelerator()
    return [] if kind is None else [torch.device(kind.type, i) for i in range(torch.accelerator.device_count())]
