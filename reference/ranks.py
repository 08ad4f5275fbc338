"""Which places elements may take when they are sorted, if each is only known to lie between two ends."""

from __future__ import annotations

from typing import Any

import numpy as np


def places(low: Any, high: Any) -> tuple[Any, Any]:
    """The first and the last place of every element along the last axis, in ascending order.

    Before an element come surely those whose upper end is below its lower end, and after it those whose lower end is
    above its upper end.

    Args:
        low, high: ends of every element, of one shape; NaNs come last.
    """
    count = low.shape[-1]
    # All ends are sorted, lower ones before equal upper ones. Before the lower end of an element stand the upper ends
    # of all elements that surely precede it; before its upper end, the lower ends of all that may, and its own.
    order = np.argsort(np.concatenate([low, high], axis=-1), axis=-1, kind="stable")
    is_high = order >= count
    back = np.argsort(order, axis=-1, kind="stable")
    highs = np.take_along_axis(np.cumsum(is_high, axis=-1), back, -1)
    lows = np.take_along_axis(np.cumsum(~is_high, axis=-1), back, -1)
    return highs[..., :count], lows[..., count:] - 1
