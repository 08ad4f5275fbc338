"""A call as data: the form in which files have it. Tensors stay tensors; whoever writes the file gives them a form."""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch.utils import _pytree as pytree

from ..candidates.layouts import place
from .call import DispatcherCall, Origin, Switches

#: Types of torch that a file has by their names.
_BY_NAME = (torch.dtype, torch.device, torch.layout, torch.memory_format)


class CallData(msgspec.Struct, frozen=True):
    """The attributes of `DispatcherCall` of the same names; strides are those of the tensors among the leaves."""

    op: str
    leaves: list[Any]
    strides: list[list[int]]
    structure: str
    results: list[Any]
    origin: Origin
    switches: Switches
    number: int
    seconds: float = 0.0
    covered: bool = False
    adjoints: list[Any] = []
    tracked: list[bool] = []


class MissingOperation:
    """An operation or a region of another process, which is known by its name alone."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_: Any, **__: Any) -> None:
        """Raises: NotImplementedError: always."""
        raise NotImplementedError(f"{self.name} is not registered in this process")


def data_of(call: DispatcherCall) -> CallData:
    """A call as data."""
    is_operation = isinstance(call.op, torch._ops.OpOverload)
    return CallData(
        str(call.op) if is_operation else call.name, [_to_file(leaf) for leaf in call.leaves],
        [[*t.stride()] for t in call.tensors], pytree.treespec_dumps(call.structure), list(call.results), call.origin,
        call.switches, call.number, call.seconds, call.covered, call.adjoints, call.tracked,
    )  # fmt: skip


def call_of(data: CallData) -> DispatcherCall:
    """The call of data; no code of them is run.

    Raises:
        AttributeError, TypeError, ValueError: they are of another version, or were made by somebody else.
    """
    strides = iter(data.strides)
    leaves = tuple(place(x, next(strides)) if isinstance(x, torch.Tensor) else _of_file(x) for x in data.leaves)
    structure = pytree.treespec_loads(data.structure)
    return DispatcherCall(
        find_operation(data.op), leaves, structure, tuple(data.results), data.origin, data.switches, data.number, None,
        data.seconds, data.covered, data.adjoints, data.tracked,
    )  # fmt: skip


def find_operation(name: str) -> Any:
    """The operation of a name, or what stands for it where it is not registered here."""
    parts = name.split(".")
    value: Any = torch.ops
    for part in parts if len(parts) == 3 else ():
        value = getattr(value, part, None)
    return value if isinstance(value, torch._ops.OpOverload) else MissingOperation(name)


def _to_file(leaf: Any) -> Any:
    return {"torch": str(leaf)} if isinstance(leaf, _BY_NAME) else leaf


def _of_file(leaf: Any) -> Any:
    if not isinstance(leaf, dict):
        return leaf
    name = str(leaf["torch"])
    module, _, attribute = name.rpartition(".")
    return getattr(torch, attribute) if module == "torch" else torch.device(name)
