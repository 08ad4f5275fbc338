"""Aten operations that read or write at places that integers name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ....reference.array import Array, amax, attach, choose, constant, scatter
from ....reference.condition import condition
from .norms import vector_norm
from .table import REPEATING, enter, enter_moves, may_store, overloads

aten = torch.ops.aten


def _flat(x: Any) -> Any:
    return np.reshape(x, (np.size(x),))


def _index_along(x: Any, dim: int, index: Any) -> tuple[Any, ...]:
    """The index of x[..., index, ...] at a dim."""
    return (slice(None),) * (dim % max(np.ndim(x), 1)) + (index,)


def _grid(shape: Sequence[int], dim: int, index: Any) -> tuple[Any, ...]:
    """The index of every element of `index` where along `dim` it counts, and along the others its own place."""
    grid: list[Any] = list(np.ogrid[tuple(slice(n) for n in np.shape(index))]) if shape else [0]
    if not shape:
        return ()
    grid[dim % len(shape)] = np.asarray(index)
    return tuple(grid)


def _list_indices(indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else np.asarray(i) for i in indices)


def _read_gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    return x[_grid(np.shape(x), dim, index)] if np.ndim(x) else np.broadcast_to(x, np.shape(index))


def _masked_select(x: Any, mask: Any) -> Any:
    shape = np.broadcast_shapes(np.shape(x), np.shape(mask))
    return np.broadcast_to(x, shape)[np.broadcast_to(mask, shape)]


def _embedding(weight: Any, indices: Any, padding_idx: int = -1, by_frequency: bool = False, *unused: Any) -> Any:
    indices = np.asarray(indices)
    rows = _less_often(weight[indices], indices) if by_frequency else weight[indices]
    padding = indices == padding_idx
    # A row of padding has its value, but no gradient flows into it.
    return np.where(padding[..., None], constant(rows), rows) if padding.any() else rows


def _less_often(rows: Any, indices: Any) -> Any:
    """Rows of an embedding, with slopes divided by how often each of them is looked up."""
    _, group, count = np.unique(indices, return_inverse=True, return_counts=True)
    return attach(rows, rows / count[np.reshape(group, np.shape(indices))][..., None], always=True)


def _write_elements(x: Any, source: Any, view_of: Callable[[Any], Any]) -> Any:
    """x with elements of `source` in place of some of its own.

    Where several elements go to one place any of them may stay there, and torch gives each of them the slope.

    Args:
        view_of: of an array of places of x's shape, the places that the elements of `source` go to.
    """
    places = np.arange(np.size(x))
    targets = np.ravel(view_of(places.reshape(np.shape(x))))
    new = np.size(x) + np.arange(targets.size)
    elements = np.concatenate([_flat(x), _flat(source)])
    places[targets] = new
    pairs, value = _of_several(elements, places, targets, new)
    places[pairs] = np.size(elements) + np.arange(pairs.size)
    return (np.concatenate([elements, value]) if pairs.size else elements)[places.reshape(np.shape(x))]


def _of_several(elements: Any, places: Any, targets: Any, new: Any) -> tuple[Any, Any]:
    """Where several elements are written to one place: those places, and what is there, which is any of them.

    Args:
        elements, targets, new: what is written, where to, and where it is among the elements.
        places: of what was written last.
    """
    pairs, group, count = np.unique(targets, return_inverse=True, return_counts=True)
    open_ = count > 1
    if not open_.any() or not isinstance(elements, Array):
        return pairs[:0], elements[:0]
    last = places[pairs]
    value = elements[last[open_]]
    order = np.argsort(group, kind="stable")
    rank = np.arange(order.size) - np.repeat(np.cumsum(count) - count, count)
    for i in range(int(count.max()) - 1):
        each, other = order[rank == i], last.copy()
        other[group[each]] = new[each]
        either = condition(np.zeros(value.shape, dtype=bool), (other != last)[open_], constant(elements))
        value = choose(either, elements[other[open_]], value, share=0.0)
    return pairs[open_], value


def _add_at_index(x: Any, source: Any, index: Any) -> Any:
    """x with the elements of `source` added at an index, in any order."""
    places = np.arange(np.size(x)).reshape(np.shape(x))
    targets = np.broadcast_to(places[index], np.shape(source))
    every = np.concatenate([np.ravel(places), np.ravel(targets)])
    total = np.concatenate([_flat(x), _flat(source)])
    return np.reshape(scatter(total, (every,), (np.size(x),), in_place=True), np.shape(x))


def _fill(value: Any, shape: Sequence[int]) -> Any:
    return np.broadcast_to(value if np.ndim(value) else np.asarray(value, dtype=np.float64), tuple(shape))


def _read_scatter(x: Any, dim: int, index: Any, source: Any, reduce: str | None = None) -> Any:
    if reduce is not None:
        return _scatter_reduce(
            x, dim, index, _fill(source, np.shape(index)), {"add": "sum", "multiply": "prod"}[reduce]
        )
    if not np.ndim(x):
        return np.reshape(source, ())
    source = _of_index(source, index) if np.ndim(source) else _fill(source, np.shape(index))
    return _write_elements(x, source, lambda places: places[_grid(np.shape(x), dim, index)])


def _of_index(source: Any, index: Any) -> Any:
    """The part of a source that an index of scatter uses."""
    return source[tuple(slice(n) for n in np.shape(index))]


def _scatter_add(x: Any, dim: int, index: Any, source: Any) -> Any:
    if not np.ndim(x):
        return x + np.reshape(source, ())
    return _add_at_index(x, _of_index(source, index), _grid(np.shape(x), dim, index))


def _index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    index = _list_indices(indices)
    shape = np.shape(np.empty(np.shape(x))[index])
    values = np.broadcast_to(values, shape)
    if accumulate:
        return _add_at_index(x, values, index)
    return _write_elements(x, values, lambda places: places[index])


def _put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    return np.reshape(_index_put(_flat(x), [np.ravel(index)], np.ravel(source), accumulate), np.shape(x))


def _masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    shape = np.broadcast_shapes(np.shape(x), np.shape(mask))
    x, marks = np.broadcast_to(x, shape), np.broadcast_to(mask, shape)
    elements = _flat(source)[: int(np.count_nonzero(marks))]
    return _write_elements(x, elements, lambda places: places[marks])


def _index_add(x: Any, dim: int, index: Any, source: Any, alpha: float = 1) -> Any:
    source = source if alpha == 1 else source * alpha
    if not np.ndim(x):
        return x + np.reshape(source, ())
    return _add_at_index(x, source, _index_along(x, dim, np.asarray(index)))


def _bincount(index: Any, weights: Any = None, minlength: int = 0) -> Any:
    index = np.asarray(index)
    if weights is None:
        return np.bincount(index, minlength=minlength)
    return scatter(weights, (index,), (max(minlength, int(index.max(initial=-1)) + 1),), in_place=True)


def _index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    if not np.ndim(x):
        return np.reshape(source, ())
    return _write_elements(x, source, lambda places: places[_index_along(x, dim, np.asarray(index))])


def _index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    hits = np.zeros(np.shape(x), dtype=bool)
    hits[_index_along(x, dim, np.asarray(index)) if np.ndim(x) else ()] = np.size(index) > 0
    return np.where(hits, value, x)


def _by_view(view: Any) -> Callable[..., Any]:
    """x with a source in place of what a view of it shows."""

    def rule(x: Any, source: Any, *args: Any) -> Any:
        return _write_elements(x, source, lambda places: view(torch.from_numpy(places), *args).numpy())

    return rule


def _scatter_reduce(x: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True) -> Any:
    """Elements that go to one place are reduced there, with what is there or without it."""
    source = _of_index(source, index)
    grid = _grid(np.shape(x), dim, index)
    hits = np.zeros(np.shape(x))
    np.add.at(hits, grid, 1.0)
    count = hits + 1.0 if include_self else np.maximum(hits, 1.0)
    start = x if include_self else np.where(hits > 0, {"prod": 1.0, "sum": 0.0, "mean": 0.0}.get(reduce, x), x)
    if reduce in ("sum", "mean"):
        total = (
            _add_at_index(x, source, grid)
            if include_self
            else np.where(hits > 0, _add_at_index(start * 0.0, source, grid), x)
        )
        return total if reduce == "sum" else np.where(count > 1, total / count, total)
    places = np.ravel(np.arange(np.size(x)).reshape(np.shape(x))[grid])
    rows: list[list[int]] = [[i] if include_self or not hit else [] for i, hit in enumerate(np.ravel(hits))]
    for position, place in enumerate(np.broadcast_to(places, (np.size(source),))):
        rows[place].append(np.size(x) + position)
    return np.reshape(_of_rows(np.concatenate([_flat(x), _flat(source)]), rows, _REDUCED[reduce]), np.shape(x))


_REDUCED: dict[str, Callable[[Any], Any]] = {
    "prod": lambda rows: np.prod(rows, axis=1),
    "amax": lambda rows: amax(rows, 1),
    "amin": lambda rows: -amax(-rows, 1),
}


def _of_rows(elements: Any, rows: Sequence[Sequence[int]], reduce: Callable[[Any], Any]) -> Any:
    """Each row of places of elements, reduced; rows of one length are reduced together."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    order, parts = [], []
    for length in np.unique(lengths):
        places = np.flatnonzero(lengths == length)
        parts.append(reduce(elements[np.array([rows[i] for i in places.tolist()])]))
        order.append(places)
    return np.concatenate(parts)[np.argsort(np.concatenate(order))] if parts else elements[:0]


