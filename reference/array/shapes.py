"""The words of a formula that move elements: what they return is exact in every reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .kind import WORDS, Array, bind


def normalize_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """`axis` as NumPy takes it (None, an int, a tuple) as sorted non-negative ints."""
    if axis is None:
        return tuple(range(ndim))
    axes = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    return tuple(sorted(int(a) % ndim for a in axes))


def reshape(x: Array, shape: Any) -> Array:
    wanted: tuple[int, ...] = tuple(int(n) for n in np.ravel(shape))
    if -1 in wanted:
        known = int(np.prod([n for n in wanted if n != -1], dtype=np.int64))
        wanted = tuple(x.size // known if n == -1 else n for n in wanted)
    return x if wanted == x.shape else bind("reshape", (x,), {"shape": wanted})


def _transpose(x: Array, axes: Any = None) -> Array:
    order = tuple(reversed(range(x.ndim))) if axes is None else tuple(a % x.ndim for a in axes)
    return x if order == tuple(range(x.ndim)) else bind("transpose", (x,), {"axes": order})


def _broadcast_to(x: Array, shape: Any) -> Array:
    wanted = tuple(int(n) for n in shape)
    return x if wanted == x.shape else bind("broadcast", (x,), {"shape": wanted})


def _moveaxis(x: Array, source: int, destination: int) -> Array:
    order = [i for i in range(x.ndim) if i != source % x.ndim]
    order.insert(destination % x.ndim, source % x.ndim)
    return _transpose(x, order)


def _swapaxes(x: Array, a: int, b: int) -> Array:
    order = list(range(x.ndim))
    order[a], order[b] = order[b], order[a]
    return _transpose(x, order)


def _expand_dims(x: Array, axis: int) -> Array:
    where = axis % (x.ndim + 1)
    return reshape(x, (*x.shape[:where], 1, *x.shape[where:]))


def _squeeze(x: Array, axis: Any = None) -> Array:
    axes = normalize_axes(axis, x.ndim) if axis is not None else range(x.ndim)
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if n != 1 or i not in axes))


def _concatenate(arrays: Sequence[Any], axis: int = 0) -> Array:
    ndim = next(a.ndim for a in arrays if isinstance(a, Array))
    return bind("concatenate", tuple(arrays), {"axis": axis % ndim})


def _stack(arrays: Sequence[Any], axis: int = 0) -> Array:
    return _concatenate([np.expand_dims(a, axis) for a in arrays], axis)


def _take(x: Array, indices: Any, axis: int) -> Array:
    return x[(slice(None),) * (axis % x.ndim) + (np.asarray(indices),)]


def _take_along_axis(x: Array, indices: Any, axis: int) -> Array:
    # One index array per axis: along the others each element stays at its own place, so they count 0, 1, 2, ...
    grid = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    grid[axis % x.ndim] = np.asarray(indices)
    return x[tuple(grid)]


def diagonal(x: Array) -> Array:
    along = np.arange(min(x.shape[-2:]))
    return x[..., along, along]


def _zeros_like(x: Array) -> Array:
    return x.lift(np.zeros(x.shape))


WORDS.update(
    {
        np.reshape: reshape,
        np.ravel: lambda x: reshape(x, (x.size,)),
        np.transpose: _transpose,
        np.broadcast_to: _broadcast_to,
        np.moveaxis: _moveaxis,
        np.swapaxes: _swapaxes,
        np.expand_dims: _expand_dims,
        np.squeeze: _squeeze,
        np.concatenate: _concatenate,
        np.stack: _stack,
        np.take: _take,
        np.take_along_axis: _take_along_axis,
        np.diagonal: diagonal,
        np.zeros_like: _zeros_like,
        np.shape: lambda x: x.shape,
        np.ndim: lambda x: x.ndim,
        np.size: lambda x: x.size,
    }
)
