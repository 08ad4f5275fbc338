"""The words of a formula that move elements: what they return is exact in every reading."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
    lengths: tuple[int, ...] = tuple(map(int, shape if isinstance(shape, tuple) else np.ravel(shape)))
    if -1 in lengths:
        product = math.prod(n for n in lengths if n != -1)
        lengths = tuple(x.size // product if n == -1 else n for n in lengths)
    return x if lengths == x.shape else bind("reshape", (x,), {"shape": lengths})


def drop_axes(x: Array, axis: Any, keepdims: bool) -> Array:
    """A reduced array without the axes that have length 1 for it, unless they are to be kept."""
    axes = normalize_axes(axis, x.ndim)
    return x if keepdims else reshape(x, tuple(n for i, n in enumerate(x.shape) if i not in axes))


def _transpose(x: Array, axes: Any = None) -> Array:
    order = tuple(reversed(range(x.ndim))) if axes is None else tuple(a % x.ndim for a in axes)
    return x if order == tuple(range(x.ndim)) else bind("transpose", (x,), {"axes": order})


def _broadcast_to(x: Array, shape: Any) -> Array:
    lengths = tuple(int(n) for n in shape)
    return x if lengths == x.shape else bind("broadcast", (x,), {"shape": lengths})


def _numbers(axes: Any) -> tuple[int, ...]:
    return (int(axes),) if isinstance(axes, (int, np.integer)) else tuple(int(i) for i in axes)


def _moveaxis(a: Array, source: Any, destination: Any) -> Array:
    moved = [i % a.ndim for i in _numbers(source)]
    order = [i for i in range(a.ndim) if i not in moved]
    for place, axis in sorted(zip([i % a.ndim for i in _numbers(destination)], moved, strict=True)):
        order.insert(place, axis)
    return _transpose(a, order)


def _rollaxis(a: Array, axis: int, start: int = 0) -> Array:
    first, place = axis % a.ndim, start + a.ndim if start < 0 else start
    return _moveaxis(a, first, place - 1 if first < place else place)


def _swapaxes(x: Array, a: int, b: int) -> Array:
    order = list(range(x.ndim))
    order[a], order[b] = order[b], order[a]
    return _transpose(x, order)


def _expand_dims(a: Array, axis: Any) -> Array:
    ndim = a.ndim + len(_numbers(axis))
    new = [i % ndim for i in _numbers(axis)]
    lengths = iter(a.shape)
    return reshape(a, tuple(1 if i in new else next(lengths) for i in range(ndim)))


def _squeeze(x: Array, axis: Any = None) -> Array:
    axes = normalize_axes(axis, x.ndim) if axis is not None else range(x.ndim)
    return reshape(x, tuple(n for i, n in enumerate(x.shape) if n != 1 or i not in axes))


def _concatenate(arrays: Sequence[Any], axis: int = 0) -> Array:
    ndim = next(a.ndim for a in arrays if isinstance(a, Array))
    return bind("concatenate", tuple(arrays), {"axis": axis % ndim})


def _take(a: Array, indices: Any, axis: Any = None) -> Array:
    if axis is None:
        return reshape(a, (a.size,))[np.asarray(indices)]
    return a[(slice(None),) * (axis % a.ndim) + (np.asarray(indices),)]


def _take_along_axis(x: Array, indices: Any, axis: int) -> Array:
    # One index array per axis: along the others each element stays at its own place, so they count 0, 1, 2, ...
    grid = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    grid[axis % x.ndim] = np.asarray(indices)
    return x[tuple(grid)]


def _diagonal(a: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    matrices = _moveaxis(a, (axis1, axis2), (-2, -1))
    rows, columns = matrices.shape[-2:]
    along = np.arange(max(min(rows + min(offset, 0), columns - max(offset, 0)), 0))
    return matrices[..., along + max(-offset, 0), along + max(offset, 0)]


def diagonal(x: Array) -> Array:
    """The diagonals of matrices along the last two axes."""
    return _diagonal(x, 0, -2, -1)


def _fill_like(value: float) -> Callable[..., Array]:
    return lambda a, dtype=None, *, shape=None: a.lift(np.full(a.shape if shape is None else shape, value))


def _full_like(a: Any, fill_value: Any, dtype: Any = None, *, shape: Any = None) -> Any:
    lengths = np.shape(a) if shape is None else shape
    if isinstance(fill_value, Array):
        return _broadcast_to(fill_value, lengths)
    return a.lift(np.full(lengths, fill_value, dtype=np.float64))


WORDS.update(
    {
        np.reshape: reshape, np.ravel: lambda x, order="C": reshape(x, (x.size,)), np.transpose: _transpose,
        np.broadcast_to: _broadcast_to, np.moveaxis: _moveaxis, np.swapaxes: _swapaxes, np.expand_dims: _expand_dims,
        np.squeeze: _squeeze, np.concatenate: _concatenate,
        np.stack: lambda arrays, axis=0: _concatenate([np.expand_dims(a, axis) for a in arrays], axis), np.take: _take,
        np.take_along_axis: _take_along_axis, np.diagonal: _diagonal, np.zeros_like: _fill_like(0.0),
        np.ones_like: _fill_like(1.0), np.full_like: _full_like, np.rollaxis: _rollaxis, np.shape: lambda x: x.shape,
        np.ndim: lambda x: x.ndim, np.size: lambda x, axis=None: x.size if axis is None else x.shape[axis],
    }
)  # fmt: skip
