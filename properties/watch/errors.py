"""The errors of a result: the largest over its bound, and what all of them together add to the error of the loss."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...oracles.bound.rounding import Ball
from ...oracles.specs.storage import format_of
from ...reference.formats import ulp_array
from .call import Tensor

#: Elements of a block, whose arrays stay in the cache.
_BLOCK = 2**14
_SMALLEST = 5e-324


@np.errstate(all="ignore")
def measure_errors(computed: Tensor, adjoint: Tensor | None, ball: Ball) -> tuple[float, float]:
    """The largest error over its bound, and the sum of adjoint times error; elements that are not finite count 0.

    Args:
        computed: the result. adjoint: the derivative of the loss by it, of its shape; None where none is known, and
            then the sum is NaN. ball: its reading.
    """
    fmt, largest, total = format_of(computed.dtype), 0.0, 0.0
    centre, radius = ball.centre.reshape(-1), ball.radii().reshape(-1)
    weights = None if adjoint is None or adjoint.shape != computed.shape else _blocks(adjoint)
    for start, values in enumerate(_blocks(computed)):
        part = slice(start * _BLOCK, start * _BLOCK + len(values))
        middle = np.asarray(centre[part], dtype=np.float64)
        error = values - middle
        weight = None if weights is None else next(weights)
        if not error.any():
            continue
        if not math.isfinite(float(error.sum())):
            error = np.where(np.isfinite(error), error, 0.0)
        if weight is not None:
            product = float(np.dot(weight, error))
            total += product if math.isfinite(product) else float(np.nansum(np.where(error == 0, 0.0, weight * error)))
        np.abs(error, out=error)
        wide = np.asarray(radius[part], dtype=np.float64)
        wide = wide + 0.5 * ulp_array(fmt, np.abs(middle) + wide)
        error /= np.maximum(wide, _SMALLEST, out=wide)
        largest = max(largest, float(np.fmax.reduce(error)))
    return largest, math.nan if weights is None else total


def _blocks(tensor: Tensor) -> Iterator[Any]:
    """The elements as float64, in blocks."""
    flat = tensor.detach().cpu().reshape(-1)
    return (flat[start : start + _BLOCK].double().numpy() for start in range(0, len(flat), _BLOCK))