def _index_reduce(x: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True) -> Any:
    """As `_scatter_reduce`, of whole slices."""
    shape = np.shape(source)
    spread = np.reshape(np.asarray(index), [-1 if i == dim % max(len(shape), 1) else 1 for i in range(len(shape))])
    return _scatter_reduce(x, dim, np.broadcast_to(spread, shape), source, reduce, include_self)


def _renorm_rows(weight: Any, indices: Any, most: float, order: float) -> Any:
    """Rows of an embedding that are looked up, and are longer than they may be, made as long."""
    rows = np.unique(np.asarray(indices))
    picked = weight[rows]
    length = may_store(vector_norm(picked, order, [1], True))  # torch takes it of a row, by an operation of its own
    return _index_copy(weight, 0, rows, np.where(length > most, picked * (most / (length + 1e-7)), picked))


def _embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Any, ...]:  # fmt: skip
    """Sums, means or maxima (`mode` 0, 1, 2) of rows; a bag goes from its offset to the next one."""
    indices, ends = np.asarray(indices), np.asarray(offsets)
    bags = len(ends) - 1 if include_last_offset else len(ends)
    bag = np.searchsorted(ends[:bags], np.arange(len(indices)), side="right") - 1
    in_bag = indices != padding_idx
    rows, bag = weight[indices[in_bag]], bag[in_bag]
    rows = _less_often(rows, indices[in_bag]) if scale_grad_by_freq else rows
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[in_bag][:, None]
    counts = np.bincount(bag, minlength=bags)
    if mode == 2:
        # Of equal elements any may take the slope: torch takes one, and says nowhere which.
        most = [np.max(rows[np.flatnonzero(bag == i)], axis=0) if counts[i] else 0.0 * weight[0] for i in range(bags)]
        return np.stack(most), bag, counts, bag
    total = scatter(rows, (bag,), (bags, np.shape(weight)[1]), in_place=True)
    return may_store(total) / np.maximum(counts, 1.0)[:, None] if mode == 1 else total, bag, counts, bag


