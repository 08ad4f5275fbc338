"""The worst element of an output, as a report tells of it.

Of a failing output that is too large for an exact reading, the worst elements are read exactly, each by itself.
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

#: So many elements are read, the worst one first, until one is outside by its exact value, too.
MOST = 4


@dataclass(frozen=True)
class ElementAlone:
    """One element that was read exactly by itself: where it is in its output, its exact value, and where it stands."""

    at: tuple[Any, ...]
    exact: Exact
    found: accept.Elements


def worst_alone(
    expected: Expected, index: int, computed: Any, fmt: Format, ball: Ball, found: accept.Elements, order: int
) -> ElementAlone | None:
    """The worst of the elements that are outside, by its exact value; None where there is no such value in seconds.

    Elements that are inside by their exact values are entered in `found`, up to `MOST` of them.

    Args:
        expected, index: what the outputs are judged against, and which of them this one is.
        computed, fmt, ball: the output as float64, its format and its reading. found: where its elements stand.
        order: of the derivative, as for `accept.judge`.
    """
    for _ in range(MOST):
        if np.all(found.accepted):
            break
        at = found.worst()
        exact = exact_element(expected.formula, expected.operands, ball.contract, index, at)
        if exact is None:
            break
        here = Ball(np.asarray(ball.centre[at]), np.asarray(ball.radii()[at]), ball.contract)
        alone = accept.place_in_accept_sets(np.asarray(computed[at]), fmt, here, exact, expected.finite, order)
        if not np.all(alone.accepted):
            return ElementAlone(at, exact, alone)
        found.accepted[at] = True
    return None


def worst_of(tensor: Tensor, found: accept.Elements, exact: Exact | None, name: str, path: str, at: Any) -> Worst:
    """How the report tells of one element.

    Args:
        tensor: the output. found: where its elements stand. exact: its exact reading, if one was made.
        name, path: what the output and its path are called. at: the index of the element.
    """
    computed = float(to_array(tensor)[at])
    decimal = repr(float(found.value[at])) if exact is None else libmp.to_str(exact.values[at], 25)
    where = f"{name}[{', '.join(str(int(i)) for i in at)}]" if at else name
    ulps = ulps_of(FORMATS[dtype_name(tensor.dtype)], found, at)
    return Worst(where, path, computed.hex(), decimal, ulps, float(found.ratio[at]))


def ulps_of(fmt: Format, found: accept.Elements, at: tuple[int, ...]) -> float:
    """The error of an element in ulp; NaN where its exact value is near zero, because an ulp of it says nothing."""
    bound, value = float(found.bound[at]), float(found.value[at])
    return math.nan if scale.near_zero(fmt, bound, value) else float(found.ulp[at])


def in_ulps(worst: Worst) -> str:
    """The error in ulp for a message, with a comma; nothing where an ulp says nothing."""
    return "" if math.isnan(worst.ulp) else f"{worst.ulp:.4g} ulp, "
