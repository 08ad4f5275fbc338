"""Layouts of tensors in memory: strides for a shape, and equal values with given strides."""

from __future__ import annotations

import contextlib
import enum
import math
import mmap
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
import torch

from ...oracles.machine.reserved import UNFILLED, repeat_rows, untouched
from ...oracles.op.bits import same_bits
from .arguments import Tensor
from .results import elements_of, overlaps, overlaps_itself

#: Elements between the rows of a tensor that is cut out of a wider one.
_GAP = 8
#: In elements, from the first row to the last of a tensor that an offset in 32 bits cannot reach; and at most so many
#: rows lie so, because each takes a page of memory.
_BEYOND, _ROWS = 2**31, 2**12
#: Gaps are filled wherever memory has so many times the elements of the views in it, and so many more, at most; else
#: so many elements of each, which move no view to another alignment.
_TIMES, _FEW, _GUARD = 16, 2**16, 64


class MemoryLayout(enum.StrEnum):
    """How a tensor lies in memory."""

    ROWS = "rows cut out of a wider tensor"
    STEPPED = "every second element"
    TRANSPOSED = "transposed"
    EXPANDED = "expanded along axis 0"
    FAR = "2^31 elements from the first row to the last"


class DestinationLayout(enum.StrEnum):
    """How what a call writes its outputs into lies in memory; the names are those of `MemoryLayout`."""

    ROWS = "destinations that are rows cut out of a wider tensor"
    TRANSPOSED = "destinations transposed"


AnyLayout = MemoryLayout | DestinationLayout


