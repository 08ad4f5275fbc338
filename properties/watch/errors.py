"""The errors of a result: the largest over its bound, and what all of them together add to the error of the loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...oracles.bound.accept import SLACK
from ...oracles.bound.rounding import Ball
from ...oracles.specs.storage import format_of
from ...reference.formats import Format, half_unit_below, ulp_array
from .call import Tensor

#: Elements of a block, whose arrays stay in the cache.
_BLOCK = 2**15


@dataclass
class Errors:
    """The errors of a result, as far as they are measured.

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
    def add(self, computed: Tensor, adjoint: Tensor | None, ball: Ball) -> None:
        """Measure a result, or some rows of it.

        Args:
            computed: the result. adjoint: the derivative of the loss by it, of its shape; None where none is known.
            ball: its reading.
        """
        fmt, centre = format_of(computed.dtype), ball.centre.reshape(-1)
        radius = None if ball.exact else ball.radii().reshape(-1)
        values = computed.detach().cpu().reshape(-1)
        weights = None if adjoint is None or adjoint.shape != computed.shape else adjoint.detach().cpu().reshape(-1)
        if weights is not None and math.isnan(self.contribution):
            self.contribution = 0.0
        self.are_near &= fmt.computes and fmt.has_infinities and centre.dtype == np.float64
        for start in range(0, len(values), _BLOCK):
            part = slice(start, start + _BLOCK)
            own, middle = values[part].double().numpy(), np.asarray(centre[part], dtype=np.float64)
            if radius is None and np.array_equal(own, middle):  # A move has no error.
                continue
            wide = np.zeros(len(middle)) if radius is None else np.asarray(radius[part], dtype=np.float64)
            self._add(own - middle, middle, wide, None if weights is None else weights[part].double().numpy(), fmt)

    def _add(self, error: Any, middle: Any, wide: Any, weight: Any, fmt: Format) -> None:
        """Measure a block of errors, which are written over."""
        if weight is not None:
            product = float(np.dot(weight, error))
            if not math.isfinite(product):
                error = np.where(np.isfinite(error), error, 0.0)
                self.are_near, product = False, float(np.nansum(np.where(error == 0, 0.0, weight * error)))
            self.contribution += product
        np.abs(error, out=error)
        most = np.abs(middle)
        most += wide
        largest = float(np.max(most))
        # A NaN is in no comparison, and so it is not near.
        near = largest <= fmt.max and bool((error * (1 + SLACK) <= wide).all())
        self.are_near &= near
        if not near:
            error[~np.isfinite(error)] = 0.0
        unit = half_unit_below(fmt, most) if largest <= fmt.max else 0.5 * ulp_array(fmt, most)
        unit += wide
        error /= unit
        self.ratio = max(self.ratio, float(np.fmax.reduce(error)))


def measure_errors(computed: Tensor, adjoint: Tensor | None, ball: Ball) -> Errors:
    """The errors of a whole result; arguments as for `Errors.add`."""
    errors = Errors()
    errors.add(computed, adjoint, ball)
    return errors
