"""Aten operations that read or write at places that integers name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ....reference.array import amax, constant, scatter
from .norms import vector_norm
from .table import RULES, enter_move, overloads

aten = torch.ops.aten


def _flat(x: Any) -> Any:
    return np.reshape(x, (np.size(x),))


def _along(x: Any, dim: int, index: Any) -> tuple[Any, ...]:
    """The index of x[..., index, ...] at a dim."""
    return (slice(None),) * (dim % max(np.ndim(x), 1)) + (index,)


def _grid(shape: Sequence[int], dim: int, index: Any) -> tuple[Any, ...]:
    """The index of every element of `index` where along `dim` it counts, and along the others its own place."""
    grid: list[Any] = list(np.ogrid[tuple(slice(n) for n in np.shape(index))]) if shape else [0]
    if not shape:
        return ()
    grid[dim % len(shape)] = np.asarray(index)
    return tuple(grid)


def _listed(indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else np.asarray(i) for i in indices)


# ------------------------------------------------------------------------------------------------------- reading


def _index(x: Any, indices: Sequence[Any]) -> Any:
    return x[_listed(indices)]


def _gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    return x[_grid(np.shape(x), dim, index)] if np.ndim(x) else np.broadcast_to(x, np.shape(index))


def _index_select(x: Any, dim: int, index: Any) -> Any:
    return x[_along(x, dim, np.ravel(index))] if np.ndim(x) else x


def _take(x: Any, index: Any) -> Any:
    return _flat(x)[np.asarray(index)]


def _masked_select(x: Any, mask: Any) -> Any:
    shape = np.broadcast_shapes(np.shape(x), np.shape(mask))
    return np.broadcast_to(x, shape)[np.broadcast_to(mask, shape)]


def _embedding(weight: Any, indices: Any, padding_idx: int = -1, *unused: Any) -> Any:
    rows = weight[np.asarray(indices)]
    padding = np.asarray(indices) == padding_idx
    # A row of padding has its value, but no gradient flows into it.
    return np.where(padding[..., None], constant(rows), rows) if padding.any() else rows


# ------------------------------------------------------------------------------------------------------- writing


def _written(x: Any, source: Any, write: Callable[[Any, Any], None]) -> Any:
    """x with elements of `source` in place of some of its own.

    Args:
        write: given the places of x's elements, an array of x's shape, and those of the source's, writes the latter
            into the former as the operation would write the elements themselves.
    """
    places = np.arange(np.size(x)).reshape(np.shape(x))
    new = np.size(x) + np.arange(np.size(source)).reshape(np.shape(source))
    write(places, new)
    pieces = [_flat(x), _flat(source)]
    return np.concatenate(pieces)[places]


def _added(x: Any, source: Any, index: Any) -> Any:
    """x with the elements of `source` added at an index, in any order."""
    places = np.arange(np.size(x)).reshape(np.shape(x))
    targets = np.broadcast_to(places[index], np.shape(source))
    every = np.concatenate([np.ravel(places), np.ravel(targets)])
    total = np.concatenate([_flat(x), _flat(source)])
    return np.reshape(scatter(total, (every,), (np.size(x),), in_place=True), np.shape(x))


def _filled(value: Any, shape: Sequence[int]) -> Any:
    return np.broadcast_to(value if np.ndim(value) else np.asarray(value, dtype=np.float64), tuple(shape))


def _scatter(x: Any, dim: int, index: Any, source: Any, reduce: str | None = None) -> Any:
    if reduce is not None:
        return _scatter_reduce(
            x, dim, index, _filled(source, np.shape(index)), {"add": "sum", "multiply": "prod"}[reduce]
        )
    if not np.ndim(x):
        return np.reshape(source, ())
    source = _of_index(source, index) if np.ndim(source) else _filled(source, np.shape(index))
    return _written(x, source, lambda places, new: places.__setitem__(_grid(np.shape(x), dim, index), new))


def _of_index(source: Any, index: Any) -> Any:
    """The part of a source that an index of scatter uses."""
    return source[tuple(slice(n) for n in np.shape(index))]


def _scatter_add(x: Any, dim: int, index: Any, source: Any) -> Any:
    if not np.ndim(x):
        return x + np.reshape(source, ())
    return _added(x, _of_index(source, index), _grid(np.shape(x), dim, index))


def _index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    index = _listed(indices)
    shape = np.shape(np.empty(np.shape(x))[index])
    values = np.broadcast_to(values, shape)
    if accumulate:
        return _added(x, values, index)
    return _written(x, values, lambda places, new: places.__setitem__(index, new))


def _put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    return np.reshape(_index_put(_flat(x), [np.ravel(index)], np.ravel(source), accumulate), np.shape(x))


def _masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    chosen = np.broadcast_to(mask, np.shape(x))
    taken = _flat(source)[: int(np.count_nonzero(chosen))]
    return _written(x, taken, lambda places, new: places.__setitem__(chosen, new))


def _index_add(x: Any, dim: int, index: Any, source: Any, alpha: float = 1) -> Any:
    return _added(x, source if alpha == 1 else source * alpha, _along(x, dim, np.asarray(index)))


def _index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    return _written(x, source, lambda places, new: places.__setitem__(_along(x, dim, np.asarray(index)), new))


def _index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    chosen = np.zeros(np.shape(x), dtype=bool)
    chosen[_along(x, dim, np.asarray(index))] = True
    return np.where(chosen, value, x)


def _slice_scatter(x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return _written(x, source, lambda places, new: places.__setitem__(_along(x, dim, slice(start, end, step)), new))


def _select_scatter(x: Any, source: Any, dim: int, index: int) -> Any:
    return _written(x, source, lambda places, new: places.__setitem__(_along(x, dim, index), new))


def _by_view(view: Any) -> Callable[..., Any]:
    """x with a source in place of what a view of it shows."""

    def rule(x: Any, source: Any, *args: Any) -> Any:
        def write(places: Any, new: Any) -> None:
            view(torch.from_numpy(places), *args).copy_(torch.from_numpy(new))

        return _written(x, source, write)

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
        total = _added(x, source, grid) if include_self else np.where(hits > 0, _added(start * 0.0, source, grid), x)
        return total if reduce == "sum" else np.where(count > 1, total / count, total)
    places = np.ravel(np.arange(np.size(x)).reshape(np.shape(x))[grid])
    rows: list[list[int]] = [[] for _ in range(np.size(x))]
    for position, place in enumerate(np.broadcast_to(places, (np.size(source),))):
        rows[place].append(np.size(x) + position)
    # Each place gets a row of all that goes there; short rows repeat what they begin with, or take a one.
    longest = max(map(len, rows), default=0)
    table = [([i] if include_self or not row else []) + row for i, row in enumerate(rows)]
    if reduce == "prod":
        one = np.size(x) + np.size(source)
        index_of = np.array([row + [one] * (longest + 1 - len(row)) for row in table])
        factors = np.concatenate([_flat(x), _flat(source), np.ones(1)])[index_of]
        return np.reshape(np.prod(factors, axis=1), np.shape(x))
    index_of = np.array([row + [row[0]] * (longest + 1 - len(row)) for row in table])
    choices = np.concatenate([_flat(x), _flat(source)])[index_of]
    largest = amax(choices, 1) if reduce == "amax" else -amax(-choices, 1)
    return np.reshape(largest, np.shape(x))


def _index_reduce(x: Any, dim: int, index: Any, source: Any, reduce: str, include_self: bool = True) -> Any:
    """As `_scatter_reduce`, of whole slices."""
    shape = np.shape(source)
    spread = np.reshape(np.asarray(index), [-1 if i == dim % max(len(shape), 1) else 1 for i in range(len(shape))])
    return _scatter_reduce(x, dim, np.broadcast_to(spread, shape), source, reduce, include_self)


def _renormed(weight: Any, indices: Any, most: float, order: float) -> Any:
    """Rows of an embedding that are looked up, and are longer than they may be, made as long."""
    rows = np.unique(np.asarray(indices))
    picked = weight[rows]
    length = vector_norm(picked, order, [1], True)
    return _index_copy(weight, 0, rows, np.where(length > most, picked * (most / (length + 1e-7)), picked))


# ---------------------------------------------------------------------------------------------- bags of embeddings


def _embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Any, ...]:  # fmt: skip
    """Sums, means or maxima (`mode` 0, 1, 2) of rows; a bag goes from its offset to the next one."""
    indices, ends = np.asarray(indices), np.asarray(offsets)
    bags = len(ends) - 1 if include_last_offset else len(ends)
    bag = np.searchsorted(ends[:bags], np.arange(len(indices)), side="right") - 1
    kept = indices != padding_idx
    rows, bag = weight[indices[kept]], bag[kept]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[kept][:, None]
    counts = np.bincount(bag, minlength=bags)
    if mode == 2:
        most = [amax(rows[np.flatnonzero(bag == i)], 0) if counts[i] else 0.0 * weight[0] for i in range(bags)]
        return np.stack(most), bag, counts, bag
    total = scatter(rows, (bag,), (bags, np.shape(weight)[1]))
    return total / np.maximum(counts, 1.0)[:, None] if mode == 1 else total, bag, counts, bag


for _names, _rule in (
    ("index.Tensor _unsafe_index.Tensor", _index),
    ("gather", _gather),
    ("index_select", _index_select),
    ("take", _take),
    ("masked_select", _masked_select),
    ("embedding", _embedding),
    ("scatter.src", _scatter),
    ("index_copy", _index_copy),
    ("slice_scatter", _slice_scatter),
    ("select_scatter", _select_scatter),
    ("diagonal_scatter", _by_view(aten.diagonal)),
    ("as_strided_scatter", _by_view(aten.as_strided)),
):
    enter_move(_rule, *overloads(_names))

RULES.update(
    {
        aten.scatter.value: _scatter,
        aten.index_fill.int_Scalar: _index_fill,
        aten.index_fill.int_Tensor: _index_fill,
        aten.scatter.reduce: lambda x, dim, index, source, *, reduce: _scatter(x, dim, index, source, reduce),
        aten.scatter.value_reduce: lambda x, dim, index, value, *, reduce: _scatter(x, dim, index, value, reduce),
        aten.scatter_add.default: _scatter_add,
        aten.scatter_reduce.two: _scatter_reduce,
        aten.index_put.default: _index_put,
        aten._unsafe_index_put.default: _index_put,
        aten.put.default: _put,
        aten.masked_scatter.default: _masked_scatter,
        aten.index_add.default: _index_add,
        aten.index_reduce.default: _index_reduce,
        aten.embedding_renorm.default: _renormed,
        aten._embedding_bag.default: _embedding_bag,
        aten._embedding_bag_forward_only.default: _embedding_bag,
    }
)
