"""Formulas of linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def trace(input: Array) -> Array:
    """Σ a_ii over the diagonal of a matrix, square or not."""
    along = np.arange(min(np.shape(input)))
    return np.sum(input[along, along], axis=0)