enter_moves(
    {
        "index.Tensor _unsafe_index.Tensor": lambda x, indices: x[_list_indices(indices)],
        "gather": _read_gather,
        "index_select": lambda x, dim, index: x[_index_along(x, dim, np.ravel(index))] if np.ndim(x) else x,
        "take": lambda x, index: _flat(x)[np.asarray(index)],
        "masked_select": _masked_select,
        "embedding": _embedding,
        "scatter.src": _read_scatter,
        "index_copy": _index_copy,
        "slice_scatter": _by_view(aten.slice),
        "select_scatter": _by_view(aten.select),
        "diagonal_scatter": _by_view(aten.diagonal),
        "as_strided_scatter": _by_view(aten.as_strided),
    }
)
REPEATING.update(overloads("index.Tensor _unsafe_index.Tensor gather index_select take embedding"))
enter(
    {
        "index_fill.int_Scalar index_fill.int_Tensor": _index_fill,
        "scatter.value scatter.reduce scatter.value_reduce": _read_scatter,
        "scatter_add": _scatter_add,
        "scatter_reduce.two": _scatter_reduce,
        "index_put _unsafe_index_put": _index_put,
        "put": _put,
        "masked_scatter": _masked_scatter,
        "bincount": _bincount,
        "index_add": _index_add,
        "index_reduce": _index_reduce,
        "embedding_renorm": _renorm_rows,
        "_embedding_bag _embedding_bag_forward_only": _embedding_bag,
    }
)
