"""Aten operations that sort, that run along a dim, and that choose elements by comparing them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ....reference.algorithms import Algorithm, Inapplicable, Reverse
from ....reference.array import among, constant, extreme_at, scanned, sorting_order
from ....reference.choice import Choice
from ....reference.condition import is_open, surely
from ....reference.modal import Modal
from ....reference.ranked import RankRange
from .table import Rule, enter, enter_moves, may_store, overloads


def _elements_at_places(x: Any, dim: int, ranks: RankRange) -> tuple[Any, Any]:
    """The elements that have some ranks along a dim, and their indices."""
    dim %= max(np.ndim(x), 1)
    ordered = np.sort(x, axis=dim)
    last = np.shape(x)[dim] - 1 - ranks.start
    end = None if last == ranks.count - 1 else last - ranks.count
    part = slice(last, end, -1) if ranks.descending else slice(ranks.start, ranks.start + ranks.count)
    return ordered[(*(slice(None),) * dim, part)], sorting_order(x, dim, ranks)


def _sort(x: Any, dim: int = -1, descending: bool = False, stable: bool | None = None, **kwargs: Any) -> Any:
    if np.ndim(x) == 0:
        return x, np.zeros((), dtype=np.int64)
    return _elements_at_places(x, dim, RankRange(0, np.shape(x)[dim], descending, stable=bool(stable)))


def _topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    return _elements_at_places(x, dim, RankRange(0, k, largest, sorted))


def _element_at_place(x: Any, place: int, dim: int, keepdim: bool, nans_win: bool = False) -> Any:
    values, indices = _elements_at_places(x, dim, RankRange(place, 1, descending=False, nans_win=nans_win))
    return (values, indices) if keepdim else (np.squeeze(values, axis=dim), np.squeeze(indices, axis=dim))


def _with_nans(values: Any, x: Any, dim: int, keepdim: bool) -> Any:
    """A median is NaN where any of its elements is: it is the largest there, whose slope nobody knows."""
    base = constant(x)
    unordered = np.any(np.asarray(base != base), axis=dim, keepdims=keepdim)
    return np.where(unordered, np.max(x, axis=dim, keepdims=keepdim), values) if unordered.any() else values


def _median_along(x: Any, dim: int, keepdim: bool = False) -> Any:
    values, indices = _element_at_place(x, (np.shape(x)[dim] - 1) // 2, dim, keepdim, nans_win=True)
    return _with_nans(values, x, dim, keepdim), indices


def _mode(x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """A value that occurs most often along a dim, and the index of an element that has it."""
    if np.ndim(x) == 0:
        return x, np.zeros((), dtype=np.int64)
    indices = Modal(x, dim % np.ndim(x))
    values = indices.elements(indices.likely())
    return (values, indices) if keepdim else (np.squeeze(values, axis=dim), np.squeeze(indices, axis=dim))


def _least_along(x: Any, dim: int, keepdim: bool = False) -> Any:
    return -np.max(-x, axis=dim, keepdims=keepdim), extreme_at(x, dim, keepdim, descending=False)


def _running_largest(x: Any, dim: int) -> Any:
    """cummax: the largest so far, and the index of an element that may be it."""
    dim %= max(np.ndim(x), 1)
    return scanned(x, dim, np.maximum), _running_index(constant(x), dim)


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


def _running_least(x: Any, dim: int) -> Any:
    values, indices = _running_largest(-x, dim)
    return -values, indices


def _logcumsumexp(x: Any, dim: int) -> Any:
    if np.ndim(x) == 0:
        return x
    along = functools.partial(_accumulate, dim=dim)
    by_logarithms = functools.partial(_cotangent_by_logarithms, dim=dim)
    by_pairs = functools.partial(_accumulate_pairs, dim=dim)
    return among([Algorithm(along, ""), Algorithm(Reverse(by_logarithms), ""), Algorithm(by_pairs, "")], x)


def _accumulate(x: Any, dim: int) -> Any:
    """One element after another: each is added to the sum so far by its logarithm."""
    rows = np.moveaxis(x, dim, 0)
    sums = [rows[0]]
    for i in range(1, np.shape(rows)[0]):
        sums.append(np.logaddexp(sums[-1], rows[i]))
    return np.moveaxis(np.stack(sums, 0), 0, dim)


def _accumulate_pairs(x: Any, dim: int) -> Any:
    """As a scan of pairs, the largest number so far and the sum of all powers less it: their logarithm is added last.

    Where the result is near 0 this loses what `_accumulate` keeps: the largest number and the logarithm cancel. The sum
    is a linear recurrence, so its ball is that of every tree.
    """
    rows = np.moveaxis(x, dim, 0)
    largest = scanned(constant(rows), 0, np.maximum)
    infinite = surely(np.isinf(largest))  # An infinity less itself is NaN, and the sum is infinite without that.
    largest = np.where(infinite, 0.0, largest) if np.any(infinite) else largest
    powers, factors = np.exp(rows - largest), np.exp(largest[:-1] - largest[1:])
    sums = [powers[0]]
    for i in range(1, np.shape(rows)[0]):
        sums.append(sums[-1] * factors[i - 1] + powers[i])
    return np.moveaxis(np.log(np.stack(sums, 0)) + largest, 0, dim)


def _cotangent_by_logarithms(x: Any, g: Any, dim: int) -> Any:
    """Σ over k >= j of g_k exp(x_j − y_k), as torch has it: exp(log Σ exp(log |g_k| − y_k) + x_j) of both signs of g.

    The logarithms are as large as x, and what they are rounded by is a share of the result.

    Raises:
        Inapplicable: rounding leaves the sign of a cotangent open.
    """
    y, parts = may_store(_accumulate(x, dim)), []
    for part in (g, -g):
        positive = np.greater(constant(part), 0.0)
        if is_open(positive):
            raise Inapplicable
        logs = np.where(positive, may_store(may_store(np.log(np.where(positive, part, 1.0))) - y), -np.inf)
        total = may_store(np.flip(_accumulate(np.flip(logs, dim), dim), dim))
        parts.append(may_store(np.exp(may_store(total + x))))
    return parts[0] - parts[1]


enter(
    {
        "argsort": lambda x, dim=-1, descending=False: _sort(x, dim, descending)[1],
        "argmax": lambda x, dim=None, keepdim=False: extreme_at(x, dim, keepdim),
        "argmin": lambda x, dim=None, keepdim=False: extreme_at(x, dim, keepdim, descending=False),
        "cumsum": lambda x, dim, dtype=None: np.cumsum(x, axis=dim),
        "cumprod": lambda x, dim, dtype=None: np.cumprod(x, axis=dim),
        "prod.dim_int": lambda x, dim, keepdim=False, dtype=None: np.prod(x, axis=dim, keepdims=keepdim),
        "prod": lambda x, dtype=None: np.prod(x),
        "logcumsumexp": _logcumsumexp,
    }
)
_BY_VALUE: dict[str, Rule] = {
    "sort": _sort,
    "sort.stable": lambda x, stable=None, dim=-1, descending=False: _sort(x, dim, descending, stable),
    "topk": _topk,
    "kthvalue": lambda x, k, dim=-1, keepdim=False: _element_at_place(x, k - 1, dim, keepdim),
    "median.dim": _median_along,
    "median": lambda x: _median_along(np.reshape(x, (-1,)), 0)[0],
    "mode": _mode,
    "max.dim": lambda x, dim, keepdim=False: (np.max(x, axis=dim, keepdims=keepdim), extreme_at(x, dim, keepdim)),
    "min.dim": _least_along,
    "cummax": _running_largest,
    "cummin": _running_least,
    "min": lambda x: -np.max(-x),
}
enter_moves(_BY_VALUE)
#: Operations that move elements by their values.
COMPARING = frozenset(overloads(" ".join(_BY_VALUE)))
