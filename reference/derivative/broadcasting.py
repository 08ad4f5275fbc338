"""The adjoint of broadcasting."""

from __future__ import annotations

from typing import Any

import numpy as np


def unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum of `g` over the axes along which `shape` was broadcast to `g`'s shape: the adjoint of broadcasting."""
    have = np.shape(g)
    if have == shape:
        return g
    extra = len(have) - len(shape)
    axes = tuple(range(extra)) + tuple(i + extra for i, n in enumerate(shape) if n == 1 and have[i + extra] != 1)
    total = np.sum(g, axis=axes, keepdims=True) if axes else g
    return np.reshape(total, shape)
