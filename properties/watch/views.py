"""Which elements of a value a tensor has: views of memory, as places among the elements of what a call gave.

The same elements have the same view, however torch laid them out: so views of two programs can be compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .call import Tensor
from .writers import MemoryPlace


@dataclass(frozen=True, slots=True)
class ElementView:
    """Elements of a value in order of its dimensions.

    Attributes:
        shape: of the tensor. strides, offset: of its elements among those of the value, in their order.
        places: the place of every element, as bytes, where no strides say it.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...] = ()
    offset: int = 0
    places: bytes = b""

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> ElementView:
        """All elements of a value, in its order."""
        return cls(shape, _steps(shape))

    @classmethod
    def of_places(cls, places: Any) -> ElementView:
        """The view of an array of places, with strides where there are some."""
        shape, origin = places.shape, (0,) * places.ndim
        if not places.size:
            return cls.whole(shape)
        offset = int(places[origin])
        strides = tuple(
            0 if n == 1 else int(places[(*origin[:i], 1, *origin[i + 1 :])]) - offset for i, n in enumerate(shape)
        )
        if np.array_equal(find_places(MemoryPlace(shape, strides, offset)), places):
            return cls(shape, strides, offset)
        return cls(shape, (), 0, np.ascontiguousarray(places, np.int64).tobytes())

    @property
    def is_in_order(self) -> bool:
        """Whether the elements lie beside each other, from the first."""
        return not self.places and self.offset == 0 and self.strides == _steps(self.shape)

    def inside(self, base: ElementView) -> ElementView:
        """The view of a view: these elements of those of `base`, in what `base` is a view of."""
        if base.is_in_order:
            return self
        if self.is_in_order and self.shape == base.shape:
            return base
        return ElementView.of_places(base.find_places().reshape(-1)[self.find_places()])

    def find_places(self) -> Any:
        """The place of every element."""
        if self.places:
            return np.frombuffer(self.places, np.int64).reshape(self.shape)
        return find_places(MemoryPlace(self.shape, self.strides, self.offset))

    def take(self, value: Tensor) -> Tensor:
        """The elements of a value."""
        if self.is_in_order and value.numel() == math.prod(self.shape):
            return value.reshape(self.shape)
        places = torch.from_numpy(self.find_places().reshape(-1).copy()).to(value.device)
        return value.reshape(-1)[places].reshape(self.shape)


def view_within(geometry: MemoryPlace, base: MemoryPlace) -> ElementView | None:
    """The elements of a tensor among those of another one in the same memory; None where it has some beside them."""
    if base[1] == _strides(base[0]) and geometry == base:
        return ElementView.whole(geometry[0])
    places, own = find_places(geometry), find_places(base).reshape(-1)
    order = np.argsort(own, kind="stable")
    index = np.searchsorted(own, places, sorter=order).clip(max=max(len(own) - 1, 0))
    if places.size and (not len(own) or not np.array_equal(own[order[index]], places)):
        return None
    return ElementView.of_places(order[index] if places.size else places)


def find_places(geometry: MemoryPlace) -> Any:
    """The places in memory of the elements of a tensor."""
    shape, strides, offset = geometry[:3]
    places = np.full((1,) * len(shape), offset, np.int64)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        places = places + (np.arange(size) * stride).reshape(-1, *[1] * (len(shape) - axis - 1))
    return places


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of a tensor in order, as torch has them."""
    return tuple(math.prod(max(n, 1) for n in shape[i + 1 :]) for i in range(len(shape)))


def _steps(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The same, where a dimension of one element has none."""
    return tuple(0 if n == 1 else step for n, step in zip(shape, _strides(shape), strict=True))
