"""The worst element of an output, as a report shows it.

Where a failing output is too large to be read exactly, its worst elements are read exactly, each by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpmath import libmp

from ...reference.exact import Exact
from ...reference.formats import FORMATS, Format
from ..bound import accept, scale
from ..bound.rounding import Ball
from ..bound.rounding.one_element import exact_element
from ..op.declaration import Tensor, dtype_name, to_array
from ..op.paths import Expected
from ..verdicts.verdict import Worst

#: The most elements of an output that are read by themselves, the worst first, until one is outside by its exact value.
MOST = 4


@dataclass(frozen=True)
class ElementAlone:
    """One element that was read exactly by itself: its index, its exact value, its place in its accept set."""

    at: tuple[Any, ...]
    exact: Exact
    elements: accept.Elements


def find_worst_alone(
    expected: Expected, index: int, computed: Any, fmt: Format, ball: Ball, elements: accept.Elements, order: int
) -> ElementAlone | None:
    """The worst element that is outside also by its exact value; None where its exact value would take too long.

    Up to `MOST` elements are read. One that is inside by its exact value is entered as accepted in `elements`.

    Args:
        expected, index: what the outputs are judged against, and which of them this one is.
        computed, fmt, ball: the output as float64, its format and its reading. elements: in their accept sets.
        order: of the derivative, as for `accept.place_in_accept_sets`.
    """
    for _ in range(MOST):
        if np.all(elements.accepted):
            break
        at = elements.worst()
        exact = exact_element(expected.formula, expected.operands, ball.contract, index, at)
        if exact is None:
            break
        here = Ball(np.asarray(ball.centre[at]), np.asarray(ball.radii()[at]), ball.contract)
        alone = accept.place_in_accept_sets(np.asarray(computed[at]), fmt, here, exact, expected.finite, order)
        if not np.all(alone.accepted):
            return ElementAlone(at, exact, alone)
        elements.accepted[at] = True
    return None


def worst_of(tensor: Tensor, elements: accept.Elements, exact: Exact | None, name: str, path: str, at: Any) -> Worst:
    """One element as a report shows it.

    Args:
        tensor: the output. elements: in their accept sets. exact: the exact reading of the output, if one was made.
        name, path: the names of the output and its path. at: the index of the element.
    """
    computed = float(to_array(tensor)[at])
    decimal = repr(float(elements.value[at])) if exact is None else libmp.to_str(exact.values[at], 25)
    where = f"{name}[{', '.join(str(int(i)) for i in at)}]" if at else name
    ulps = ulps_of(FORMATS[dtype_name(tensor.dtype)], elements, at)
    return Worst(where, path, computed.hex(), decimal, ulps, float(elements.ratio[at]))


def ulps_of(fmt: Format, elements: accept.Elements, at: tuple[int, ...]) -> float:
    """The error of an element in ulp; NaN where its exact value is near zero, where an ulp measures nothing."""
    bound, value = float(elements.bound[at]), float(elements.value[at])
    return math.nan if scale.near_zero(fmt, bound, value) else float(elements.ulp[at])


def in_ulps(worst: Worst) -> str:
    """The error in ulp for a message, with a comma; "" where an ulp measures nothing (`ulps_of`)."""
    return "" if math.isnan(worst.ulp) else f"{worst.ulp:.4g} ulp, "