def strides_of(layout: MemoryLayout, shape: Sequence[int]) -> list[int]:
    """The strides of a shape in a layout; in STEPPED where the shape has fewer axes than the layout needs."""
    if not shape:
        return []
    if layout is MemoryLayout.EXPANDED:
        return [0, *_dense(shape)[1:]]
    if layout is MemoryLayout.FAR:
        apart = -(-_BEYOND // (16 * max(shape[0] - 1, 1))) * 16
        return [apart if 1 < shape[0] <= _ROWS else _dense(shape)[0], *_dense(shape)[1:]]
    if layout is MemoryLayout.STEPPED or len(shape) < 2:
        return [2 * stride for stride in _dense(shape)]
    if layout is MemoryLayout.ROWS:
        return _dense([*shape[:-1], shape[-1] + _GAP])
    strides = _dense([*shape[:-2], shape[-1], shape[-2]])
    return [*strides[:-2], strides[-1], strides[-2]]


def strides_of_input(layout: MemoryLayout, tensor: Tensor, writes: bool = False) -> list[int]:
    """The strides of an input in a layout; what has unequal rows, or is written, is STEPPED in place of EXPANDED.

    A layout changes no values: integers may be offsets, which increase, and a mask has rows of its own. Of what is
    written nobody can want that all rows are one.
    """
    if layout is MemoryLayout.EXPANDED and tensor.ndim:
        stays = writes or not same_bits(tensor, tensor[:1].expand(tensor.shape))
        layout = MemoryLayout.STEPPED if stays else layout
    return strides_of(layout, tensor.shape)


def _dense(shape: Sequence[int]) -> list[int]:
    return list(torch.empty(tuple(shape), device="meta").stride())


class Placing(msgspec.Struct, frozen=True):
    """Where the tensor arguments of a call lie.

    Attributes:
        strides: of each; empty where all are contiguous.
        memories: of each the number of its memory, which others may share, and its first element there; empty where
            each has memory of its own.
        destinations: name of the `MemoryLayout` of what the call writes its outputs into; empty for contiguous.
        rows: how many rows those have that are `repeated`, each the ones that are there again and again.
    """

    strides: list[list[int]] = []
    memories: list[tuple[int, int]] = []
    destinations: str = ""
    rows: int = 0
    repeated: list[bool] = []


def is_far(tensor: Tensor) -> bool:
    """Whether a tensor is so spread that what lies between its elements is memory which nobody could afford twice."""
    return _extent(tensor.shape, tensor.stride()) > _TIMES * tensor.numel() + _FEW


def placing_of(
    tensors: Sequence[Tensor], layout: AnyLayout | None, writes: Callable[[], Collection[Any]],
    dense: Collection[int] = (),
) -> Placing:  # fmt: skip
    """Where tensors lie in a layout; None for as they lie themselves, also where they share memory.

    What is written lies in no memory in which several elements are one, and shares none that another argument has.

    Args:
        tensors: the arguments of a call. layout: of them or of its destinations. writes: positions that it writes.
        dense: positions of those that no layout changes.
    """
    if isinstance(layout, MemoryLayout):
        places, pairs = writes() if layout is MemoryLayout.EXPANDED else (), enumerate(tensors)
        return Placing([_dense(t.shape) if i in dense else strides_of_input(layout, t, i in places) for i, t in pairs])
    name, starts = layout.name if layout else "", [int(t.storage_offset()) for t in tensors]
    keys = [(t.untyped_storage().data_ptr(), t.dtype) if t.numel() else (i, None) for i, t in enumerate(tensors)]
    firsts = [min(start for start, other in zip(starts, keys, strict=True) if other == key) for key in keys]
    memories = [(keys.index(key), start - first) for key, start, first in zip(keys, starts, firsts, strict=True)]
    shared = len({*keys}) < len(keys)
    if not shared and all(t.is_contiguous() for t in tensors):
        return Placing(destinations=name)
    places = writes()
    strides = [_dense(t.shape) if i in places and overlaps_itself(t) else [*t.stride()] for i, t in enumerate(tensors)]
    apart = not shared or any(i in places for pair in overlaps(tensors) for i in pair)
    return Placing(strides, [] if apart else memories, name)


def place_all(tensors: Sequence[Tensor], placing: Placing) -> list[Tensor]:
    """Copies of tensors in new memory, as a placing says."""
    if placing.rows:
        pairs = zip(tensors, placing.repeated, strict=True)
        return [repeat_rows(t, placing.rows) if again else t for t, again in pairs]
    views: dict[int, dict[int, Any]] = {}
    for i, (number, start) in enumerate(placing.memories or [(i, 0) for i in range(len(tensors))]):
        views.setdefault(number, {})[i] = tensors[i], placing.strides[i], start
    placed = {i: t for each in views.values() for i, t in zip(each, _place_together([*each.values()]), strict=True)}
    return [placed[i] for i in range(len(tensors))]


def place(tensor: Tensor, strides: Sequence[int], offset: int = 0) -> Tensor:
    """A copy of a tensor in new memory with these strides; the gaps contain NaN, or one of the tensor's integers.

    The copy begins after `offset` elements. Along an axis of stride 0 it has the values of the first index. Of gaps
    that are long beside what is between them only the ends are filled, and the rest costs no memory.
    """
    return _place_together([(tensor, strides, offset)])[0]


def place_each(tensors: Sequence[Tensor], strides: Sequence[Sequence[int]]) -> list[Tensor]:
    """Copies of tensors with these strides each; without any strides the tensors as they are."""
    return [place(t, own) for t, own in zip(tensors, strides, strict=True)] if strides else list(tensors)


def _place_together(views: Sequence[tuple[Tensor, Sequence[int], int]]) -> list[Tensor]:
    """Copies in one new memory of tensors of one dtype, with strides and an offset each."""
    tensor = views[0][0]
    if not tensor.numel():
        return [each for each, _, _ in views]
    sizes = [[1 if s == 0 else n for n, s in zip(t.shape, strides, strict=True)] for t, strides, _ in views]
    ends = [offset + _extent(n, s) for n, (_, s, offset) in zip(sizes, views, strict=True)]
    firsts = [t[tuple(slice(0, n) for n in own)] for own, (t, _, _) in zip(sizes, views, strict=True)]
    filler = float("nan") if tensor.dtype.is_floating_point else firsts[0].reshape(-1)[0].item()
    start = 0
    if max(ends) <= _TIMES * sum(map(math.prod, sizes)) + _FEW:
        memory = torch.full((max(ends),), filler, dtype=tensor.dtype, device=tensor.device)
    else:
        start = _GUARD
        count = start + max(ends) + _GUARD
        memory = untouched(count, tensor.dtype) if tensor.device.type == "cpu" else tensor.new_empty(count)
        for own, (_, strides, offset) in zip(sizes, views, strict=True):
            _fill_around(memory, own, strides, start + offset, filler)
    placed = []
    for first, own, (t, strides, offset) in zip(firsts, sizes, views, strict=True):
        offset += start
        view = memory.as_strided(own, list(strides), offset)
        try:
            view.copy_(first)
        except RuntimeError:  # torch writes no elements that overlap; those that do so here have one value
            whole = getattr(torch, f"int{8 * t.itemsize}")
            memory.view(whole)[elements_of(own, strides, offset).to(memory.device)] = first.contiguous().view(whole)
        placed.append(view.expand(t.shape))
    return placed


def _extent(sizes: Sequence[int], strides: Sequence[int]) -> int:
    return 1 + sum((n - 1) * stride for n, stride in zip(sizes, strides, strict=True))


def can_be_far(tensors: Sequence[Tensor]) -> bool:
    """Whether some of the tensors have rows that can lie far apart, and the system maps twice the memory for that."""
    strides = [strides_of(MemoryLayout.FAR, t.shape) for t in tensors]
    sizes = [_extent(t.shape, own) * t.itemsize for t, own in zip(tensors, strides, strict=True) if t.numel()]
    far = any(own != _dense(t.shape) for t, own in zip(tensors, strides, strict=True))
    if not far or any(t.device.type != "cpu" for t in tensors):
        return False
    with contextlib.suppress(OSError):
        mmap.mmap(-1, 2 * sum(sizes), flags=UNFILLED).close()
        return True
    return False


def _fill_around(memory: Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int, filler: float) -> None:
    """Fill the gaps of a view that are short beside what lies between, and the ends of the others."""
    axes = sorted((stride, n) for n, stride in zip(sizes, strides, strict=True) if n > 1)
    count = extent = 1
    while axes and extent + (axes[0][1] - 1) * axes[0][0] <= _TIMES * count * axes[0][1]:
        stride, n = axes.pop(0)
        count, extent = count * n, extent + (n - 1) * stride
    guard = min(_GUARD, (axes[0][0] - extent) // 2 if axes else _GUARD)
    if guard >= 0:
        sizes, strides = [n for _, n in axes], [stride for stride, _ in axes]
        memory.as_strided([*sizes, extent + 2 * guard], [*strides, 1], offset - guard).fill_(filler)
