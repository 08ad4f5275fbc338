"""The errors of a result: the largest over its bound, and what all of them together add to the error of the loss."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...oracles.bound.accept import SLACK
from ...oracles.bound.rounding import Ball
from ...oracles.specs.storage import format_of
from ...reference.formats import half_unit_below, ulp_array
from .call import Tensor

#: Elements of a block, whose arrays stay in the cache.
_BLOCK = 2**15


@dataclass
class Errors:
    """The errors of a result.

    Attributes:
        ratio: the largest error over its bound. contribution: the sum of adjoint times error; NaN where no adjoint is
            known. Elements that are not finite count 0 in both.
        are_near: whether each element is certainly within the radius of its centre, which is in the format's range:
            then it is in its accept set, being its own rounding.
    """

    ratio: float = 0.0
    contribution: float = math.nan
    are_near: bool = True


@np.errstate(all="ignore")
def measure_errors(computed: Tensor, adjoint: Tensor | None, ball: Ball) -> Errors:
    """The errors of a result.

    Args:
        computed: the result. adjoint: the derivative of the loss by it, of its shape; None where none is known.
        ball: its reading.
    """
    fmt, errors = format_of(computed.dtype), Errors()
    centre, radius = ball.centre.reshape(-1), ball.radii().reshape(-1)
    weights = None if adjoint is None or adjoint.shape != computed.shape else _blocks(adjoint)
    if weights is not None:
        errors.contribution = 0.0
    errors.are_near = fmt.computes and fmt.has_infinities and centre.dtype == np.float64
    for start, values in enumerate(_blocks(computed)):
        part = slice(start * _BLOCK, start * _BLOCK + len(values))
        middle = np.asarray(centre[part], dtype=np.float64)
        error = values - middle  # in memory of its own: the values of float64 are the recorded ones
        total, weight = float(error.sum()), None if weights is None else next(weights)
        if not math.isfinite(total):
            error, errors.are_near = np.where(np.isfinite(error), error, 0.0), False
        if weight is not None:
            product = float(np.dot(weight, error))
            finite = math.isfinite(product)
            errors.contribution += product if finite else float(np.nansum(np.where(error == 0, 0.0, weight * error)))
        np.abs(error, out=error)
        wide, most = np.asarray(radius[part], dtype=np.float64), np.abs(middle)
        most += wide
        largest = float(np.max(most))
        errors.are_near = errors.are_near and largest <= fmt.max and not np.greater(error * (1 + SLACK), wide).any()
        unit = half_unit_below(fmt, most) if largest <= fmt.max else 0.5 * ulp_array(fmt, most)
        unit += wide
        error /= unit
        errors.ratio = max(errors.ratio, float(np.fmax.reduce(error)))
    return errors


def _blocks(tensor: Tensor) -> Iterator[Any]:
    """The elements as float64, in blocks."""
    flat = tensor.detach().cpu().reshape(-1)
    return (flat[start : start + _BLOCK].double().numpy() for start in range(0, len(flat), _BLOCK))
