"""Intervals of arb's numbers, and their arithmetic on the extended real line, with IEEE 754's rules for special values.

An interval is a midpoint and a radius. Every result contains all results for numbers of the operands. arb has one NaN,
for what does not exist and for what is not known, and no value at a pole. Here a special value that is known is a
point, ±∞ or NaN, and what is not known is `WHOLE`. There is one zero, as in the exact reading, so that x / 0 is an
infinity of the sign of x.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

try:
    import flint
except ModuleNotFoundError as err:
    text = 'the second exact reading needs python-flint, which is not installed; pip install "opassay[second]"'
    raise ModuleNotFoundError(text, name=err.name) from err

Interval: TypeAlias = flint.arb
Function = Callable[..., Interval]


class Undecided(ArithmeticError):
    """A comparison of two intervals that overlap: a higher precision may decide it."""


#: The context manager of a precision in bits. flint's precision is a global one, which is set here alone.
precision = flint.ctx.workprec
point = flint.arb  # a number of Python, exactly: flint rounds results, never what it is given
ZERO, ONE, INFINITY, NAN = map(point, (0.0, 1.0, math.inf, math.nan))
WHOLE = point(0, INFINITY)

#: Every function in use has the ends of its domain and its poles at landmarks, so one sample stands for all numbers
#: between two landmarks. No sample is an integer, because a negative base to an exponent that is no integer is NaN;
#: `functions.power` handles exponents that are integers.
_LANDMARKS = (-INFINITY, -ONE, ZERO, ONE, INFINITY)
_BETWEEN = (-2.5, -0.5, 0.5, 2.5)


def is_point(x: Interval) -> bool:
    """Whether the interval is one value, NaN included."""
    return x.is_exact() or x.is_nan()


def extended(name: str, of_arb: Function) -> Function:
    """A function of arb, with the values of NumPy's function `name` at infinities, poles, NaN and outside the domain.

    NumPy follows IEEE 754 there, and arb does not: its arc sine has a value at NaN, and its sine of ∞ is [−1, 1].
    """
    of_floats = getattr(math if name in ("erf", "erfc") else np, name)

    def function(*operands: Interval) -> Interval:
        value = of_arb(*operands)
        if value.is_finite() and all(map(Interval.is_finite, operands)):
            return value
        special = _special(of_floats, operands)
        limit = value.is_finite() and all(x.is_finite() or x.is_exact() for x in operands)
        return value if limit and not is_point(special) else special

    return function


def _special(of_floats: Callable[..., Any], operands: tuple[Interval, ...]) -> Interval:
    """The special value that a function has everywhere on these intervals; `WHOLE` if there is no such value.

    The value is computed in floats, at a sample of each part of the intervals. An infinity could be an overflow, so the
    samples are small numbers. A finite value could be rounded, so it counts only if it is an integer and all operands
    are landmarks or NaN.
    """
    samples = [_samples(x) for x in operands]
    first, *others = (float(of_floats(*numbers)) for numbers in itertools.product(*samples))
    if math.isfinite(first) and not (first.is_integer() and all(len(s) == 1 and s[0] not in _BETWEEN for s in samples)):
        return WHOLE
    same = all(value == first or (value != value and first != first) for value in others)
    return point(first) if same else WHOLE


def _samples(x: Interval) -> list[float]:
    """A number from each part of the real line that the interval meets, and NaN where the interval may contain it."""
    if x.is_nan():
        return [math.nan]
    parts = zip(_BETWEEN, itertools.pairwise(_LANDMARKS), strict=True)
    inside = [sample for sample, (low, high) in parts if not (x <= low or x >= high)]
    unknown = [] if x.is_finite() or x.is_exact() else [math.nan]
    return [float(mark) for mark in _LANDMARKS if x.contains(mark)] + inside + unknown


add = extended("add", operator.add)
subtract = extended("subtract", operator.sub)
multiply = extended("multiply", operator.mul)
divide = extended("divide", operator.truediv)
negative = extended("negative", operator.neg)


def below(x: Interval, y: Interval) -> bool:
    """Whether x < y; `Undecided` where the intervals overlap."""
    if x.is_nan() or y.is_nan() or x >= y:
        return False
    if x < y:
        return True
    raise Undecided


def equal(x: Interval, y: Interval) -> bool:
    """Whether x = y; `Undecided` where the intervals overlap and are not points."""
    if x.is_nan() or y.is_nan() or not x.overlaps(y):
        return False
    if x.is_exact() and y.is_exact():
        return True
    raise Undecided
