"""Errors relative to the scale of a tensor, for elements so near zero that an ulp of the element is no measure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ...reference.formats import Format, ulp_array
from .accept import Elements


class Scaled(NamedTuple):
    """Errors of the accepted elements of an output relative to the scale of their tensor, which cannot cancel.

    Attributes:
        errors: |out − y| over the largest number among the tensor and the terms of its sums, in the format's unit
            roundoffs.
        near_zero: whether more than half of the format's digits may cancel in y, so that an ulp of y is no measure.
        magnitude: the largest finite number of the operands; 0 if the caller gave no operands.
    """

    errors: Any
    near_zero: Any
    magnitude: float = 0.0


def scaled(fmt: Format, elements: Elements, roundoff: float, operands: Iterable[Any] = ()) -> Scaled:
    """The errors of an output relative to its scale.

    The scale of a tensor with subnormal numbers only is the smallest normal number, because subnormal numbers have the
    spacing of the smallest normal ones.

    Args:
        fmt: the output's format. elements: its elements, all accepted. roundoff: u of the evaluation.
        operands: the operands of the formula as float64 arrays, if `magnitude` is needed.
    """
    with np.errstate(all="ignore"):
        # An error is the signed share of the bound times the bound, and zero where an element has no distance from y.
        errors = np.abs(elements.signed * np.where(np.isfinite(elements.bound), elements.bound, 0.0))
        sizes = np.maximum(_largest_numbers(fmt, elements, roundoff), fmt.smallest_normal)
        near, magnitude = near_zero(fmt, elements.bound, elements.value), max(map(largest, operands), default=0.0)
        return Scaled(errors / sizes / fmt.unit_roundoff, near, magnitude)


def near_zero(fmt: Format, bound: Any, value: Any) -> Any:
    """Whether a bound is so large beside its exact value that less than half of the format's digits are certain."""
    return np.abs(bound) > math.sqrt(fmt.unit_roundoff) * np.abs(value)


def share(computed: Any, fmt: Format, elements: Elements, roundoff: float, operands: Iterable[Any]) -> float:
    """The largest error of a refused element, relative to the largest number of its tensor and the terms of its sums.

    The bound of an element is about u times the sum of the magnitudes of its terms, so the bound over u is the size of
    the terms. Where tensor and terms are all zero, the largest operand is used in their place.

    Args:
        computed, fmt: the output, and its format. elements: the decisions on it.
        roundoff: u of the evaluation. operands: the operands of the formula as float64 arrays.
    """
    outside = ~elements.accepted
    with np.errstate(all="ignore"):
        errors = np.abs(computed - elements.value)[outside]
        sizes = _largest_numbers(fmt, elements, roundoff)[outside]
        sizes = np.where(sizes > 0, sizes, max(map(largest, operands), default=0.0))
        lost = np.isfinite(elements.value[outside]) | np.isfinite(computed[outside])
        return float(np.max(np.where(np.isfinite(errors), errors / sizes, np.where(lost, math.inf, 0.0))))


def _largest_numbers(fmt: Format, elements: Elements, roundoff: float) -> Any:
    """For each element the largest number among its tensor and the terms of its sums; zero if all these are zero."""
    # The rounding of the output is subtracted from the bound, because its size is that of the output, not of the terms.
    spread = np.maximum(elements.bound - ulp_array(fmt, np.abs(elements.value) + elements.bound), 0.0)
    return np.maximum(np.nan_to_num(spread / roundoff, nan=0.0, posinf=0.0), largest(elements.value))


def largest(values: Any) -> float:
    """The largest finite absolute value; 0 where there is none."""
    sizes = np.abs(np.asarray(values, dtype=np.float64))
    return float(np.max(sizes, where=np.isfinite(sizes), initial=0.0))
