"""How far the results of a function reach over balls of arguments: arrays of centres c, radii r and values y.

Every spread bounds |f(x) − f(c)| for all x with |x − c| ≤ r; the rounding of the evaluation is not in it. Where no
bound exists it is infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: (c, r, f(c)) -> a bound on |f(x) − f(c)|.
Spread = Callable[[Any, Any, Any], Any]

#: Radii are computed in floating point themselves; this relative excess per operation covers their roundings.
SLACK = 2.0**-50


def largest_of(sizes: Any) -> Any:
    """The largest of magnitudes, 0 of none, a NaN if there is one: `numpy.max`, at half of its cost on small arrays."""
    return np.maximum.reduce(sizes, axis=None, initial=0.0)


def nearest(c: Any, r: Any) -> Any:
    """The smallest magnitude in the ball, where an even function that falls away from zero is largest."""
    return np.maximum(np.abs(c) - r, 0.0)


def of_exp(c: Any, r: Any, y: Any) -> Any:
    if largest_of(r) <= 2.0**-8:
        return y * (r * (1.0 + r * (0.5 + 0.25 * r)))  # above e^r - 1 for every r up to 1
    # e^(c + r) - e^c; for a large r, where e^r may overflow, at most e^(c + r), its exponent rounded up
    return np.where(r < 1.0, y * np.expm1(r), np.exp(c + r + (np.abs(c) + r) * SLACK))


def of_expm1(c: Any, r: Any, y: Any) -> Any:
    return of_exp(c, r, np.exp(c))


def of_sqrt(c: Any, r: Any, y: Any) -> Any:
    # |√a - √c| <= |a - c| / (√a + √c), and always <= √|a - c|; of an argument that no evaluation makes negative
    below = np.sqrt(np.maximum(c - r, 0.0))
    return np.minimum(r / (y + below), np.sqrt(r))


def of_sqrt_through_zero(c: Any, r: Any, y: Any) -> Any:
    # An evaluation of an argument that may be negative may have no root at all.
    return np.where(r <= c, of_sqrt(c, r, y), np.inf)


def of_log(c: Any, r: Any, y: Any) -> Any:
    # The slope is largest at the lower end, so log c - log(c - r) is the bound; there is none if the ball reaches zero.
    return np.where(r < c, -np.log1p(-np.minimum(r / c, 1.0)), np.inf)


def of_log1p(c: Any, r: Any, y: Any) -> Any:
    return of_log(1.0 + c, r, y)


def _within(reach: Any, r: Any, most: Any) -> Any:
    """A spread of a function between two ends, from the farther of which it is `most` away at most.

    An argument without a bound may be NaN.
    """
    return reach if largest_of(r) <= 0.25 else np.where(np.isfinite(r), np.minimum(reach, most), reach)


def of_tanh(c: Any, r: Any, y: Any) -> Any:
    return _within(r * (1.0 - np.square(np.tanh(nearest(c, r)))), r, 1.0 + np.abs(y))  # the slope is 1 - tanh²


def of_sigmoid(c: Any, r: Any, y: Any) -> Any:
    decay = np.exp(-nearest(c, r))  # the slope is even, and largest nearest to zero
    return _within(r * (decay / np.square(1.0 + decay)), r, np.maximum(y, 1.0 - y))


def of_power(c: Any, r: Any, exponent: float) -> Any:
    """Of x^exponent; a negative base has integer powers alone."""
    size = np.abs(c)
    if exponent == int(exponent):
        # |n| |x|^(n − 1) r at the end of the ball where that slope is largest; a negative power has none through zero.
        end = size + r if exponent > 0 else size - r
        slope = np.power(np.maximum(end, 0.0), exponent - 1.0)
        return np.where((end > 0) | (r == 0), abs(exponent) * slope * r, np.inf if exponent < 0 else 0.0)
    low, high = np.maximum(c - r, 0.0), c + r
    slope = np.maximum(np.power(low, exponent - 1.0), np.power(high, exponent - 1.0))
    return np.where(c > r, abs(exponent) * slope * r, np.inf)


def hull(c: Any, r: Any, other: Any, its: Any, unit: float) -> tuple[Any, Any]:
    """Centre and radius of balls that hold two others, element by element.

    Args:
        c, r: centres and radii of the one. other, its: those of the other.
        unit: the roundoff of centres.
    """
    low, high = np.minimum(c - r, other - its), np.maximum(c + r, other + its)
    middle = 0.5 * low + 0.5 * high
    # Ends and middle are rounded, each by at most `unit` of the largest magnitude that takes part.
    reach = np.abs(c) + np.abs(other) + r + its
    radius = (0.5 * high - 0.5 * low) * (1.0 + SLACK) + reach * (4.0 * unit)
    same = (c == other) | (np.isnan(c) & np.isnan(other))
    radius = np.asarray(radius, dtype=np.float64)
    bounded = np.isfinite(radius)
    return (
        np.where(same | ~bounded, c, middle),
        np.where(same, np.maximum(r, its), np.where(bounded, radius, np.where(np.isfinite(c), np.inf, np.nan))),
    )


def limited(size: Any, limit: float, radius: Any) -> Any:
    """Radii of sums: infinite where the magnitudes of the terms add up to a `size` beyond a limit."""
    return radius if largest_of(size) <= limit else np.where(size <= limit, radius, np.inf)
