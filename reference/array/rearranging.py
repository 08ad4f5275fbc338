"""The words of a formula that put arrays together, take them apart, or lay their elements out anew."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .kind import WORDS, Array, scatter
from .shapes import normalize_axes, reshape


def _by_positions(layout: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPy function that only moves or repeats elements: it is asked where each of them goes."""

    def rule(x: Array, *args: Any, **kwargs: Any) -> Any:
        places = layout(np.arange(x.size).reshape(x.shape), *args, **kwargs)
        return reshape(x, (x.size,))[places]

    return rule


def _along(x: Array, axis: int, part: Any) -> Array:
    return x[(slice(None),) * (axis % x.ndim) + (part,)]


def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return reshape(_roll(reshape(a, (a.size,)), shift, 0), a.shape)
    shifts, axes = np.broadcast_arrays(shift, axis)
    for by, along in zip(shifts.ravel().tolist(), axes.ravel().tolist(), strict=True):
        first = -by % max(a.shape[along], 1)
        if first:
            a = np.concatenate([_along(a, along, slice(first, None)), _along(a, along, slice(None, first))], axis=along)
    return a


def _flip(m: Array, axis: Any = None) -> Array:
    axes = normalize_axes(axis, m.ndim)
    return m[tuple(slice(None, None, -1 if i in axes else None) for i in range(m.ndim))]


def _pad(array: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0.0, **others: Any) -> Any:
    widths = np.broadcast_to(pad_width, (array.ndim, 2)).tolist()
    values = np.broadcast_to(constant_values, (array.ndim, 2)).tolist()
    for axis, (before, after) in enumerate(widths):
        if mode != "constant":
            places = np.pad(np.arange(array.shape[axis]), (before, after), mode, **others)  # type: ignore[call-overload]
            array = _along(array, axis, places)
        elif before or after:
            shapes = [(*array.shape[:axis], n, *array.shape[axis + 1 :]) for n in (before, after)]
            first, last = (np.full(shape, float(v)) for shape, v in zip(shapes, values[axis], strict=True))
            array = np.concatenate([first, array, last], axis=axis)
    return array


def _repeat(a: Array, repeats: Any, axis: Any = None) -> Array:
    flat = reshape(a, (a.size,)) if axis is None else a
    along = 0 if axis is None else axis
    return _along(flat, along, np.repeat(np.arange(flat.shape[along]), repeats))


def _array_split(ary: Array, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    parts = np.array_split(np.arange(ary.shape[axis]), indices_or_sections)
    ends = np.cumsum([0, *(len(part) for part in parts)])
    return [_along(ary, axis, slice(int(a), int(b))) for a, b in itertools.pairwise(ends)]


def _split(ary: Array, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    np.split(np.arange(ary.shape[axis]), indices_or_sections)  # raises where the parts are not equal
    return _array_split(ary, indices_or_sections, axis)


def _atleast(grow: Callable[..., Any]) -> Callable[..., Any]:
    def rule(*arrays: Any) -> Any:
        grown = [np.reshape(x, grow(np.empty(np.shape(x))).shape) for x in arrays]
        return grown[0] if len(grown) == 1 else tuple(grown)

    return rule


def _hstack(tup: Sequence[Any]) -> Any:
    rows = [np.atleast_1d(x) for x in tup]
    return np.concatenate(rows, axis=0 if np.ndim(rows[0]) == 1 else 1)


def _column_stack(tup: Sequence[Any]) -> Any:
    return np.concatenate([np.reshape(x, (-1, 1)) if np.ndim(x) < 2 else x for x in tup], axis=1)


def _diag(v: Any, k: int = 0) -> Any:
    if v.ndim == 2:
        return np.diagonal(v, k)
    places = np.arange(v.shape[0])
    size = v.shape[0] + abs(k)
    return scatter(v, (places + max(-k, 0), places + max(k, 0)), (size, size))


def _part_of_matrix(upper: bool) -> Callable[..., Any]:
    def rule(m: Any, k: int = 0) -> Any:
        rows, columns = m.shape[-2:]
        below = np.tri(rows, columns, k - 1 if upper else k, dtype=bool)
        return np.where(below, 0.0, m) if upper else np.where(below, m, 0.0)

    return rule


def _diff(a: Array, n: int = 1, axis: int = -1) -> Array:
    for _ in range(n):
        a = _along(a, axis, slice(1, None)) - _along(a, axis, slice(None, -1))
    return a


def _broadcast_arrays(*args: Any, subok: bool = False) -> tuple[Any, ...]:
    shape = np.broadcast_shapes(*(np.shape(x) for x in args))
    return tuple(np.broadcast_to(x, shape) for x in args)


def _meshgrid(*xi: Any, indexing: str = "xy") -> tuple[Any, ...]:
    ndim = len(xi)
    lengths = [np.size(x) for x in xi]
    grids = [
        np.broadcast_to(np.reshape(x, [-1 if i == k else 1 for i in range(ndim)]), lengths) for k, x in enumerate(xi)
    ]
    return tuple(np.swapaxes(grid, 0, 1) for grid in grids) if indexing == "xy" and ndim > 1 else tuple(grids)


WORDS.update(
    {
        np.roll: _roll, np.flip: _flip, np.fliplr: lambda m: _flip(m, 1), np.flipud: lambda m: _flip(m, 0),
        np.rot90: _by_positions(np.rot90), np.tile: _by_positions(np.tile), np.resize: _by_positions(np.resize),
        np.pad: _pad, np.repeat: _repeat, np.split: _split, np.array_split: _array_split,
        np.hsplit: lambda ary, sections: _split(ary, sections, 1 if ary.ndim > 1 else 0),
        np.vsplit: lambda ary, sections: _split(ary, sections, 0), np.atleast_1d: _atleast(np.atleast_1d),
        np.atleast_2d: _atleast(np.atleast_2d), np.atleast_3d: _atleast(np.atleast_3d),
        np.vstack: lambda tup: np.concatenate([np.atleast_2d(x) for x in tup], axis=0), np.hstack: _hstack,
        np.dstack: lambda tup: np.concatenate([np.atleast_3d(x) for x in tup], axis=2), np.column_stack: _column_stack,
        np.diag: _diag, np.diagflat: lambda v, k=0: _diag(reshape(v, (v.size,)), k),
        np.tril: _part_of_matrix(upper=False), np.triu: _part_of_matrix(upper=True), np.diff: _diff,
        np.meshgrid: _meshgrid, np.ediff1d: lambda ary: _diff(reshape(ary, (ary.size,))),
        np.broadcast_arrays: _broadcast_arrays,
        np.append: lambda arr, values, axis=None: np.concatenate(
            [arr, values] if axis is not None else [np.ravel(arr), np.ravel(values)], axis=axis or 0
        ),
    }
)  # fmt: skip
if hasattr(np, "unstack"):  # from NumPy 2.1 on
    WORDS[np.unstack] = lambda x, axis=0: tuple(_along(x, axis, i) for i in range(x.shape[axis]))
