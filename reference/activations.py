"""Formulas of log-sigmoid.

log(1 / (1 + exp(−x))) = min(x, 0) − log(1 + exp(−|x|)): M. Mächler, Accurately computing log(1 − exp(−|a|)), Rmpfr
vignette, 2012, section 2. Which side a zero is taken to be on is the same everywhere, so that the branches'
derivatives, which agree at zero in every order, are never mixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


def _decay(x: Array) -> Array:
    """exp(−|x|)."""
    return np.exp(np.where(x < 0, x, -x))


def log_sigmoid(input: Array) -> Array:
    """min(x, 0) − log(1 + exp(−|x|))."""
    # log1p, and not the logarithm of a sum: from some |x| on, 1 + exp(−|x|) rounds to 1, and the bound that is derived
    # from this text would forgive an op that returns 0 there.
    return np.where(input < 0, input, 0.0) - np.log1p(_decay(input))


def log_sigmoid_forward(input: Array) -> tuple[Array, Array]:
    """`log_sigmoid` and a buffer of no elements."""
    return log_sigmoid(input), np.ravel(np.zeros_like(input))[:0]


def log_sigmoid_backward(grad_output: Array, input: Array, buffer: Array) -> Array:
    """g / (1 + exp(x)), as g exp(−|x|) / (1 + exp(−|x|)) for positive x."""
    # For positive x the quotient is expanded by exp(−x), since exp(x) overflows where the result is only small.
    decay = _decay(input)
    return grad_output * (np.where(input < 0, 1.0, decay) / (1.0 + decay))
