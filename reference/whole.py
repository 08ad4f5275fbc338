"""Integers that are computed from floating numbers: any between two bounds may be what an evaluation has.

`x.long()` of a number that rounding leaves on either side of 3 is 2 in one evaluation and 3 in another, and both are
right; so is what follows from either. A `Whole` has, for every element, the least and the largest integer that an
evaluation may have. Where the two are equal everywhere the integers are known, and are an ordinary array.

What a cast makes of a NaN, or of a number beyond the range of the integers, C leaves undefined (C17, 6.3.1.4), and so
does torch: of such an element nothing is known, and its bounds are the ends of the range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .array import constant
from .choice import Choice
from .condition import condition, is_open, possibly, surely


class Whole(Choice):
    """Integers of which some are open.

    Attributes:
        low, high: arrays of integers of one dtype. reading: an array of the reading that they come from.
    """

    def __init__(self, low: Any, high: Any, reading: Any) -> None:
        self.low, self.high, self.reading = low, high, reading
        super().__init__(
            low.shape, lambda numbers: (low <= numbers) & (numbers <= high), lambda: (low, low == high),
            lambda: ~self.free,
        )  # fmt: skip

    def moved(self, move: Callable[[Any], Any]) -> Any:
        return whole(move(self.low), move(self.high), self.reading)

    @property
    def dtype(self) -> Any:
        """NumPy's dtype of the integers."""
        return self.low.dtype

    @property
    def free(self) -> Any:
        """Where nothing is known of an integer."""
        return (self.low == np.iinfo(self.dtype).min) & (self.high == np.iinfo(self.dtype).max)

    def lifted(self) -> Any:
        """The numbers as an array of the reading; an element of which nothing is known has no bound."""
        low, high = (np.where(self.free, math.inf, each) for each in (self.low, self.high))
        return interval(low, high, self.reading)


def interval(low: Any, high: Any, reading: Any) -> Any:
    """An array of a reading, each element of which may be any number between two ends, or any at all without them."""
    known = np.isfinite(low) & np.isfinite(high)
    either = condition(np.zeros(known.shape, bool), low != high, reading)
    numbers = np.where(either, *(reading.lift(np.where(known, each, 0.0)) for each in (high, low)))
    return numbers if known.all() else np.where(known, numbers, unbounded(reading, known.shape))


def unbounded(reading: Any, shape: tuple[int, ...]) -> Any:
    """An array of a reading of whose elements nothing is known: the inverse of numbers from −1 to 2, which may be 0."""
    sign = condition(np.zeros(shape, bool), np.ones(shape, bool), reading)
    return 1.0 / np.where(sign, reading.lift(np.full(shape, -1.0)), reading.lift(np.full(shape, 2.0)))


def whole(low: Any, high: Any, reading: Any) -> Any:
    """The integers between two bounds: an array where those are equal, else a `Whole`."""
    low, high = np.asarray(low), np.asarray(high)
    return low if np.array_equal(low, high) else Whole(low, high, reading)


def truncate(x: Any, dtype: Any) -> Any:
    """What a cast to integers makes of floating numbers, or of truth values.

    Args:
        x: an array of any reading. dtype: NumPy's dtype of the integers.
    """
    return _between(x, dtype, np.trunc, np.trunc)


def integers(x: Any, dtype: Any) -> Any:
    """Numbers that are integers in exact arithmetic, as integers: all between the ends of each, without truncation."""
    return _between(x, dtype, np.ceil, np.floor)


def settle(choice: Choice, dtype: Any, reading: Any) -> Any:
    """Indices that were chosen by values, as numbers; of an index that rounding decides nothing is known."""
    if isinstance(choice, Whole):
        return choice
    likely, sure = np.asarray(choice.likely(), dtype=dtype), choice.sure()
    info = np.iinfo(dtype)
    return whole(np.where(sure, likely, info.min), np.where(sure, likely, info.max), reading)


def _between(x: Any, dtype: Any, of_low: Any, of_high: Any) -> Any:
    if is_open(x):
        return whole(surely(x).astype(dtype), possibly(x).astype(dtype), x.reading)
    base = constant(x)
    ends = base.ends() if hasattr(base, "ends") else (np.asarray(base),) * 2
    if ends[0].dtype == object:  # Numbers of the exact reading are cut with all their digits.
        ends = (np.trunc(base).ends()[0],) * 2 if of_low is of_high else ends
    low, high = of_low(np.asarray(ends[0], np.float64)), of_high(np.asarray(ends[1], np.float64))
    info = np.iinfo(dtype)
    in_range = (low >= float(info.min)) & (high < float(info.max) + 1.0) & (low <= high)
    low, high = (np.where(in_range, each, 0.0).astype(dtype) for each in (low, high))
    return whole(
        np.where(in_range, low, info.min).astype(dtype), np.where(in_range, high, info.max).astype(dtype), base
    )
