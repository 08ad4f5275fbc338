"""Aten operations that count numbers between bounds, or find the place of a number among them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....reference.array import Array, amax, constant
from ....reference.choice import Choice
from ....reference.condition import condition, possibly, surely
from .table import enter


def _search_sorted(
    bounds: Any, x: Any, right: bool = False, side: str | None = None, sorter: Any = None, **kwargs: Any
) -> Any:
    """searchsorted: how many bounds, in ascending order along their last dim, are below a number.

    Where a comparison is open, so is the place; of bounds that are in no order, any place is right.

    Args:
        bounds: (n,), or (*rows, n). x: (*rows, m), or of any shape where there is one row of bounds.
        right, side: whether bounds that equal the number count, too. sorter: indices that sort the bounds.
    """
    if sorter is not None:
        bounds = np.take_along_axis(bounds, np.asarray(sorter), -1)
    rows = np.reshape(bounds, np.shape(bounds)[:-1] + (1,) * (np.ndim(x) if np.ndim(bounds) == 1 else 1) + (-1,))
    numbers = np.expand_dims(x, -1)
    above = np.greater(rows, numbers) if right or side == "right" else np.greater_equal(rows, numbers)
    below = np.logical_not(above)  # so that all bounds are below a NaN
    fewest, most = (np.sum(part(below), axis=-1) for part in (surely, possibly))
    ordered = np.all(surely(np.less_equal(rows[..., :-1], rows[..., 1:])), axis=-1)
    fewest, most = np.where(ordered, fewest, 0), np.where(ordered, most, np.shape(bounds)[-1])
    if np.array_equal(fewest, most):
        return fewest
    return Choice(fewest.shape, lambda places: (fewest <= places) & (places <= most), lambda: (fewest, fewest == most))


def _ends(x: Any, least: float, most: float) -> tuple[Any, Any]:
    """The ends of a histogram: those of the numbers themselves where none are given."""
    if least != most:
        return constant(x).lift(least), constant(x).lift(most)
    base = np.reshape(constant(x), (-1,))
    low, high = -amax(-base, None), amax(base, None)
    same = np.equal(low, high)
    return np.where(same, low - 1.0, low), np.where(same, high + 1.0, high)


def _histogram(x: Any, bins: int = 100, least: float = 0.0, most: float = 0.0) -> Any:
    """histc: how many numbers are in each of `bins` parts of a range, of which only the last has its upper end."""
    if not isinstance(x, Array):
        x = np.asarray(x, dtype=np.float64)
        return np.histogram(x, bins, (least, most) if least != most else None)[0].astype(np.float64)
    flat: Any = np.reshape(constant(x), (-1,))
    low, high = _ends(flat, float(least), float(most))
    place = (flat - low) / (high - low) * float(bins)
    inside = np.logical_and(flat >= low, flat <= high)
    counts = []
    for i in range(bins):
        within = np.logical_and(inside, place >= float(i)) if i else inside
        within = np.logical_and(within, place < float(i + 1)) if i + 1 < bins else within
        fewest, most_here = (float(np.sum(part(within))) for part in (surely, possibly))
        # As many numbers as are open may be in this part, or none of them.
        either = condition(np.array(False), np.array(True), flat)
        counts.append(flat.lift(fewest) if fewest == most_here else np.where(either, fewest, flat.lift(most_here)))
    return np.stack(counts, axis=0)


enter(
    {
        "bucketize.Tensor bucketize.Scalar": lambda x, bounds, right=False, **kwargs: _search_sorted(bounds, x, right),
        "searchsorted.Tensor searchsorted.Scalar": _search_sorted,
        "histc": _histogram,
    }
)
