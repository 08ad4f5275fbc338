"""Layouts of tensors in memory: strides for a shape, and equal values with given strides."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import torch

from .arguments import Tensor

#: Elements between the rows of a tensor that is cut out of a wider one.
_GAP = 8


class MemoryLayout(enum.StrEnum):
    """How a tensor lies in memory."""

    ROWS = "rows cut out of a wider tensor"
    STEPPED = "every second element"
    TRANSPOSED = "transposed"
    EXPANDED = "expanded along axis 0"


def strides_of(layout: MemoryLayout, shape: Sequence[int]) -> list[int]:
    """The strides of a shape in a layout; of fewer axes than the layout needs, those of every second element."""
    if not shape:
        return []
    if layout is MemoryLayout.EXPANDED:
        return [0, *_dense(shape)[1:]]
    if layout is MemoryLayout.STEPPED or len(shape) < 2:
        return [2 * stride for stride in _dense(shape)]
    if layout is MemoryLayout.ROWS:
        return _dense([*shape[:-1], shape[-1] + _GAP])
    strides = _dense([*shape[:-2], shape[-1], shape[-2]])
    return [*strides[:-2], strides[-1], strides[-2]]


def strides_of_input(layout: MemoryLayout, tensor: Tensor) -> list[int]:
    """The strides of an input in a layout; integers, which offsets would be no more once all are equal, are stepped."""
    stays = layout is MemoryLayout.EXPANDED and not tensor.is_floating_point()
    return strides_of(MemoryLayout.STEPPED if stays else layout, tensor.shape)


def _dense(shape: Sequence[int]) -> list[int]:
    return list(torch.empty(tuple(shape), device="meta").stride())


def own_strides(tensors: Sequence[Tensor]) -> list[list[int]]:
    """The strides of tensors; none where all of them are contiguous."""
    return [] if all(t.is_contiguous() for t in tensors) else [list(t.stride()) for t in tensors]


def place(tensor: Tensor, strides: Sequence[int], offset: int = 0) -> Tensor:
    """Equal values in new memory with these strides; what lies around them is NaN, or an integer that the tensor has.

    They begin after `offset` elements. Where an axis has stride 0, the values along it are those of its first index.
    Strides by which elements would overlap otherwise give a contiguous tensor.
    """
    if not tensor.numel():
        return tensor
    sizes = [1 if stride == 0 else n for n, stride in zip(tensor.shape, strides, strict=True)]
    first = tensor[tuple(slice(0, n) for n in sizes)]
    extent = 1 + sum((n - 1) * stride for n, stride in zip(sizes, strides, strict=True))
    filler = float("nan") if tensor.dtype.is_floating_point else first.reshape(-1)[0].item()
    memory = torch.full((offset + extent,), filler, dtype=tensor.dtype, device=tensor.device)
    view = memory.as_strided(sizes, list(strides), offset)
    try:
        view.copy_(first)
    except RuntimeError:  # elements that overlap cannot be written
        return tensor
    return view.expand(tensor.shape)
