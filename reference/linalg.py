"""Formulas of linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def trace(input: Array) -> Array:
    """Σ a_ii over the diagonal of a matrix, square or not."""
    # An index array and not `np.trace`, so that this text says itself what the diagonal of a matrix that is not square
    # is.
    along = np.arange(min(np.shape(input)))
    return np.sum(input[along, along], axis=0)
