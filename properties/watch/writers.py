"""Which calls wrote the memory that an operand of another one lies in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from .call import Tensor

#: Where a tensor lies in its storage: shape, strides, offset.
Geometry = tuple[tuple[int, ...], tuple[int, ...], int]


class Writing(NamedTuple):
    """What wrote a storage: the call, the position of its result, the step, and the result's place in memory."""

    number: int
    position: int
    step: int
    geometry: Geometry


#: What wrote the storage of a tensor, the latest last, and where the tensor lies in it.
Source = tuple[tuple[Writing, ...], Geometry]


#: A tensor, where it lies, and the derivative of a number by it.
Seed = tuple[Tensor, Source, Tensor]
#: Of each tensor among the operands of a call.
Sources = list[Source]


class StorageWriters:
    """The writers of every storage that are not written over, and those of the operands of every call.

    Attributes:
        sources: number of a call -> of its operands.
    """

    def __init__(self) -> None:
        self.sources: dict[int, Sources] = {}
        self._latest: dict[int, tuple[Writing, ...]] = {}

    def source_of(self, tensor: Tensor) -> Source:
        """What has written the memory of a tensor so far."""
        return self._latest.get(_storage_of(tensor), ()), geometry_of(tensor)

    def note_operands(self, number: int, step: int, tensors: Sequence[Tensor]) -> None:
        """Remember who wrote the operands of a call in the same step."""
        sources = [self.source_of(tensor) for tensor in tensors]
        self.sources[number] = [(tuple(w for w in writings if w.step == step), place) for writings, place in sources]

    def note_results(self, number: int, step: int, tensors: Sequence[Tensor]) -> None:
        """Remember what a call wrote."""
        for position, tensor in enumerate(tensors):
            own, key = Writing(number, position, step, geometry_of(tensor)), _storage_of(tensor)
            earlier = () if _fills_storage(tensor) else self._latest.get(key, ())
            self._latest[key] = (*(w for w in earlier if w.geometry != own.geometry and w.step == step), own)


def geometry_of(tensor: Tensor) -> Geometry:
    """Where a tensor lies in its storage."""
    if tensor.layout != torch.strided:
        return (), (), 0
    return tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())


def _storage_of(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout == torch.strided else 0


def _fills_storage(tensor: Tensor) -> bool:
    """Whether a result is all of its memory, so that nothing is left of what was there."""
    return tensor.layout != torch.strided or tensor.nbytes >= tensor.untyped_storage().nbytes()
