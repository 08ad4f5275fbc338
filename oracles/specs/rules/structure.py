"""Aten operations that move elements, or make constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ....reference.array import Array, constant
from .images.convolution import insert_zeros
from .table import MOVES, REPEATING, RULES, Rule, enter_move, overloads

aten = torch.ops.aten


def _expand(x: Any, shape: Sequence[int], **kwargs: Any) -> Any:
    padded = (1,) * (len(shape) - np.ndim(x)) + np.shape(x)
    full = tuple(n if m == -1 else m for n, m in zip(padded, shape, strict=True))
    return np.broadcast_to(np.reshape(x, padded), full)


def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return x[(slice(None),) * (dim % np.ndim(x)) + (slice(start, end, step),)]


def _select(x: Any, dim: int, index: int) -> Any:
    return x[(slice(None),) * (dim % np.ndim(x)) + (index,)]


def _squeeze(x: Any, dim: Any = None) -> Any:
    dims = range(np.ndim(x)) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = tuple(d for d in dims if np.shape(x)[d] == 1)
    return np.squeeze(x, axis=axes) if axes else x


def _fill_with(value: float) -> Rule:
    return lambda shape, **kwargs: np.full(tuple(shape), value)


def _split(x: Any, size: Any, dim: int = 0) -> list[Any]:
    length = np.shape(x)[dim]
    sizes = [min(size, length - i) for i in range(0, length, size)] if isinstance(size, int) else size
    ends = np.cumsum(sizes)
    return [_slice(x, dim, int(end) - n, int(end)) for end, n in zip(ends, sizes, strict=True)]


def _unbind(x: Any, dim: int = 0) -> list[Any]:
    return [_select(x, dim, i) for i in range(np.shape(x)[dim])]


def _by_places(operation: Any) -> Rule:
    """An operation that moves elements, done by torch on the places of the elements."""

    def rule(x: Any, *args: Any, **kwargs: Any) -> Any:
        places = operation(torch.arange(np.size(x)).reshape(np.shape(x)), *args, **kwargs).numpy()
        return np.reshape(x, (-1 if np.size(x) else 0,))[places]

    return rule


def _pad(x: Any, pads: Sequence[int], value: float = 0.0) -> Any:
    axes = len(pads) // 2
    if value == 0.0 and np.size(x):
        # Whoever convolves what was padded may leave out the products with these zeros.
        return insert_zeros(x, pads[-2::-2], pads[::-2], (1,) * axes)
    places = aten.constant_pad_nd(torch.arange(np.size(x)).reshape(np.shape(x)), list(pads), -1).numpy()
    if not np.size(x):
        return np.full(places.shape, float(value))
    inside = np.reshape(x, (-1,))[np.maximum(places, 0)]
    return np.where(places >= 0, inside, value) if (places < 0).any() else inside


def _copy(to: Any, x: Any, *args: Any) -> Any:
    return np.broadcast_to(x, np.shape(to))


def _triangle(keep: Any) -> Rule:
    def rule(x: Any, diagonal: int = 0) -> Any:
        inside = keep(np.ones(np.shape(x), dtype=bool), diagonal)
        triangle = np.where(inside, x, 0.0)
        if isinstance(triangle, Array):
            constant(triangle).leave_out(~inside)
        return triangle

    return rule


# The elements of a copy are stored already, as those of its operand are.
MOVES.update(overloads("clone alias lift_fresh lift_fresh_copy contiguous positive"))
enter_move(constant, aten.detach.default)

#: Moves for which NumPy has no function.
for _operation in (
    aten.flip.default, aten.roll.default, aten.repeat.default, aten.unfold.default, aten.as_strided.default,
    aten.diagonal.default, aten.pixel_shuffle.default, aten.pixel_unshuffle.default, aten.channel_shuffle.default,
    aten.movedim.int, aten.rot90.default, aten.repeat_interleave.self_int,
):  # fmt: skip
    enter_move(_by_places(_operation), _operation)

for _names, _rule in (
    ("view reshape _unsafe_view view_copy _reshape_copy", lambda x, shape: np.reshape(x, tuple(shape))),
    ("expand expand_copy", _expand),
    ("squeeze squeeze.dim squeeze.dims squeeze_copy", _squeeze),
    ("permute permute_copy", lambda x, dims: np.transpose(x, tuple(dims))),
    ("transpose.int", np.swapaxes),
    ("t", np.transpose),
    ("unsqueeze", lambda x, dim: np.expand_dims(x, dim)),
    ("slice.Tensor", _slice),
    ("select.int", _select),
    ("split.Tensor split_with_sizes", _split),
    ("unbind.int", _unbind),
    ("tril", _triangle(np.tril)),
    ("triu", _triangle(np.triu)),
):
    enter_move(_rule, *overloads(_names))
REPEATING.update(overloads("expand expand_copy unfold as_strided repeat repeat_interleave.self_int"))
RULES.update(
    {
        aten.constant_pad_nd.default: _pad,
        aten.copy.default: _copy,
        aten.copy_.default: _copy,
        aten.ones_like.default: lambda x, **kwargs: np.ones(np.shape(x)),
        aten.zeros_like.default: lambda x, **kwargs: np.zeros(np.shape(x)),
        aten.full_like.default: lambda x, value, **kwargs: np.full(np.shape(x), float(value)),
        aten.full.default: lambda shape, value, **kwargs: np.full(tuple(shape), float(value)),
        aten.ones.default: _fill_with(1.0),
        aten.zeros.default: _fill_with(0.0),
        aten.scalar_tensor.default: lambda value, **kwargs: np.float64(value),
        aten.cat.default: lambda tensors, dim=0: np.concatenate(tensors, axis=dim),
        aten.stack.default: lambda tensors, dim=0: np.stack(tensors, axis=dim),
    }
)
