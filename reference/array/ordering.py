"""The words of a formula that sort, and that choose positions by comparing."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..choice import Choice
from ..ranked import Ranked, RankRange
from .kind import WORDS, Array, bind
from .shapes import normalize_axes, reshape


def _sort(x: Array, axis: int | None = -1, kind: Any = None, *, stable: Any = None) -> Any:
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    return bind("sort", (x,), {"axis": axis % x.ndim}) if x.ndim else x


def sorting_order(x: Array, axis: int = -1, ranks: RankRange | None = None) -> Ranked:
    """The indices that sort along an axis, or those of some ranks of that order.

    Args:
        x: an array. axis: along which it is sorted. ranks: by default all, in ascending order.
    """
    axis %= x.ndim
    return Ranked(x, (axis,), ranks or RankRange(0, x.shape[axis], descending=False))


def extreme_at(x: Array, axis: Any = None, keepdims: bool = False, descending: bool = True) -> Ranked:
    """The index of the largest element along an axis, or of the least; of all of them in order without an axis.

    A NaN is the largest, and the least.
    """
    return Ranked(
        x, normalize_axes(axis, x.ndim), RankRange(descending=descending, nans_first=not descending), keepdims
    )


def _argmax(x: Array, axis: Any = None, *, keepdims: bool = False) -> Choice:
    return extreme_at(x, axis, keepdims)


def _argmin(x: Array, axis: Any = None, *, keepdims: bool = False) -> Choice:
    return extreme_at(x, axis, keepdims, descending=False)


def _argsort(x: Array, axis: int = -1, kind: Any = None, *, stable: Any = None) -> Choice:
    return sorting_order(
        x, axis, RankRange(0, x.shape[axis], descending=False, stable=bool(stable) or kind == "stable")
    )


WORDS.update({np.sort: _sort, np.argmax: _argmax, np.argmin: _argmin, np.argsort: _argsort})
