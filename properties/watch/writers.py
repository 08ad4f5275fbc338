"""Which call wrote the memory that an operand of another one lies in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from .call import Tensor

#: Where a tensor lies in its storage: shape, strides, offset.
Geometry = tuple[tuple[int, ...], tuple[int, ...], int]


class Writing(NamedTuple):
    """What wrote a storage last: the call, the position of its result, the step, and the result's place in memory."""

    number: int
    position: int
    step: int
    geometry: Geometry


#: What wrote each tensor among the operands of a call, and where that operand lies in memory.
Sources = list[tuple[Writing | None, Geometry]]


class StorageWriters:
    """The latest writer of every storage, and the writers of the operands of every call.

    Attributes:
        sources: number of a call -> of its operands.
    """

    def __init__(self) -> None:
        self.sources: dict[int, Sources] = {}
        self._latest: dict[int, Writing] = {}

    def note_operands(self, number: int, step: int, tensors: Sequence[Tensor]) -> None:
        """Remember who wrote the operands of a call in the same step."""
        writings = [(self._latest.get(_storage_of(t)), _geometry_of(t)) for t in tensors]
        self.sources[number] = [(w if w is not None and w.step == step else None, place) for w, place in writings]

    def note_results(self, number: int, step: int, tensors: Sequence[Tensor]) -> None:
        """Remember what a call wrote."""
        for position, tensor in enumerate(tensors):
            self._latest[_storage_of(tensor)] = Writing(number, position, step, _geometry_of(tensor))


def _storage_of(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout == torch.strided else 0


def _geometry_of(tensor: Tensor) -> Geometry:
    if tensor.layout != torch.strided:
        return (), (), 0
    return tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())
