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
    """The strides of a shape in a layout; in STEPPED where the shape has fewer axes than the layout needs."""
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
    """The strides of an input in a layout; integers are STEPPED in place of EXPANDED.

    Expanded integers are all equal, and could no longer be offsets, which increase.
    """
    stays = layout is MemoryLayout.EXPANDED and not tensor.is_floating_point()
    return strides_of(MemoryLayout.STEPPED if stays else layout, tensor.shape)


def _dense(shape: Sequence[int]) -> list[int]:
    return list(torch.empty(tuple(shape), device="meta").stride())


def own_strides(tensors: Sequence[Tensor]) -> list[list[int]]:
    """The strides of tensors; none where all of them are contiguous."""
    return [] if all(t.is_contiguous() for t in tensors) else [list(t.stride()) for t in tensors]


def place(tensor: Tensor, strides: Sequence[int], offset: int = 0) -> Tensor:
    """A copy of a tensor in new memory with these strides; the gaps contain NaN, or one of the tensor's integers.

    The copy begins after `offset` elements. Along an axis of stride 0 it has the values of the first index. Where other
    strides make elements overlap, the tensor itself is returned.
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
