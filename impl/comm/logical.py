"""`LogicalTensor`: a tensor on a logical device. It computes on the host, and tells what it reads and writes."""

from __future__ import annotations

from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch.utils._python_dispatch import return_and_correct_aliasing

Event = tuple[Any, int, str]  # stream, number, what

META = torch.device("meta")  # of tensors without data, which torch itself compares shapes with


class Buffer:
    """Memory of a logical device.

    Attributes:
        owner: the stream that it was made on. kept: streams that it is kept for.
        writes: its last write. reads: those since.
    """

    def __init__(self, fabric: Any, owner: Any) -> None:
        self.fabric, self.owner = fabric, owner
        self.kept: set[Any] = set()
        self.writes: list[Event] = []
        self.reads: list[Event] = []

    def __del__(self) -> None:
        self.fabric.freed(self)


class LogicalTensor(Tensor):
    """A tensor on device "cpu:i" of a `HostFabric`.

    Attributes:
        raw: its data, on the host. fabric: where it lives. buffer: its memory, which its views share.
    """

    raw: Tensor
    fabric: Any
    buffer: Buffer

    @staticmethod
    def __new__(cls, raw: Tensor, device: torch.device, fabric: Any, buffer: Buffer) -> LogicalTensor:
        made: LogicalTensor = Tensor._make_wrapper_subclass(
            cls, raw.shape, strides=raw.stride(), storage_offset=raw.storage_offset(), dtype=raw.dtype, device=device
        )
        made.raw, made.fabric, made.buffer = raw, fabric, buffer
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"LogicalTensor({self.raw.tolist()}, device={self.device})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        moved = _moved(func, args, kwargs)
        if moved is not None:
            return moved
        if any(isinstance(t, Tensor) and t.device == META for t in pytree.tree_leaves((args, kwargs))):
            return func(*pytree.tree_map(_meta, args), **pytree.tree_map(_meta, kwargs))
        logical = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, LogicalTensor)]
        device, fabric = logical[0].device, logical[0].fabric
        _require_one_device(func, args, kwargs, device)
        stream, view = fabric.stream(device), _is_view(func)
        if not view:
            _booked(func, args, kwargs, fabric, stream)
        plain_args, plain_kwargs = pytree.tree_map(_plain, (args, kwargs))
        if plain_kwargs.get("device") is not None:
            plain_kwargs["device"] = torch.device("cpu")

        def wrapped(raw: Any) -> Any:
            if not isinstance(raw, Tensor):
                return raw
            if view:
                return LogicalTensor(raw, device, fabric, logical[0].buffer)
            made = LogicalTensor(raw, device, fabric, Buffer(fabric, stream))
            fabric.write(made.buffer, stream, str(func))
            return made

        found = pytree.tree_map(wrapped, func(*plain_args, **plain_kwargs))
        return return_and_correct_aliasing(func, args, kwargs, found)


def _moved(func: Any, args: Any, kwargs: Any) -> Any:
    """The result of a copy between devices; None for everything else."""
    if func is torch.ops.aten.copy_.default and args[0].device != args[1].device:
        fabric = next(t.fabric for t in args[:2] if isinstance(t, LogicalTensor))
        return fabric.copy(args[1], args[0].device, out=args[0])
    device = kwargs.get("device")
    if func is not torch.ops.aten._to_copy.default or device is None or device == args[0].device:
        return None
    there = args[0].fabric.copy(args[0], device)
    return there if kwargs.get("dtype") is None else there.to(kwargs["dtype"])


def _require_one_device(func: Any, args: Any, kwargs: Any, device: torch.device) -> None:
    for t in pytree.tree_leaves((args, kwargs)):
        # A number as a tensor may stay on the host, as with any device of torch.
        if isinstance(t, Tensor) and t.device != device and (t.dim() > 0 or isinstance(t, LogicalTensor)):
            raise RuntimeError(
                f"{func}: Expected all tensors to be on the same device, but found at least two devices, "
                f"{device} and {t.device}!"
            )


def _is_view(func: Any) -> bool:
    aliases = [r.alias_info for r in func._schema.returns if r.alias_info is not None]
    return bool(aliases) and not any(alias.is_write for alias in aliases)


def _booked(func: Any, args: Any, kwargs: Any, fabric: Any, stream: Any) -> None:
    """Tell the fabric what a call reads and writes."""
    declared = func._schema.arguments
    given = [*zip(declared, args, strict=False), *((a, kwargs[a.name]) for a in declared if a.name in kwargs)]
    for argument, value in given:
        writes = argument.alias_info is not None and argument.alias_info.is_write
        for t in pytree.tree_leaves(value):
            if isinstance(t, LogicalTensor):
                (fabric.write if writes else fabric.read)(t.buffer, stream, str(func))


def _meta(value: Any) -> Any:
    return value.raw.to(META) if isinstance(value, LogicalTensor) else value


def _plain(value: Any) -> Any:
    return value.raw if isinstance(value, LogicalTensor) else value
