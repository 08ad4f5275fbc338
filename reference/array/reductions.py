"""The words of a formula that reduce axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .kind import WORDS, Array, bind
from .shapes import diagonal, normalize_axes, reshape


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
        kept = bind(primitive, (x,), {"axes": axes, **params}) if axes else x
        if keepdims:
            return kept
        return reshape(kept, tuple(n for i, n in enumerate(kept.shape) if i not in axes))

    return rule


total_of = _reduction("sum")
_shared_largest = _reduction("max", shared=True)


def _mean(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    count = int(np.prod([x.shape[i] for i in normalize_axes(axis, x.ndim)], dtype=np.int64))
    total: Array = total_of(x, axis, keepdims)
    return total / count if count != 1 else total


def _var(x: Array, axis: Any = None, keepdims: bool = False) -> Array:
    return _mean(np.square(x - _mean(x, axis, True)), axis, keepdims)


WORDS.update({np.sum: total_of, np.max: _reduction("max"), np.mean: _mean, np.var: _var})
WORDS[np.trace] = lambda x: total_of(diagonal(x), -1)
