"""`LogicalTensor`: a tensor on a logical device. It computes on the host, and notes its reads and writes.

What is hard here: torch must take it for a tensor of another device, and everything that it does must be seen. So it is
a wrapper subclass, whose every operation arrives at `__torch_dispatch__` below autograd; there operands of other
devices are refused, as torch refuses them, and the operation runs on the host tensors inside. The schema of the
operation says which arguments it reads and which it writes.

A stream has a vector clock: of the events of other streams, it has those that it has waited for.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeAlias

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import return_and_correct_aliasing

from .fabric import Fabric, Stream

#: Arguments and results of an operation of torch, tensors and others, in whatever its schema says.
Value: TypeAlias = Any
Arguments: TypeAlias = tuple[Value, ...]

META = torch.device("meta")  # of tensors without data, which torch itself compares shapes with


class LogicalStream:
    """A queue of a logical device, whose events happen in order.

    Attributes:
        clock: for every stream, the number of its events that come before the next event of this stream.
    """

    def __init__(self, device: torch.device, name: str) -> None:
        self.device, self.name = device, name
        self.clock: dict[LogicalStream, int] = {self: 0}

    def __repr__(self) -> str:
        return f"{self.device}/{self.name}"

    def tick(self) -> int:
        """Count a new event; returns its number."""
        self.clock[self] += 1
        return self.clock[self]

    def wait_stream(self, other: LogicalStream) -> None:
        """Order all later events of this stream after the events that the other one has by now."""
        # For every stream the larger count: events that come before either of the two come before this one from now on.
        for stream, count in other.clock.items():
            self.clock[stream] = max(self.clock.get(stream, 0), count)

    def has_seen(self, stream: LogicalStream, event: int) -> bool:
        return self.clock.get(stream, 0) >= event


#: A stream, the number of its event, and what was done.
Event: TypeAlias = "tuple[LogicalStream, int, str]"


class Buffer:
    """Memory of a logical device: whatever is computed in it, a view too, is one thing that is read and written.

    Attributes:
        owner: the stream on which it was made.
        keepers: streams for which the memory is kept.
        last_write: its last write, None before the first.
        reads: the last read of every stream since that write.
    """

    def __init__(self, fabric: BookedFabric, owner: LogicalStream) -> None:
        self.keepers: set[LogicalStream] = set()
        self.last_write: Event | None = None
        self.reads: dict[LogicalStream, Event] = {}
        self.fabric, self.owner = fabric, owner

    def __del__(self) -> None:
        fabric = getattr(self, "fabric", None)  # none where __init__ failed
        if fabric is not None:
            fabric.freed(self)


class RaceError(RuntimeError):
    """Two uses of a buffer that nothing orders; the text names both, and their streams."""


class BookedFabric(Fabric):
    """A fabric that notes every use of a buffer.

    Attributes:
        races: a text for each buffer that was freed too early; `check` raises them.
    """

    def __init__(self) -> None:
        self.races: list[str] = []

    @abstractmethod
    def on_device(self, raw: Tensor, device: torch.device, what: str, stream: Stream = None) -> Tensor:
        """A tensor of the host as a tensor of a device.

        Args:
            raw: a tensor of the host.
            device: the device of the result.
            what: the operation that wrote its elements; "" where nothing has written them yet.
            stream: the stream of that operation; the current one if None.
        """

    def check(self) -> None:
        """RaceError if a buffer was freed while a stream that its owner knows nothing of might have used it."""
        if self.races:
            raise RaceError("; ".join(self.races))

    def read(self, buffer: Buffer, stream: Stream, what: str) -> None:
        """Note a read of a buffer; RaceError unless it comes after the last write."""
        self._require(buffer.last_write, stream, f"{what} on {stream} reads a buffer that is written")
        # The last read of each stream stands for those before it, which have happened before it on that stream.
        buffer.reads[stream] = (stream, stream.tick(), what)

    def write(self, buffer: Buffer, stream: Stream, what: str) -> None:
        """Note a write to a buffer; RaceError unless it comes after the last write and all reads since."""
        self._require(buffer.last_write, stream, f"{what} on {stream} writes a buffer that is written")
        for event in buffer.reads.values():
            self._require(event, stream, f"{what} on {stream} writes a buffer that is read")
        buffer.last_write, buffer.reads = (stream, stream.tick(), what), {}

    def freed(self, buffer: Buffer) -> None:
        """Note the end of a buffer, whose memory is then used again on the stream that it was made on."""
        for stream, event, what in (*((buffer.last_write,) if buffer.last_write else ()), *buffer.reads.values()):
            if stream not in buffer.keepers and not buffer.owner.has_seen(stream, event):
                self.races.append(
                    f"the memory of a buffer of {buffer.owner} is used again while {what} on {stream} may use it: "
                    "no wait, and not kept for that stream"
                )

    def _require(self, event: Event | None, stream: Stream, text: str) -> None:
        if event is None:
            return
        other, number, what = event
        if not stream.has_seen(other, number):
            raise RaceError(f"{text} by {what} on {other}: no wait in between")


class LogicalTensor(Tensor):
    """A tensor on device "cpu:i" of a `HostFabric`.

    Conjugates and negatives are computed, not views: what is written to one is not written to the other.

    Attributes:
        raw: its data, on the host.
        fabric: where it lives.
        buffer: its memory, which its views share.
    """

    raw: Tensor
    fabric: BookedFabric
    buffer: Buffer

    @staticmethod
    def __new__(cls, raw: Tensor, device: torch.device, fabric: BookedFabric, buffer: Buffer) -> LogicalTensor:
        tensor: LogicalTensor = Tensor._make_wrapper_subclass(
            cls, raw.shape, strides=raw.stride(), storage_offset=raw.storage_offset(), dtype=raw.dtype, device=device
        )
        tensor.raw, tensor.fabric, tensor.buffer = raw, fabric, buffer
        return tensor

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        return f"LogicalTensor({self.raw!r}, device={self.device})"

    def __deepcopy__(self, memo: dict[int, Tensor]) -> Tensor:
        """A copy on the same device of the same fabric; of a parameter, a parameter."""
        if id(self) not in memo:
            copied = self.detach().clone()
            parameter = isinstance(self, torch.nn.Parameter)
            same = torch.nn.Parameter(copied, self.requires_grad) if parameter else copied
            memo[id(self)] = same if parameter else copied.requires_grad_(self.requires_grad)
        return memo[id(self)]

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        raise RuntimeError(
            "LogicalTensor: got an assignment to .data, need a new tensor; with modules, call "
            "torch.__future__.set_overwrite_module_params_on_conversion(True) before."
        )

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: OpOverload, types: object, args: Arguments = (), kwargs: dict[str, Value] | None = None
    ) -> Value:
        kwargs = kwargs or {}
        plain_args, plain_kwargs = pytree.tree_map(_raw, (args, kwargs))
        # torch compares shapes by running operations on tensors without data. No device takes part in that.
        if kwargs.get("device") == META:
            return func(*plain_args, **plain_kwargs)
        moved = _copy_across(func, args, kwargs)
        if moved is not None:
            return moved
        leaves = pytree.tree_leaves((args, kwargs))
        logical = [t for t in leaves if isinstance(t, LogicalTensor)]
        device, fabric = logical[0].device, logical[0].fabric
        _require_one_device(func, leaves, device, fabric)
        func = _COMPUTED.get(func, func)
        # To make a view, or memory "like" a tensor, touches no element, so neither has to wait.
        view = _is_view(func)
        if not view and not _makes_memory(func):
            _book_uses(func, args, kwargs, fabric, fabric.stream(device))
        if plain_kwargs.get("device") is not None:
            device, plain_kwargs["device"] = plain_kwargs["device"], torch.device("cpu")
        results = func(*plain_args, **plain_kwargs)
        there = pytree.tree_map_only(Tensor, lambda raw: fabric.on_device(raw, device, str(func)), results)
        return return_and_correct_aliasing(func, args, kwargs, there)


#: Operations that only mark a view as conjugate or negative, and the operations that take their place and compute the
#: numbers, so that memory holds the numbers that the tensor stands for.
_COMPUTED = {
    torch.ops.aten._conj.default: torch.ops.aten.conj_physical.default,
    torch.ops.aten._neg_view.default: torch.ops.aten.neg.default,
}


def _copy_across(func: OpOverload, args: Arguments, kwargs: dict[str, Value]) -> Value:
    """The result of a copy between devices; None for everything else."""
    if func is torch.ops.aten.copy_.default:
        target, read, *_ = args
        if target.device == read.device:
            return None
        fabric = next(t.fabric for t in (target, read) if isinstance(t, LogicalTensor))
        return fabric.copy(read, target.device, out=target)
    device = kwargs.get("device")
    if func is not torch.ops.aten._to_copy.default or device is None:
        return None
    (source,) = args
    if device == source.device:
        return None
    there = source.fabric.copy(source, device)
    # The tensor travels in the dtype that it has, and is converted on the device where it arrives.
    return there if kwargs.get("dtype") is None else there.to(kwargs["dtype"])


def _require_one_device(func: OpOverload, leaves: list[Value], device: torch.device, fabric: BookedFabric) -> None:
    for t in leaves:
        if isinstance(t, LogicalTensor) and t.fabric.devices is not fabric.devices:
            raise RuntimeError(f"{func}: got tensors on {device} and on {t.device} of another fabric, need one fabric.")
        # A tensor of the host without dims may stand among the operands, as a number would. torch allows that for every
        # device.
        if isinstance(t, Tensor) and t.device != device and (t.dim() > 0 or isinstance(t, LogicalTensor)):
            raise RuntimeError(
                f"{func}: Expected all tensors to be on the same device, but found at least two devices, "
                f"{device} and {t.device}!"
            )


def _is_view(func: OpOverload) -> bool:
    aliases = [r.alias_info for r in func._schema.returns if r.alias_info is not None]
    return bool(aliases) and not any(alias.is_write for alias in aliases)


def _makes_memory(func: OpOverload) -> bool:
    """Whether an operation makes new memory, and reads no more of a tensor than its shape."""
    name = func._schema.name.removeprefix("aten::")
    return bool(name.startswith("new_") or name.endswith("_like"))


def _book_uses(
    func: OpOverload, args: Arguments, kwargs: dict[str, Value], fabric: BookedFabric, stream: LogicalStream | None
) -> None:
    """Tell the fabric what a call reads and writes."""
    declared = func._schema.arguments
    pairs = [*zip(declared, args, strict=False), *((a, kwargs[a.name]) for a in declared if a.name in kwargs)]
    for argument, value in pairs:
        writes = argument.alias_info is not None and argument.alias_info.is_write
        for t in pytree.tree_leaves(value):
            if isinstance(t, LogicalTensor):
                (fabric.write if writes else fabric.read)(t.buffer, stream, str(func))


def _raw(value: Value) -> Value:
    return value.raw if isinstance(value, LogicalTensor) else value
