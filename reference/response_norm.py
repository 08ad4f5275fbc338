"""Formula of local response normalisation across channels.

Krizhevsky, Sutskever, Hinton: ImageNet Classification with Deep Convolutional Neural Networks, NeurIPS 2012,
section 3.3, with α / size in place of their α.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .algorithms import Inapplicable, algorithm_of

Array = Any


def cross_map_lrn2d(input: Array, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> Array:
    """b_c = a_c (k + α/size Σ a_c'²)^(−β) over the channels c' from c − ⌊size/2⌋ to c + ⌊(size − 1)/2⌋ that exist.

    Args:
        input: a, (N, C, ...).
        size: how many channels a window has, at least 1.
        alpha, beta, k: α, β and k.
    """
    return input * np.power(_base(input, size, alpha, k), -beta)


@algorithm_of(cross_map_lrn2d)
def _quotient(input: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    """The usual exponents divide; a negative one multiplies, and to divide by its reciprocal would round twice."""
    if beta < 0:
        raise Inapplicable
    return input / np.power(_base(input, size, alpha, k), beta)


@algorithm_of(cross_map_lrn2d)
def _roots(input: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    """The usual exponent without a power: s^(3/4) = √s √√s."""
    if beta != 0.75:
        raise Inapplicable
    root = np.sqrt(_base(input, size, alpha, k))
    return input / (root * np.sqrt(root))


def _base(input: Array, size: int, alpha: float, k: float) -> Array:
    images, channels, *positions = np.shape(input)
    # A window that reaches beyond all channels is cut; its elements beyond the first and the last channel are zero.
    before, after = (max(min(reach, channels - 1), 0) for reach in (size // 2, (size - 1) // 2))
    zeros = [np.zeros((images, count, *positions)) for count in (before, after)]
    padded = np.concatenate([zeros[0], np.square(input), zeros[1]], axis=1)
    # One slice per channel of the window, not per channel of the input: there may be thousands of those.
    neighbours = [padded[:, at : at + channels][:, None] for at in range(before + 1 + after)]
    return k + (alpha / size) * np.sum(np.concatenate(neighbours, axis=1), axis=1)
