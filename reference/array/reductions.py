"""The words of a formula that reduce axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..missing import NoReadingError
from .kind import REDUCTIONS, WORDS, Array, bind
from .selection import is_nan
from .shapes import drop_axes, normalize_axes


def amax(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """The largest elements, as `numpy.max`; elements that are equal share the slope evenly, as in `torch.amax`."""
    if not isinstance(x, Array):
        return np.max(x, axis=axis, keepdims=keepdims)
    return _shared_largest(x, axis, keepdims)


def _reduction(primitive: str, **params: Any) -> Callable[..., Array]:
    def rule(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
        # The primitive itself keeps the reduced axes, with length 1. So its result broadcasts against its operand,
        # which is all that its derivatives need; the axes are dropped by a reshape, which is exact in every reading.
        axes = normalize_axes(axis, x.ndim)
        return drop_axes(bind(primitive, (x,), {"axes": axes, **params}) if axes else x, axes, keepdims)

    return rule


total_of = _reduction("sum")
#: The sum of a mean. An evaluation may keep the mean of the terms so far in place of their sum, as Welford's does.
_total_of_mean = _reduction("sum", means=True)
_shared_largest = _reduction("max", shared=True)


def _count(x: Any, axis: Any, where: Any) -> Any:
    axes = normalize_axes(axis, x.ndim)
    if where is None:
        return math.prod(x.shape[i] for i in axes)
    return np.sum(np.broadcast_to(np.asarray(where, dtype=bool), x.shape), axis=axes, keepdims=True)


def _mask(x: Any, where: Any) -> Any:
    return x if where is None else np.where(where, x, 0.0)


def _cast(x: Any, dtype: Any) -> Any:
    """The operand of a sum in another format: sums are bounded in the contract's own, so only the operand is cast."""
    return x if dtype is None else x.astype(dtype)


def _sum(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, where: Any = None) -> Any:
    return total_of(_mask(_cast(a, dtype), where), axis, keepdims)


def _mean(a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, where: Any = None) -> Any:
    a = _cast(a, dtype)
    count = _count(a, axis, where)
    total = _total_of_mean(_mask(a, where), axis, True if where is not None else keepdims)
    if where is None:
        return total / count if count != 1 else total
    return drop_axes(total / count.astype(np.float64), axis, keepdims)


def _var(
    a: Any, axis: Any = None, dtype: Any = None, *, ddof: float = 0, keepdims: bool = False, correction: float = 0
) -> Any:
    """The mean square of what differs from the mean, divided by n − ddof; `correction` is its other name."""
    a, free = _cast(a, dtype), ddof or correction
    squares = np.square(a - _mean(a, axis, keepdims=True))
    if not free:
        return _mean(squares, axis, keepdims=keepdims)
    return total_of(squares, axis, keepdims) / (_count(a, axis, None) - free)


_largest: Callable[..., Any] = _reduction("max")


def _max(a: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = None) -> Any:
    largest: Any = _largest(a if where is None else np.where(where, a, -np.inf), axis, keepdims)
    return largest if initial is None else np.maximum(largest, initial)


def _min(a: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = None) -> Any:
    return -_max(-a, axis, keepdims=keepdims, initial=None if initial is None else -initial, where=where)


def _average(a: Any, axis: Any = None, weights: Any = None, *, keepdims: bool = False) -> Any:
    if weights is None:
        return _mean(a, axis, keepdims=keepdims)
    if np.shape(weights) != np.shape(a):  # one weight for each place along one axis
        weights = np.reshape(weights, [n if i == axis % np.ndim(a) else 1 for i, n in enumerate(np.shape(a))])
    weights = np.broadcast_to(weights, np.shape(a))
    return np.sum(a * weights, axis=axis, keepdims=keepdims) / np.sum(weights, axis=axis, keepdims=keepdims)


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The p-norm of vectors, and Frobenius' of matrices."""
    vector = x.ndim == 1 or isinstance(axis, (int, np.integer))
    if ord in (None, "fro") or (ord == 2 and vector):
        return np.sqrt(total_of(np.square(x), axis, keepdims))
    if not vector:
        raise NoReadingError(f"linalg.norm: got ord={ord!r} of a matrix, need 'fro' or an axis")
    size: Any = np.absolute(x)
    if ord in (np.inf, -np.inf):
        return _max(size, axis, keepdims=keepdims) if ord > 0 else _min(size, axis, keepdims=keepdims)
    if ord == 1:
        return total_of(size, axis, keepdims)
    total: Any = total_of(np.power(size, ord), axis, keepdims)
    return np.power(total, 1.0 / ord)


def _beside_nan(word: Callable[..., Any], neutral: float) -> Callable[..., Any]:
    """A reduction of the elements that are not NaN."""
    return lambda a, axis=None, keepdims=False: word(np.where(is_nan(a), neutral, a), axis, keepdims=keepdims)


def _nanmean(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _mean(a, axis, keepdims=keepdims, where=~np.asarray(is_nan(a), dtype=bool))


WORDS.update(
    {
        np.sum: _sum,
        np.max: _max,
        np.amax: _max,
        np.min: _min,
        np.amin: _min,
        np.ptp: lambda a, axis=None, keepdims=False: _largest(a, axis, keepdims) + _largest(-a, axis, keepdims),
        np.mean: _mean,
        np.average: _average,
        np.var: _var,
        np.std: lambda a, axis=None, dtype=None, **rest: np.sqrt(_var(a, axis, dtype, **rest)),
        np.nansum: _beside_nan(_sum, 0.0),
        np.nanmax: _beside_nan(_max, -np.inf),
        np.nanmin: _beside_nan(_min, np.inf),
        np.nanmean: _nanmean,
        np.linalg.norm: _norm,
        np.trace: lambda a, offset=0, axis1=0, axis2=1: total_of(np.diagonal(a, offset, axis1, axis2), -1),
    }
)
REDUCTIONS[np.add], REDUCTIONS[np.maximum], REDUCTIONS[np.minimum] = _sum, _max, _min
