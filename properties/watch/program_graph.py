"""A recorded program as a graph: its calls, and of every operand which call gave it, and which elements of that.

What is hard here: a recording has memory, and a graph has values. So a copy or a cast gives the value that it was
given, a view some elements of one, and an operation on lists is as many calls. A compiled graph is the calls of its
text. What was in memory before the recording is known by its numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from ...oracles.op.bits import same_bits
from .call import DispatcherCall, Tensor, find_written, is_floating, kind_of, split_lists
from .compiled import GraphRegion
from .unfolding import BEFORE, unfold
from .views import ElementView, view_within
from .writers import MemoryPlace, Source, Sources

#: What gave a value: the position of a call and of its result; of numbers that were there before, -1 and their digest.
ValueKey = tuple[int, Any]
THERE = -1
_ATEN = torch.ops.aten
#: Operations that give the value of one of their operands, by its position.
_SAME = {_ATEN.clone: 0, _ATEN._to_copy: 0, _ATEN.lift_fresh: 0, _ATEN.detach: 0, _ATEN.alias: 0, _ATEN.copy_: 1}
_SAME |= {_ATEN._unsafe_view: 0, _ATEN._reshape_alias: 0}


class ValueUse(NamedTuple):
    """A value, and the elements of it that a tensor has; whether it is in other memory than the value was."""

    key: ValueKey
    view: ElementView
    is_copy: bool = False


class GraphCall(NamedTuple):
    """A call, what its tensors are, its number in the program, and how many steps had ended."""

    call: DispatcherCall
    operands: tuple[ValueUse, ...]
    number: int
    step: int


class ProgramGraph:
    """The calls of a recording that compute, in order.

    Attributes:
        calls: without copies and casts. values: the numbers of each value, as the program had them.
        unseen: values that were written by what nobody saw. homes: value that was written over another one -> that one,
            or what that one was written over.
    """

    def __init__(self, calls: Sequence[DispatcherCall], sources: Mapping[int, Sources]) -> None:
        self.calls: list[GraphCall] = []
        self.values: dict[ValueKey, Tensor] = {}
        self.unseen: set[ValueKey] = set()
        self.homes: dict[ValueKey, ValueKey] = {}
        self._step = 0
        self._writes: dict[str, set[ValueKey]] = {}
        self._add_all(calls, sources, {}, None)

    def _add_all(
        self, calls: Sequence[DispatcherCall], sources: Mapping[int, Sources],
        earlier: dict[int, tuple[Sequence[ValueUse], Sequence[Tensor]]], number: int | None,
    ) -> None:  # fmt: skip
        """Add calls.

        Args:
            calls: in order. sources: of their operands. number: of the compiled graph that they are of; None for none.
            earlier: number of a call -> what its results are, and their numbers; added to.
        """
        for call in calls:
            if call.covered or kind_of(call) == "silent":
                continue
            rows = zip(call.tensors, sources[call.number], strict=True)
            operands = tuple(self._find(tensor, source, earlier) for tensor, source in rows)
            own = call.number if number is None else number
            add = self._unfold if isinstance(call.op, GraphRegion) else self._add
            earlier[call.number] = tuple(add(call, operands, own)), call.results

    def _find(
        self, tensor: Tensor, source: Source, earlier: Mapping[int, tuple[Sequence[ValueUse], Sequence[Tensor]]]
    ) -> ValueUse:  # fmt: skip
        """What an operand is."""
        writings, geometry = source
        if not writings or tensor.layout != torch.strided:
            return self._find_there(tensor, is_seen=not self._step)
        for writing in reversed(writings):  # What a later one wrote over has other bits.
            if writing.number in earlier:
                operands, tensors = earlier[writing.number]
                result, base = tensors[writing.position], operands[writing.position]
                view = view_within(geometry, writing.geometry) if result.dtype == tensor.dtype else None
                if view is not None and (result is tensor or same_bits(view.take(result), tensor)):
                    self._step = max(self._step, writing.step)
                    return ValueUse(base.key, view.inside(base.view), base.is_copy)
        return self._find_there(tensor, is_seen=False)

    def _find_there(self, tensor: Tensor, *, is_seen: bool) -> ValueUse:
        """Numbers that were there before, or that a call of an earlier step has left."""
        order = sorted(range(tensor.dim()), key=lambda i: -tensor.stride()[i]) if tensor.layout == torch.strided else []
        base = tensor.permute(order).contiguous()
        strides = tuple(base.stride(order.index(i)) for i in range(tensor.dim()))
        view = view_within(
            MemoryPlace(tuple(tensor.shape), strides, 0), MemoryPlace(tuple(base.shape), tuple(base.stride()), 0)
        )
        assert view is not None
        digest = digest_of(base)
        writes = self._writes.get(digest, set()) if self._step else set()
        key = max(writes, default=(THERE, digest))
        if key not in self.values:
            self.values[key] = base
            self.unseen |= set() if is_seen else {key}
        return ValueUse(key, view)

    def _add(self, call: DispatcherCall, operands: Sequence[ValueUse], number: int) -> Iterator[ValueUse]:
        """Add a call; gives what its results are."""
        source = find_copied(call)
        if source is not None:
            key, base, _ = operands[source]
            shape = tuple(call.results[0].shape)
            in_order = base.is_in_order or shape == base.shape
            own = (
                ElementView.whole(shape).inside(base)
                if in_order
                else ElementView.of_places(base.find_places().reshape(shape))
            )
            if own.is_in_order:
                self._note_written(key, call, call.results[0])
            yield ValueUse(key, own, is_copy=True)
            return
        rows = []
        for part, positions in split_lists(call):
            its = [operands[i] for i in positions]
            keys = [(len(self.calls), i) for i in range(len(part.results))]
            args, kwargs = pytree.tree_unflatten(list(part.leaves), part.structure)
            for key, tensor in zip(keys, find_written(part.op, args, kwargs), strict=False):
                place = next(i for i, each in enumerate(part.tensors) if each is tensor)
                self.homes[key] = key if its[place].is_copy else self.homes.get(its[place].key, its[place].key)
            self.calls.append(GraphCall(part, tuple(its), number, self._step))
            for key, y in zip(keys, part.results, strict=True):
                self.values[key] = y
                self._note_written(key, part, y)
            rows.append([ValueUse(key, ElementView.whole(tuple(self.values[key].shape))) for key in keys])
        yield from (row[i] for i in range(len(rows[0])) for row in rows)

    def _note_written(self, key: ValueKey, call: DispatcherCall, result: Tensor) -> None:
        if getattr(getattr(call.op, "_schema", None), "is_mutable", False):
            self._writes.setdefault(digest_of(result.contiguous()), set()).add(key)

    def _unfold(self, call: DispatcherCall, operands: Sequence[ValueUse], number: int) -> Iterator[ValueUse]:
        """Add the calls of a compiled graph; gives what its results are."""
        calls, sources, results = unfold(call)
        earlier: dict[int, tuple[Sequence[ValueUse], Sequence[Tensor]]] = {BEFORE: (operands, call.tensors)}
        self._add_all(calls, sources, earlier, number)
        yield from (self._find(tensor, source, earlier) for tensor, source in results)


def find_copied(call: DispatcherCall) -> int | None:
    """The position, among the tensors of a call, of the one whose value it gives; None where it gives another one."""
    packet: Any = getattr(call.op, "overloadpacket", None)
    position = _SAME.get(packet)
    if position is None or position >= len(call.tensors):
        return None
    source, result = call.tensors[position], call.results[0]
    keeps = source.dtype == result.dtype or (is_floating(result) and result.is_complex() >= source.is_complex())
    return position if keeps and source.numel() == result.numel() else None


def digest_of(tensor: Tensor) -> str:
    """Of the shape and the numbers of a tensor, which two formats may have in common."""
    plain = tensor.detach().cpu()
    if plain.dtype.is_complex:
        plain = torch.view_as_real(plain.resolve_conj())
    wide = (
        plain.double()
        if plain.dtype.is_floating_point
        else plain.long()
        if not plain.is_quantized
        else plain.int_repr()
    )
    return hashlib.sha1(repr(tuple(tensor.shape)).encode() + wide.contiguous().numpy().tobytes()).hexdigest()
