"""Formula of local response normalisation across channels.

Krizhevsky, Sutskever, Hinton: ImageNet Classification with Deep Convolutional Neural Networks, NeurIPS 2012,
section 3.3, with α / size in place of their α.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .array import algorithm_of

Array = Any


def cross_map_lrn2d(input: Array, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> Array:
    """b_c = a_c (k + α/size Σ a_c'²)^(−β) over the channels c' from c − ⌊size/2⌋ to c + ⌊(size − 1)/2⌋ that exist."""
    return input * np.power(_base(input, size, alpha, k), -beta)


@algorithm_of(cross_map_lrn2d)
def _quotient(input: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    return input / np.power(_base(input, size, alpha, k), beta)


@algorithm_of(cross_map_lrn2d)
def _roots(input: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    """The usual exponent without a power: s^(3/4) = √s √√s."""
    if beta != 0.75:
        return cross_map_lrn2d(input, size, alpha, beta, k)
    root = np.sqrt(_base(input, size, alpha, k))
    return input / (root * np.sqrt(root))


def _base(input: Array, size: int, alpha: float, k: float) -> Array:
    channels = np.shape(input)[1]
    before, after = size // 2, (size - 1) // 2
    square = np.square(input)
    sums = [
        np.sum(square[:, max(c - before, 0) : min(c + after, channels - 1) + 1], axis=1, keepdims=True)
        for c in range(channels)
    ]
    window = np.concatenate(sums, axis=1) if sums else square
    return k + (alpha / size) * window
