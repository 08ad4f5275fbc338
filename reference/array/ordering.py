"""The words of a formula that sort, and that choose positions by comparing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..choice import Choice
from ..ranks import places
from .kind import WORDS, Array, bind, constant
from .shapes import normalize_axes, reshape


def _sort(x: Array, axis: int | None = -1, kind: Any = None, *, stable: Any = None) -> Any:
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    return bind("sort", (x,), {"axis": axis % x.ndim}) if x.ndim else x


def sorting_order(x: Array, axis: int = -1, descending: bool = False, start: int = 0, end: int | None = None) -> Choice:
    """The indices that sort along an axis: any that rounding leaves possible, none of them twice.

    Args:
        x: an array. axis: along which it is sorted. descending: from the largest on.
        start, end: the range of sorted places whose indices are asked for.
    """
    base = constant(x)
    axis %= x.ndim
    end = np.shape(x)[axis] if end is None else end
    shape = (*np.shape(x)[:axis], end - start, *np.shape(x)[axis + 1 :])

    def accepts(indices: Any) -> Any:
        return np.moveaxis(
            _fit_places(_places(base, axis, descending), np.moveaxis(indices, axis, -1), start), -1, axis
        )

    def choose() -> tuple[Any, Any]:
        order = np.argsort(np.moveaxis(base.comparable(), axis, -1), axis=-1, kind="stable")
        order = order[..., ::-1] if descending else order
        first, last = (np.take_along_axis(each, order, -1) for each in _places(base, axis, descending))
        likely, sure = (np.moveaxis(each[..., start:end], -1, axis) for each in (order, first == last))
        return likely, sure

    return Choice(shape, accepts, choose)


def _places(base: Array, axis: int, descending: bool) -> tuple[Any, Any]:
    first, last = places(*(np.moveaxis(each, axis, -1) for each in base.ends()))
    count = first.shape[-1]
    return (count - 1 - last, count - 1 - first) if descending else (first, last)


def _fit_places(ends: tuple[Any, Any], indices: Any, start: int) -> Any:
    """Whether the element of every index may take its place, and takes no other."""
    first, last = ends
    in_range = (indices >= 0) & (indices < first.shape[-1])
    at = np.where(in_range, indices, 0)
    where = start + np.arange(indices.shape[-1])
    fits = (np.take_along_axis(first, at, -1) <= where) & (where <= np.take_along_axis(last, at, -1))
    order = np.argsort(indices, axis=-1, kind="stable")
    ascending = np.take_along_axis(indices, order, -1)
    twice = np.zeros(indices.shape, dtype=bool)
    twice[..., 1:] = ascending[..., 1:] == ascending[..., :-1]
    twice[..., :-1] |= twice[..., 1:]
    return in_range & fits & ~np.take_along_axis(twice, np.argsort(order, axis=-1), -1)


def largest_at(x: Array, axis: Any = None, keepdims: bool = False) -> Choice:
    """The index of the largest element along an axis; of all of them in order without one."""
    base = constant(x)
    axes = normalize_axes(axis, x.ndim)
    full_shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    shape = full_shape if keepdims else tuple(n for i, n in enumerate(full_shape) if i not in axes)
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    lengths = (*(x.shape[i] for i in rest), -1)

    def rows(values: Any) -> Any:
        return np.transpose(values, (*rest, *axes)).reshape(lengths)

    def accepts(indices: Any) -> Any:
        possible = rows(base.largest(axes)[1])
        at = np.reshape(indices, (*possible.shape[:-1], 1))
        in_range = (at >= 0) & (at < possible.shape[-1])
        return (in_range & np.take_along_axis(possible, np.where(in_range, at, 0), -1)).reshape(shape)

    def choose() -> tuple[Any, Any]:
        possible = rows(base.largest(axes)[1])
        order = np.argsort(rows(base.comparable()), axis=-1, kind="stable")[..., -1]
        return order.reshape(shape), (possible.sum(axis=-1) == 1).reshape(shape)

    return Choice(shape, accepts, choose)


def _argmax(x: Array, axis: Any = None, *, keepdims: bool = False) -> Choice:
    return largest_at(x, axis, keepdims)


def _argmin(x: Array, axis: Any = None, *, keepdims: bool = False) -> Choice:
    return largest_at(-x, axis, keepdims)


def _argsort(x: Array, axis: int = -1, kind: Any = None, *, stable: Any = None) -> Choice:
    return sorting_order(x, axis)


WORDS.update({np.sort: _sort, np.argmax: _argmax, np.argmin: _argmin, np.argsort: _argsort})
