"""Which calls wrote the memory that an operand of another one lies in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .call import Tensor


class MemoryPlace(NamedTuple):
    """Where a tensor lies in its storage, and whether it is seen conjugated or negated."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    is_conj: bool = False
    is_neg: bool = False


class Writing(NamedTuple):
    """What wrote a storage: the call, the position of its result, the step, and the result's place in memory."""

    number: int
    position: int
    step: int
    geometry: MemoryPlace


#: What wrote the storage of a tensor, the latest last, and where the tensor lies in it.
Source = tuple[tuple[Writing, ...], MemoryPlace]


#: A tensor, where it lies, and the derivative of a number by it.
Seed = tuple[Tensor, Source, Tensor]
#: Of each tensor among the operands of a call.
Sources = list[Source]


class Root(NamedTuple):
    """A tensor whose error is followed: who wrote it and where it lies, and each element's weight, in its dtype."""

    source: Source
    weight: Tensor


class StorageWriters:
    """The writers of every storage that are not written over, and those of the operands of every call.

    Attributes:
        sources: number of a call -> of its operands. roots: what `backward` was called on.
        formers: a result, by the number of its call and its position -> what had written other elements of its memory.
        strange: numbers of calls with an operand that an operation gave which was not recorded.
    """

    def __init__(self) -> None:
        self.sources: dict[int, Sources] = {}
        self.roots: list[Root] = []
        self.formers: dict[tuple[int, int], Writing] = {}
        self.strange: set[int] = set()
        self._latest: dict[int, tuple[Writing, ...]] = {}
        #: They keep the numbers of storages from being given again.
        self._references: dict[int, StorageWeakRef] = {}

    def source_of(self, tensor: Tensor) -> Source:
        """What has written the memory of a tensor so far."""
        return self._latest.get(_storage_of(tensor), ()), geometry_of(tensor)

    def note_operands(self, number: int, step: int, tensors: Sequence[Tensor]) -> None:
        """Remember who wrote the operands of a call in the same step."""
        self.sources[number] = [self._source_in(step, tensor) for tensor in tensors]
        if any(not source[0] and _has_history(t) for t, source in zip(tensors, self.sources[number], strict=True)):
            self.strange.add(number)

    def note_root(self, step: int, tensor: Tensor, weight: Tensor) -> None:
        """Remember what a backward pass begins with."""
        self.roots.append(Root(self._source_in(step, tensor), weight))

    def _source_in(self, step: int, tensor: Tensor) -> Source:
        writings, place = self.source_of(tensor)
        return tuple(each for each in writings if each.step == step), place

    def note_results(self, number: int, step: int, tensors: Sequence[Tensor]) -> None:
        """Remember what a call wrote."""
        for position, tensor in enumerate(tensors):
            place, key = geometry_of(tensor), _storage_of(tensor)
            if key and key not in self._references:
                self._references[key] = StorageWeakRef(tensor.untyped_storage())
            before = () if _fills_storage(tensor) else self._latest.get(key, ())
            earlier = [each for each in before if each.geometry != place and each.step == step]
            if earlier:
                self.formers[number, position] = earlier[-1]
            self._latest[key] = (*earlier, Writing(number, position, step, place))


def geometry_of(tensor: Tensor) -> MemoryPlace:
    """Where a tensor lies in its storage."""
    if tensor.layout != torch.strided:
        return MemoryPlace((), (), 0)
    shape, strides, offset = tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())
    return MemoryPlace(shape, strides, offset, tensor.is_conj(), tensor.is_neg())


def _has_history(tensor: Tensor) -> bool:
    """Whether autograd knows of an operation that gave the memory of a tensor."""
    base = tensor._base if tensor._is_view() else tensor
    return base is not None and base.grad_fn is not None


def _storage_of(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout == torch.strided else 0


def _fills_storage(tensor: Tensor) -> bool:
    """Whether a result is all of its memory, so that nothing is left of what was there."""
    return tensor.layout != torch.strided or tensor.nbytes >= tensor.untyped_storage().nbytes()
