"""Operations that move elements, or reduce those of segments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

aten = torch.ops.aten


def _copy_view(name: str) -> Callable[..., Any]:
    """A copy of what a view gives."""
    view = getattr(aten, name)
    return lambda *args, **kwargs: pytree.tree_map(torch.clone, view(*args, **kwargs))


def _narrow_copy(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    return x.narrow(dim, start, length).clone()


def _between_zeros(g: Tensor, size: int, dim: int, start: int) -> Tensor:
    """What lies in a stretch of a dimension, and zeros in the rest; a write to places is read place by place."""
    before, after = list(g.shape), list(g.shape)
    before[dim], after[dim] = start, size - start - g.shape[dim]
    return torch.cat([g.new_zeros(before), g, g.new_zeros(after)], dim)


def _select_backward(g: Tensor, sizes: Sequence[int], dim: int, index: int) -> Tensor:
    return _between_zeros(g.unsqueeze(dim % len(sizes)), sizes[dim], dim % len(sizes), index % sizes[dim])


def _slice_backward(g: Tensor, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Tensor:
    if step != 1:
        whole: Tensor = aten.slice_scatter(g.new_zeros(sizes), g, dim, start, end, step)
        return whole
    first, _, _ = slice(start, end).indices(sizes[dim])
    return _between_zeros(g, sizes[dim], dim, first)


def _as_dense(x: Tensor, *_form: Any, **_how: Any) -> Tensor:
    """The same elements in another layout: of a sparse tensor the recording has a dense copy."""
    return x.clone()


def _angle(x: Tensor) -> Tensor:
    """0 or π, of real numbers."""
    if x.is_complex():
        return torch.angle(x)
    turned = torch.where(x < 0, math.pi, 0.0).to(x.dtype if x.is_floating_point() else torch.get_default_dtype())
    return torch.where(x.isnan(), x, turned) if x.is_floating_point() else turned


def _masked_scatter_backward(g: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """The cotangents at the places that were written, in order, and zeros for what was not written anywhere."""
    values = g[mask.expand(g.shape)]
    return torch.cat([values, g.new_zeros(math.prod(sizes) - len(values))]).reshape(sizes)


def _pack_padded_sequence(x: Tensor, lengths: Tensor, batch_first: bool) -> Tensor:
    """The rows of all sequences that have a step, one step after another; the longest sequence comes first."""
    steps = x.transpose(0, 1) if batch_first else x
    own = torch.arange(steps.shape[0])[:, None] < lengths.cpu()
    return steps[own]


_EMPTY = {"sum": 0.0, "mean": math.nan, "max": -math.inf, "min": math.inf, "prod": 1.0}
_REDUCE: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda part: part.sum(0),
    "mean": lambda part: part.mean(0),
    "max": lambda part: part.amax(0),
    "min": lambda part: part.amin(0),
    "prod": lambda part: part.prod(0),
}


def _segments(lengths: Tensor | None, offsets: Tensor | None) -> Iterator[list[tuple[int, int]]]:
    """Where the segments of each row begin and end."""
    numbers = lengths if lengths is not None else offsets
    assert numbers is not None
    for row in numbers.reshape(-1, numbers.shape[-1]).tolist():
        yield list(itertools.pairwise(row if lengths is None else itertools.accumulate(row, initial=0)))


def _segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: float | None = None,
) -> Tensor:  # fmt: skip
    """Each segment of consecutive rows, reduced, with the number that it begins with where there is one."""
    flat, results = data.reshape(-1, *data.shape[axis:]), []
    for row, segments in zip(flat, _segments(lengths, offsets), strict=True):
        for start, end in segments:
            part = row[start:end]
            if initial is not None and (reduce != "mean" or start == end):
                part = torch.cat([torch.full_like(row[:1], initial), part])
            if len(part):
                value = _REDUCE[reduce](part)
                if initial is not None and reduce == "mean" and start != end:
                    value = (part.sum(0) + initial) / (end - start)
            else:
                value = torch.full_like(row[0], _EMPTY[reduce])
            results.append(value)
    return torch.stack(results).reshape(*data.shape[:axis], -1, *data.shape[axis + 1 :])


def _segment_reduce_backward(
    g: Tensor, output: Tensor, data: Tensor, reduce: str, *, lengths: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, initial: float | None = None,
) -> Tensor:  # fmt: skip
    """From the data; elements that are largest together share the cotangent."""
    form: dict[str, Any] = {"lengths": lengths, "offsets": offsets, "axis": axis, "initial": initial}
    vjp: Any = torch.func.vjp
    gradient: Tensor = vjp(lambda x: _segment_reduce(x, reduce, **form), data)[1](g)[0]
    return gradient


STAND_INS: dict[str, Callable[..., Any]] = {
    **{
        f"{name}_copy{overload}": _copy_view(name)
        for name, overload in (
            ("as_strided", ""), ("detach", ""), ("select", ".int"), ("slice", ".Tensor"), ("split", ".Tensor"),
            ("unbind", ".int"), ("view", ".dtype"),
        )
    },
    **{f"_to_sparse{layout}": _as_dense for layout in ("", ".sparse_dim", "_csr", "_csc", "_bsr", "_bsc")},
    "_to_dense": _as_dense,
    "narrow_copy": _narrow_copy,
    "select_backward": _select_backward,
    "slice_backward": _slice_backward,
    "angle": _angle,
    "masked_scatter_backward": _masked_scatter_backward,
    "_pack_padded_sequence": _pack_padded_sequence,
    "segment_reduce": _segment_reduce,
    "_segment_reduce_backward": _segment_reduce_backward,
}  # fmt: skip
