"""Aten operations that sort, that run along a dim, and that choose elements by comparing them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ....reference.algorithms import Algorithm, Inapplicable, Reverse
from ....reference.array import among, constant, largest_at, scanned, sorting_order
from ....reference.choice import Choice
from ....reference.condition import Condition
from .table import MOVES, RULES, enter_move, may_store

aten = torch.ops.aten


def _elements_at_places(x: Any, dim: int, start: int, end: int, descending: bool) -> tuple[Any, Any]:
    """The elements at some of the places of a sorted dim, and their indices."""
    dim %= max(np.ndim(x), 1)
    ordered = np.sort(x, axis=dim)
    count = np.shape(x)[dim]
    part = slice(count - 1 - start, None if end == count else count - 1 - end, -1) if descending else slice(start, end)
    return ordered[(*(slice(None),) * dim, part)], sorting_order(x, dim, descending, start, end)


def _sort(x: Any, dim: int = -1, descending: bool = False, **kwargs: Any) -> Any:
    if np.ndim(x) == 0:
        return x, np.zeros((), dtype=np.int64)
    return _elements_at_places(x, dim, 0, np.shape(x)[dim], descending)


def _stable_sort(x: Any, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    return _sort(x, dim, descending)


def _topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return _elements_at_places(x, dim, 0, k, largest)


def _element_at_place(x: Any, place: int, dim: int, keepdim: bool) -> Any:
    values, indices = _elements_at_places(x, dim, place, place + 1, False)
    return (values, indices) if keepdim else (np.squeeze(values, axis=dim), np.squeeze(indices, axis=dim))


def _kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    return _element_at_place(x, k - 1, dim, keepdim)


def _with_nans(values: Any, x: Any, dim: int, keepdim: bool) -> Any:
    """A median is NaN where any of its elements is."""
    base = constant(x)
    unordered = np.any(np.asarray(base != base), axis=dim, keepdims=keepdim)
    return np.where(unordered, np.nan, values) if unordered.any() else values


def _median_along(x: Any, dim: int, keepdim: bool = False) -> Any:
    values, indices = _element_at_place(x, (np.shape(x)[dim] - 1) // 2, dim, keepdim)
    return _with_nans(values, x, dim, keepdim), indices


def _median(x: Any) -> Any:
    return _median_along(np.reshape(x, (-1,)), 0)[0]


def _extreme_along(sign: float) -> Callable[..., Any]:
    def rule(x: Any, dim: int, keepdim: bool = False) -> Any:
        signed = x if sign > 0 else -x
        values = np.max(signed, axis=dim, keepdims=keepdim)
        return (values if sign > 0 else -values), largest_at(signed, dim, keepdim)

    return rule


def _position(sign: float) -> Callable[..., Any]:
    def rule(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        return largest_at(x if sign > 0 else -x, dim, keepdim)

    return rule


def _running(sign: float) -> Callable[..., Any]:
    """cummax and cummin: the largest so far, and the index of an element that may be it."""

    def rule(x: Any, dim: int) -> Any:
        signed = x if sign > 0 else -x
        dim %= max(np.ndim(x), 1)
        values = scanned(signed, dim, np.maximum)
        return (values if sign > 0 else -values), _running_index(constant(signed), dim)

    return rule


def _running_index(base: Any, dim: int) -> Choice:
    def accepts(indices: Any) -> Any:
        low, high = base.ends()
        place = np.arange(indices.shape[dim]).reshape(-1, *(1,) * (indices.ndim - dim - 1))
        in_range = (indices >= 0) & (indices <= place)
        reached = np.take_along_axis(high, np.where(in_range, indices, 0), dim)
        return in_range & ~(reached < np.maximum.accumulate(low, axis=dim))

    def choose() -> tuple[Any, Any]:
        values = base.comparable()
        place = np.arange(values.shape[dim]).reshape(-1, *(1,) * (values.ndim - dim - 1))
        first = np.where(values == np.maximum.accumulate(values, axis=dim), place, 0)
        likely = np.maximum.accumulate(first, axis=dim)
        low, high = base.ends()
        return likely, np.broadcast_to(np.asarray((low == high).all()), likely.shape)

    return Choice(base.shape, accepts, choose)


def _logcumsumexp(x: Any, dim: int) -> Any:
    if np.ndim(x) == 0:
        return x
    along = functools.partial(_accumulate, dim=dim)
    by_logarithms = functools.partial(_cotangent_by_logarithms, dim=dim)
    return among([Algorithm(along, ""), Algorithm(Reverse(by_logarithms), "")], x)


def _accumulate(x: Any, dim: int) -> Any:
    """One element after another: each is added to the sum so far by its logarithm."""
    rows = np.moveaxis(x, dim, 0)
    sums = [rows[0]]
    for i in range(1, np.shape(rows)[0]):
        sums.append(np.logaddexp(sums[-1], rows[i]))
    return np.moveaxis(np.stack(sums, 0), 0, dim)


def _cotangent_by_logarithms(x: Any, g: Any, dim: int) -> Any:
    """Σ over k >= j of g_k exp(x_j − y_k), as torch has it: exp(log Σ exp(log |g_k| − y_k) + x_j) of both signs of g.

    The logarithms are as large as x, and what they are rounded by is a share of the result.

    Raises:
        Inapplicable: rounding leaves the sign of a cotangent open.
    """
    y, parts = may_store(_accumulate(x, dim)), []
    for part in (g, -g):
        positive = np.greater(constant(part), 0.0)
        if isinstance(positive, Condition):
            raise Inapplicable
        logs = np.where(positive, may_store(may_store(np.log(np.where(positive, part, 1.0))) - y), -np.inf)
        total = may_store(np.flip(_accumulate(np.flip(logs, dim), dim), dim))
        parts.append(may_store(np.exp(may_store(total + x))))
    return parts[0] - parts[1]


RULES.update(
    {
        aten.sort.default: _sort,
        aten.sort.stable: _stable_sort,
        aten.argsort.default: lambda x, dim=-1, descending=False: _sort(x, dim, descending)[1],
        aten.topk.default: _topk,
        aten.kthvalue.default: _kthvalue,
        aten.median.dim: _median_along,
        aten.median.default: _median,
        aten.max.dim: _extreme_along(1.0),
        aten.min.dim: _extreme_along(-1.0),
        aten.argmax.default: _position(1.0),
        aten.argmin.default: _position(-1.0),
        aten.cummax.default: _running(1.0),
        aten.cummin.default: _running(-1.0),
        aten.cumsum.default: lambda x, dim, dtype=None: np.cumsum(x, axis=dim),
        aten.cumprod.default: lambda x, dim, dtype=None: np.cumprod(x, axis=dim),
        aten.prod.dim_int: lambda x, dim, keepdim=False, dtype=None: np.prod(x, axis=dim, keepdims=keepdim),
        aten.prod.default: lambda x, dtype=None: np.prod(x),
        aten.logcumsumexp.default: _logcumsumexp,
    }
)
enter_move(lambda x: -np.max(-x), aten.min.default)
MOVES.update(
    {aten.sort.default, aten.sort.stable, aten.topk.default, aten.kthvalue.default, aten.median.dim}
    | {aten.median.default, aten.max.dim, aten.min.dim, aten.cummax.default, aten.cummin.default}
)
