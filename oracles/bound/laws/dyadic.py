"""Arrays of numbers without any rounding, so that a law reads like the formula that it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np


class Dyadic:
    """Python's integers, or fractions of them, in a unit that is a power of two.

    Attributes:
        numbers: an array of them. unit: how many of the unit make 1.
    """

    __array_ufunc__ = None  # An array of NumPy on the left leaves an operation to this class.

    def __init__(self, numbers: Any, unit: int = 1) -> None:
        self.numbers, self.unit = numbers, unit

    @classmethod
    def of(cls, array: Any) -> Dyadic:
        """Finite floating numbers."""
        ratios = [number.as_integer_ratio() for number in np.asarray(array).reshape(-1)]
        unit = max((denominator for _, denominator in ratios), default=1)
        whole = np.empty(len(ratios), dtype=object)
        whole[:] = [numerator * (unit // denominator) for numerator, denominator in ratios]
        return cls(whole.reshape(np.shape(array)), unit)

    def change(self, move: Callable[[Any], Any]) -> Dyadic:
        """What a function that adds up or moves elements makes of the numbers."""
        return Dyadic(move(self.numbers), self.unit)

    @property
    def T(self) -> Dyadic:
        return self.change(np.transpose)

    @property
    def half(self) -> Dyadic:
        return Dyadic(self.numbers, 2 * self.unit)

    def _beside(self, other: Any) -> tuple[Any, Any, int]:
        """The numbers of both in one unit."""
        other = other if isinstance(other, Dyadic) else Dyadic(other)
        unit = max(self.unit, other.unit)
        return self.numbers * (unit // self.unit), other.numbers * (unit // other.unit), unit

    def __add__(self, other: Any) -> Dyadic:
        own, others, unit = self._beside(other)
        return Dyadic(own + others, unit)

    def __sub__(self, other: Any) -> Dyadic:
        own, others, unit = self._beside(other)
        return Dyadic(own - others, unit)

    def __mul__(self, other: Any) -> Dyadic:
        other = other if isinstance(other, Dyadic) else Dyadic(other)
        return Dyadic(self.numbers * other.numbers, self.unit * other.unit)

    def __matmul__(self, other: Dyadic) -> Dyadic:
        return Dyadic(self.numbers @ other.numbers, self.unit * other.unit)

    def __abs__(self) -> Dyadic:
        return self.change(np.abs)

    def __gt__(self, other: Any) -> Any:
        own, others, _ = self._beside(other)
        return np.asarray(own > others, dtype=bool)

    def floats(self) -> Any:
        """The nearest floats; infinities for what is larger than all."""
        near = [nearest_float(Fraction(x) / self.unit) for x in np.reshape(self.numbers, -1)]
        return np.array(near).reshape(np.shape(self.numbers))


def exact_difference(first: Sequence[Any], second: Sequence[Any]) -> Any:
    """A product less another one, of matrices; an array of one dimension, but for the first, is a diagonal.

    Nothing is rounded before the end.
    """
    products = (
        reduce(lambda x, y: x * y if y.numbers.ndim == 1 else x @ y, map(Dyadic.of, part)) for part in (first, second)
    )
    return (next(products) - next(products)).floats()


def nearest_float(x: Fraction) -> float:
    """The nearest float; an infinity for what is larger than all."""
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf
