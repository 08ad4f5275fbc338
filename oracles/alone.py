"""The worst elements of a failing output that is too large for an exact reading, each read exactly by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..reference.exact import Exact
from ..reference.formats import Format
from . import accept
from .paths import Expected
from .rounding import Ball
from .rounding.one_element import exact_element

#: So many elements are read, the worst one first, until one is outside by its exact value, too.
MOST = 4


@dataclass(frozen=True)
class Alone:
    """One element that was read exactly by itself: where it is in its output, its exact value, and where it stands."""

    at: tuple[Any, ...]
    exact: Exact
    found: accept.Elements


def worst_alone(
    expected: Expected, index: int, computed: Any, fmt: Format, ball: Ball, found: accept.Elements, order: int
) -> Alone | None:
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
        alone = accept.judge(np.asarray(computed[at]), fmt, here, exact, expected.finite, order)
        if not np.all(alone.accepted):
            return Alone(at, exact, alone)
        found.accepted[at] = True
    return None
