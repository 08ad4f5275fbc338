"""Aten operations that move elements, or make constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ....reference.array import Array, constant
from .images.convolution import insert_zeros
from .table import MOVES, REPEATING, RULES, Rule, enter, enter_moves, overloads

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


def _split(x: Any, size: Any, dim: int = 0) -> list[Any]:
    length = np.shape(x)[dim]
    sizes = [min(size, length - i) for i in range(0, length, size)] if isinstance(size, int) else size
    ends = np.cumsum(sizes)
    return [_slice(x, dim, int(end) - n, int(end)) for end, n in zip(ends, sizes, strict=True)]


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
REPEATING.update(overloads("expand expand_copy unfold as_strided repeat repeat_interleave.self_int"))
enter_moves(
    {
        "detach": constant,
        "view reshape _unsafe_view view_copy _reshape_copy": lambda x, shape: np.reshape(x, tuple(shape)),
        "expand expand_copy": _expand,
        "squeeze squeeze.dim squeeze.dims squeeze_copy": _squeeze,
        "permute permute_copy": lambda x, dims: np.transpose(x, tuple(dims)),
        "transpose.int": np.swapaxes,
        "t": np.transpose,
        "unsqueeze": lambda x, dim: np.expand_dims(x, dim),
        "slice.Tensor": _slice,
        "select.int": _select,
        "split.Tensor split_with_sizes": _split,
        "unbind.int": lambda x, dim=0: [_select(x, dim, i) for i in range(np.shape(x)[dim])],
        "tril": _triangle(np.tril),
        "triu": _triangle(np.triu),
    }
)
#: Moves for which NumPy has no function.
for _operation in overloads(
    "flip roll repeat unfold as_strided diagonal pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle"
    " movedim.int rot90 repeat_interleave.self_int"
):
    MOVES.add(_operation)
    RULES[_operation] = _by_places(_operation)
enter(
    {
        "constant_pad_nd": _pad,
        "copy copy_": lambda to, x, *args: np.broadcast_to(x, np.shape(to)),
        "ones_like": lambda x, **kwargs: np.ones(np.shape(x)),
        "zeros_like": lambda x, **kwargs: np.zeros(np.shape(x)),
        "full_like": lambda x, value, **kwargs: np.full(np.shape(x), float(value)),
        "full": lambda shape, value, **kwargs: np.full(tuple(shape), float(value)),
        "ones": lambda shape, **kwargs: np.ones(tuple(shape)),
        "zeros": lambda shape, **kwargs: np.zeros(tuple(shape)),
        "scalar_tensor": lambda value, **kwargs: np.float64(value),
        "cat": lambda tensors, dim=0: np.concatenate(tensors, axis=dim),
        "stack": lambda tensors, dim=0: np.stack(tensors, axis=dim),
    }
)
