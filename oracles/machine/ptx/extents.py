"""Where the elements of an operand are, by its shape and strides, however many there are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...op.declaration import Tensor
from .formats import Lanes


@dataclass(frozen=True)
class Extent:
    """An operand in memory.

    Attributes:
        name: for messages. first: the byte where its first element begins. item: bytes of an element.
        shape, strides: of its axes; strides in bytes.
    """

    name: str
    first: int
    item: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor, name: str = "", base: int = 0) -> Extent:
        """Those of a tensor whose storage begins at `base`."""
        item = tensor.element_size()
        strides = tuple(int(stride) * item for stride in tensor.stride())
        return cls(name, base + int(tensor.storage_offset()) * item, item, tuple(map(int, tensor.shape)), strides)

    @property
    def count(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def behind(self) -> int:
        """The byte behind its last element."""
        if not self.count:
            return self.first
        return self.first + self.item + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    @property
    def is_dense(self) -> bool:
        """Whether between its first byte and its last one there are no others, and none of two elements."""
        return self.behind - self.first == self.count * self.item and self._apart

    def holds(self, at: Lanes) -> Lanes:
        """Whether bytes are of an element; of elements that lie over each other, whatever lies between them is, too."""
        inside = np.asarray((at >= self.first) & (at < self.behind))
        return inside if self.is_dense or not self._apart else inside & (self._divide(at)[1] < self.item)

    def index(self, at: Lanes, axis: int) -> Lanes:
        """The index along an axis of the elements to which bytes belong."""
        return self._divide(at)[0].get(axis, np.zeros(np.shape(at), np.int64))

    def places(self, row: int) -> Lanes:
        """Where the elements of a row, along axis 0, begin."""
        at: Any = np.int64(self.first + row * self.strides[0])
        for n, stride in zip(self.shape[1:], self.strides[1:], strict=True):
            at = np.add.outer(at, np.arange(n) * stride)
        return np.ravel(at)

    def _divide(self, at: Lanes) -> tuple[dict[int, Lanes], Lanes]:
        """Indices along the axes, from the longest stride to the shortest, and the bytes that are left over."""
        rest, indices = at - self.first, dict[int, Lanes]()
        for axis in self._axes:
            indices[axis] = np.clip(rest // self.strides[axis], 0, self.shape[axis] - 1)
            rest = rest - indices[axis] * self.strides[axis]
        return indices, rest

    @property
    def _axes(self) -> Sequence[int]:
        moving = [i for i, (n, s) in enumerate(zip(self.shape, self.strides, strict=True)) if n > 1 and s > 0]
        return sorted(moving, key=lambda i: -self.strides[i])

    @property
    def _apart(self) -> bool:
        """Whether along each axis the elements lie behind all that the axes of shorter strides reach."""
        reach = self.item
        for axis in reversed(self._axes):
            if self.strides[axis] < reach:
                return False
            reach += (self.shape[axis] - 1) * self.strides[axis]
        return True


def nearest_operand(operands: list[tuple[int, int, str]], address: int) -> list[str]:
    """Where an address is, as seen from the operand that is nearest to it: a line, or none.

    Args:
        operands: the first byte of each, the one behind it, and its name.
    """
    rows = [(max(start - address, address - end + 1, 0), start, end, name) for start, end, name in operands]
    if not rows:
        return []
    away, start, end, name = min(rows)
    where = f"{start - address} bytes before" if address < start else f"{address - end} bytes behind the end of"
    return [f"nearest operand: {name}; the address is {where if away else 'within'} it, which has {end - start} bytes"]
