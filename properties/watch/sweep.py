"""Derivatives of a number of a program by the results of its calls, by a sweep back over the recorded calls.

Of the loss autograd gives most: frozen layers, masks, tables of angles ask for no gradients, and each moves the loss.
Of any other number it gives none, and the sweep starts at that number. Where a call with a known derivative takes what
an earlier one gave, the derivative by that operand is its pull-back through the call itself.

What is hard here is memory: an operand is a view of what earlier calls wrote. So each storage has its writers, and a
gradient is added up at the elements that each of them wrote.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence

import torch

from ...oracles.op.bits import same_bits
from .call import DispatcherCall, Tensor, is_floating, kind_of
from .judging import as_function
from .path import follow_error, operands_of, pull_back, refuse_constants
from .recorder import Recorder
from .recording import FollowedError, Recording
from .views import find_places
from .widening import as_wide_function, widen
from .writers import MemoryPlace, Root, Seed, Source, Sources, Writing


def finish_recording(recorder: Recorder) -> Recording:
    """What was recorded, with the derivatives that can be found.

    Raises:
        NameNotFound: nothing has the name of the number whose error is to be followed.
    """
    recording, writers, seed = recorder.recording(), recorder.store.writers, None
    roots = writers.roots
    if recorder.named is not None:
        recording.followed, seed, recording.last = recorder.named.find(recording.calls)
        roots = [Root(seed[1], seed[2].reshape(seed[0].shape).to(seed[0]))]
        for call in recording.calls:  # Autograd's derivatives are of the loss.
            call.adjoints, call.tracked = [None] * len(call.results), [False] * len(call.results)
    recording.error = follow_error(recording.calls, writers, roots)
    if math.isnan(recording.error.value):
        lost = sweep_back(recording.calls, recording.sources, recording.last, seed)
        recording.error = FollowedError(lost=lost)
    return recording


def sweep_back(
    calls: Sequence[DispatcherCall], sources: Mapping[int, Sources], end: int,
    seed: Seed | None = None,
) -> set[int]:  # fmt: skip
    """Give calls the derivatives that later calls of the same step show.

    Args:
        calls: those that were kept, in order; their `adjoints` are added to. sources: of the recording.
        end: the number of the first call that does not count.
        seed: a tensor, where it lies, and the derivative by it, at which to start; None to go on from autograd's.

    Returns:
        The numbers of the calls that reach the number in a way whose derivative is not known.
    """
    earlier = {call.number: call for call in calls if call.number < end and not call.covered}
    lost: set[int] = set()
    if seed is not None:
        tensor, source, gradient = seed
        for writing, at, elements in _parts_of(tensor, source, earlier):
            _add(earlier[writing.number], writing, at, gradient.reshape(-1)[elements])
    for number in sorted(earlier, reverse=True):
        call = earlier[number]
        is_known = any(each is not None for each in call.adjoints)
        if (is_known or number in lost) and kind_of(call) != "random":  # Draws follow no operand.
            wanted = _wanted(call, earlier, sources.get(number, []))
            if not _pull_back(call, wanted, earlier) or number in lost:
                lost.update(writing.number for parts in wanted.values() for writing, *_ in parts)
    for number in lost:  # A part of a derivative is none.
        earlier[number].adjoints = [None] * len(earlier[number].results)
    return lost


#: What an operand has of the result of a call: the writing, elements of the result, and the same of the operand.
_Part = tuple[Writing, Tensor, Tensor]


def _wanted(
    call: DispatcherCall, earlier: Mapping[int, DispatcherCall], sources: Sources
) -> dict[int, list[_Part]]:  # fmt: skip
    """The operands, by position, that have elements of calls that are kept and have no derivative by autograd."""
    wanted: dict[int, list[_Part]] = {}
    for position, (tensor, source) in enumerate(zip(call.tensors, sources, strict=False)):
        unknown = {w for w in source[0] if w.number in earlier and not earlier[w.number].tracked[w.position]}
        parts = _parts_of(tensor, source, earlier) if unknown and is_floating(tensor) else []
        own = [part for part in parts if part[0] in unknown]
        wanted |= {position: own} if own else {}
    return wanted


def _parts_of(operand: Tensor, source: Source, earlier: Mapping[int, DispatcherCall]) -> list[_Part]:
    """What an operand has of the results of calls; each element of the latest that wrote it.

    Memory is used again: that of a tensor which nobody recorded may have been that of another one before. So an element
    that has other bits than its writer gave it is nobody's.
    """
    writings, geometry = source
    parts: list[_Part] = []
    if not writings or not operand.numel():
        return parts
    values, place = operand.detach().cpu().reshape(-1), torch.from_numpy(find_places(geometry).reshape(-1))
    free = torch.ones(len(place), dtype=torch.bool)
    for writing in reversed(writings):
        at = torch.arange(len(place)) if writing.geometry == geometry else _find(place, writing.geometry)
        (elements,) = torch.where(free & (at >= 0))
        free[elements] = False
        writer = earlier.get(writing.number)
        if writer is None or not len(elements) or writer.results[writing.position].dtype != operand.dtype:
            continue
        if same_bits(writer.results[writing.position].detach().cpu().reshape(-1)[at[elements]], values[elements]):
            parts.append((writing, at[elements], elements))
    return parts


def _find(place: Tensor, geometry: MemoryPlace) -> Tensor:
    """The position of each place among those of a result; −1 where it is none of them."""
    own = torch.from_numpy(find_places(geometry).reshape(-1))
    index = torch.full((int(torch.cat([own, place]).max()) + 1,), -1)
    index[own] = torch.arange(len(own))
    return index[place]


def _pull_back(
    call: DispatcherCall, wanted: Mapping[int, Sequence[_Part]], earlier: Mapping[int, DispatcherCall]
) -> bool:  # fmt: skip
    """Pull the derivative by a call's results back to the writers of its operands; whether it could be done."""
    if not wanted or all(each is None for each in call.adjoints):
        return True
    gradients = _gradients(call, list(wanted))
    if gradients is None:
        return False
    for parts, gradient in zip(wanted.values(), gradients, strict=True):
        if gradient is None:
            continue
        for writing, at, elements in parts:
            _add(earlier[writing.number], writing, at, gradient.reshape(-1)[elements.to(gradient.device)])
    return True


def _gradients(call: DispatcherCall, wanted: Sequence[int]) -> Sequence[Tensor | None] | None:
    """The derivatives by some operands, from those by the results; None where the call has no derivative."""
    pairs = zip(call.adjoints, call.results, strict=True)
    by_results = [g if g is None else g.to(y).reshape(y.shape) for g, y in pairs]
    operands = operands_of(call)
    # In float64 no derivative is rounded to a half type.
    for function, values in ((as_wide_function, map(widen, operands)), (as_function, operands)):
        with contextlib.suppress(Exception), refuse_constants():  # whatever torch or a stand-in says of that
            return pull_back(function(call), call, wanted, [x.clone() for x in values], by_results)
    return None


def _add(writer: DispatcherCall, writing: Writing, at: Tensor, gradient: Tensor) -> None:
    """Add a gradient by elements of what a call wrote to the call's own derivative."""
    result, earlier = writer.results[writing.position], writer.adjoints[writing.position]
    wide = torch.complex128 if result.is_complex() else torch.float64
    added = torch.zeros(result.numel(), dtype=wide)
    added.index_add_(0, at, gradient.detach().cpu().to(wide))
    added = added.reshape(result.shape)
    writer.adjoints[writing.position] = added if earlier is None else earlier.cpu() + added
