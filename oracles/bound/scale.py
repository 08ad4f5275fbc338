"""Errors on the scale of a whole tensor, for elements so near zero that an error in ulp of the element says nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ...reference.formats import Format, ulp_array
from .accept import Elements


class Scaled(NamedTuple):
    """Errors of the accepted elements of an output on the scale of their tensor, which no cancellation makes small.

    Attributes:
        errors: |out − y| over the largest number of the tensor and of the terms summed, in the format's unit roundoffs.
        near_zero: where more than half of the digits of the format may cancel in y, so that an ulp of y says nothing.
        magnitude: the largest finite number of the operands, where the caller gave operands; else 0.
    """

    errors: Any
    near_zero: Any
    magnitude: float = 0.0


def scaled(fmt: Format, elements: Elements, roundoff: float, operands: Iterable[Any] = ()) -> Scaled:
    """The errors of an output on its scale.

    A tensor that is subnormal as a whole is measured against the smallest normal number, because subnormal numbers are
    spaced as the smallest normal ones are.

    Args:
        fmt: the output's format. elements: in their accept sets, all accepted. roundoff: u of the evaluation.
        operands: float64 arrays that the formula is read at, where their magnitude is asked for.
    """
    with np.errstate(all="ignore"):
        # An error is the signed share of the bound times the bound, and zero where an element has no distance from y.
        errors = np.abs(elements.signed * np.where(np.isfinite(elements.bound), elements.bound, 0.0))
        sizes = np.maximum(_largest_numbers(fmt, elements, roundoff), fmt.smallest_normal)
        near, magnitude = near_zero(fmt, elements.bound, elements.value), max(map(_largest, operands), default=0.0)
        return Scaled(errors / sizes / fmt.unit_roundoff, near, magnitude)


def near_zero(fmt: Format, bound: Any, value: Any) -> Any:
    """Whether a bound is so large beside its exact value that less than half of the digits of the format are sure."""
    return np.abs(bound) > math.sqrt(fmt.unit_roundoff) * np.abs(value)


def share(computed: Any, fmt: Format, elements: Elements, roundoff: float, operands: Iterable[Any]) -> float:
    """The largest error of a refused element, relative to the largest number of its tensor and of the terms summed.

    The bound of an element is about u times the sum of the magnitudes of its terms, so the bound over u says how large
    the terms are. Where tensor and terms are all zero, the largest operand stands for them.

    Args:
        computed, fmt: the output, and its format. elements: in their accept sets.
        roundoff: u of the evaluation. operands: float64 arrays that the formula is read at.
    """
    outside = ~elements.accepted
    with np.errstate(all="ignore"):
        errors = np.abs(computed - elements.value)[outside]
        sizes = _largest_numbers(fmt, elements, roundoff)[outside]
        sizes = np.where(sizes > 0, sizes, max(map(_largest, operands), default=0.0))
        lost = np.isfinite(elements.value[outside]) | np.isfinite(computed[outside])
        return float(np.max(np.where(np.isfinite(errors), errors / sizes, np.where(lost, math.inf, 0.0))))


def _largest_numbers(fmt: Format, elements: Elements, roundoff: float) -> Any:
    """For each element the largest number of its tensor and of the terms summed; zero where all of these are zero."""
    # The bound without the rounding of the output, which is of the output's own size and not of the terms'.
    spread = np.maximum(elements.bound - ulp_array(fmt, np.abs(elements.value) + elements.bound), 0.0)
    return np.maximum(np.nan_to_num(spread / roundoff, nan=0.0, posinf=0.0), _largest(elements.value))


def _largest(values: Any) -> float:
    """The largest finite absolute value; 0 where there is none."""
    sizes = np.abs(np.asarray(values, dtype=np.float64))
    return float(np.max(sizes, where=np.isfinite(sizes), initial=0.0))
