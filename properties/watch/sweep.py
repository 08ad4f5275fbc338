"""Derivatives of the loss that the program's own backward pass does not give, by a sweep back over the recorded calls.

Frozen layers, masks, tables of angles: none of them asks for gradients, and each moves the loss. Where a call with a
known derivative takes what such a call gave, the derivative by that operand is its pull-back through the call itself.

What is hard here is memory: an operand is a view of what an earlier call wrote. So each storage has its latest writer,
and a gradient is added up at the elements of the storage.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...oracles.op.bits import same_bits
from .call import DROPOUT, DispatcherCall, Tensor, is_floating
from .judging import as_function
from .recorder import Recorder
from .recording import Recording
from .writers import Geometry, Sources, Writing


def finish_recording(recorder: Recorder) -> Recording:
    """What was recorded, with the derivatives that can be found."""
    recording = recorder.recording()
    sweep_back(recording.calls, recording.sources, recording.last)
    return recording


def sweep_back(calls: Sequence[DispatcherCall], sources: Mapping[int, Sources], last: int) -> None:
    """Give calls before the last backward pass the derivatives that later calls of the same step show.

    Args:
        calls: those that were kept, in order; their `adjoints` are added to. sources: of the recording.
        last: the number of calls that had been made when the last backward pass began.
    """
    earlier = {call.number: call for call in calls if call.number < last and not call.covered}
    for number in sorted(earlier, reverse=True):
        call = earlier[number]
        whole = not isinstance(call.op, torch._ops.OpOverload) or call.op is DROPOUT
        if whole or all(each is None for each in call.adjoints):
            continue
        wanted = _wanted(call, earlier, sources.get(number, []))
        # An operation that has no derivative, or a stand-in that cannot be pulled back, leaves it unknown.
        with contextlib.suppress(Exception):
            _pull_back(call, wanted, earlier)


_Source = tuple[Writing, Geometry]


def _wanted(
    call: DispatcherCall, earlier: Mapping[int, DispatcherCall], sources: Sources
) -> dict[int, _Source]:  # fmt: skip
    """The operands, by position, whose writers are kept and have no derivative by autograd."""
    wanted: dict[int, _Source] = {}
    for position, (tensor, (writing, geometry)) in enumerate(zip(call.tensors, sources, strict=False)):
        writer = None if writing is None else earlier.get(writing.number)
        if writing is None or writer is None or not is_floating(tensor) or tensor.is_complex():
            continue
        if not writer.tracked[writing.position] and _has_values(tensor, geometry, writer, writing):
            wanted[position] = writing, geometry
    return wanted


def _has_values(operand: Tensor, geometry: Geometry, writer: DispatcherCall, writing: Writing) -> bool:
    """Whether an operand has the values that its writer left in memory.

    Memory is used again: that of a tensor which nobody recorded may have been that of another one before.
    """
    own, place = _places(*writing.geometry[:2], 0), _places(*geometry[:2], geometry[2] - writing.geometry[2])
    result = writer.results[writing.position]
    if not place.numel() or int(place.min()) < 0 or int(place.max()) > int(own.max()) or result.dtype != operand.dtype:
        return False
    memory = torch.zeros(int(own.max()) + 1, dtype=result.dtype)
    memory[own] = result.detach().cpu().reshape(-1)
    return same_bits(memory[place].reshape(operand.shape), operand.detach().cpu())


def _pull_back(call: DispatcherCall, wanted: Mapping[int, _Source], earlier: Mapping[int, DispatcherCall]) -> None:
    if not wanted:
        return
    function, operands = as_function(call), call.tensors

    def of_wanted(*values: Tensor) -> tuple[Tensor, ...]:
        whole = [tensor.clone() for tensor in operands]
        for position, value in zip(wanted, values, strict=True):
            whole[position] = value.clone()  # which an operation may write
        return tuple(y for y in function(*whole) if is_floating(y))

    outputs: tuple[Tensor, ...]
    pulled: Any = torch.func.vjp(of_wanted, *(operands[i] for i in wanted))
    outputs, pull = pulled
    floating = [g for g, y in zip(call.adjoints, call.results, strict=True) if is_floating(y)]
    weights = tuple(
        torch.zeros_like(y) if g is None else g.to(y.dtype).reshape(y.shape)
        for g, y in zip(floating, outputs, strict=True)
    )
    for (writing, geometry), gradient in zip(wanted.values(), pull(weights), strict=True):
        _add(earlier[writing.number], writing, geometry, gradient)


def _add(writer: DispatcherCall, writing: Writing, geometry: Geometry, gradient: Tensor) -> None:
    """Add a gradient by a view of what a call wrote to the call's own derivative."""
    shape, strides, offset = writing.geometry
    own, place = _places(shape, strides, 0), _places(*geometry[:2], geometry[2] - offset)
    memory = torch.zeros(int(own.max()) + 1, dtype=torch.float64)
    memory.index_add_(0, place, gradient.detach().double().cpu().reshape(-1))
    added = memory[own].reshape(shape)
    earlier = writer.adjoints[writing.position]
    writer.adjoints[writing.position] = added if earlier is None else earlier + added


def _places(shape: Sequence[int], strides: Sequence[int], offset: int) -> Tensor:
    """The places in memory of the elements of a tensor, in order."""
    places = torch.full((), offset)
    for size, stride in zip(shape, strides, strict=True):
        places = places.unsqueeze(-1) + torch.arange(size) * stride
    return places.reshape(-1)
