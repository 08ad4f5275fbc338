"""Errors of accepted and of wrong elements on the scale of their tensor, where an ulp of them may say nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ...reference.formats import Format, ulp_array
from .accept import Elements


class Scaled(NamedTuple):
    """How the accepted elements of an output stand on the scale of their tensor, which no cancellation makes small.

    Attributes:
        errors: |out − y| over the largest number of the tensor and of what is summed, in unit roundoffs of the format.
        near_zero: where more than half of the digits of the format may cancel in y, so that an ulp of it says nothing.
        magnitude: the largest finite number of the operands, where it was asked for; else 0.
    """

    errors: Any
    near_zero: Any
    magnitude: float = 0.0


def scaled(fmt: Format, found: Elements, roundoff: float, operands: Iterable[Any] = ()) -> Scaled:
    """The errors of an output on its scale.

    A tensor that is subnormal as a whole is measured against the smallest normal number, because the spacing of
    subnormal numbers is that of it.

    Args:
        fmt: of the output. found: where its elements stand; all are accepted. roundoff: u of the evaluation.
        operands: what the formula is read at, where their magnitude is asked for.
    """
    with np.errstate(all="ignore"):
        # An error is the signed share of the bound times the bound, and zero where an element has no distance from y.
        errors = np.abs(found.signed * np.where(np.isfinite(found.bound), found.bound, 0.0))
        sizes = np.maximum(_largest_numbers(fmt, found, roundoff), fmt.smallest_normal)
        near, magnitude = near_zero(fmt, found.bound, found.value), max(map(_largest, operands), default=0.0)
        return Scaled(errors / sizes / fmt.unit_roundoff, near, magnitude)


def near_zero(fmt: Format, bound: Any, value: Any) -> Any:
    """Whether a bound is so large beside its exact value that less than half of the digits of the format are sure."""
    return np.abs(bound) > math.sqrt(fmt.unit_roundoff) * np.abs(value)


def share(computed: Any, fmt: Format, found: Elements, roundoff: float, operands: Iterable[Any]) -> float:
    """The largest error of an element outside, relative to the largest number of its tensor and of what is summed.

    The bound of an element is about u times the sum of the absolute values that it is the sum of, so the bound over u
    says how large those are. Where all of that is zero, the operands say how large numbers are here.

    Args:
        computed, fmt: the output, and its format. found: where its elements stand.
        roundoff: u. operands: what the formula is read at.
    """
    outside = ~found.accepted
    with np.errstate(all="ignore"):
        errors = np.abs(computed - found.value)[outside]
        sizes = _largest_numbers(fmt, found, roundoff)[outside]
        sizes = np.where(sizes > 0, sizes, max(map(_largest, operands), default=0.0))
        lost = np.isfinite(found.value[outside]) | np.isfinite(computed[outside])
        return float(np.max(np.where(np.isfinite(errors), errors / sizes, np.where(lost, math.inf, 0.0))))


def _largest_numbers(fmt: Format, found: Elements, roundoff: float) -> Any:
    """For each element the largest number of its tensor and of what is summed; zero where all of that is."""
    # What is left of the bound without the rounding of the output, which is of the output's own size.
    spread = np.maximum(found.bound - ulp_array(fmt, np.abs(found.value) + found.bound), 0.0)
    return np.maximum(np.nan_to_num(spread / roundoff, nan=0.0, posinf=0.0), _largest(found.value))


def _largest(values: Any) -> float:
    """The largest finite absolute value; 0 where there is none."""
    sizes = np.abs(np.asarray(values, dtype=np.float64))
    return float(np.max(sizes, where=np.isfinite(sizes), initial=0.0))
