"""Formulas of what moves tensors, between devices or past module hooks: matrices of zeros and ones.

Places are counted, not named.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

Array = Any


def broadcast(places: int, *args: Array) -> tuple[Array, ...]:
    """y_{p,j} = x_j, place by place."""
    return args * places


def reduce_add_coalesced(num_inputs: int, *args: Array) -> tuple[Array, ...]:
    """y_j = Σ_p x_{p,j}; arguments are those of the first place, then those of the second, and so on."""
    return tuple(_sum_over_places(args[j::num_inputs]) for j in range(num_inputs))


def gather(dim: int, *args: Array) -> Array:
    """y = (x_0, x_1, ...) along dim; 0-dim tensors make a vector."""
    rows = [np.reshape(x, (1,)) for x in args] if args[0].ndim == 0 else args
    return np.concatenate(rows, axis=dim)


def scatter(chunk_sizes: tuple[int, ...], dim: int, input: Array) -> tuple[Array, ...]:
    """y_p = the part of x along dim that starts where that of p − 1 ends."""
    ends = itertools.accumulate(chunk_sizes)
    axis = dim % input.ndim
    # The index is written out for the axes before `dim`; those behind it are taken whole.
    before = (slice(None),) * axis
    return tuple(input[(*before, slice(end - size, end))] for size, end in zip(chunk_sizes, ends, strict=True))


def _sum_over_places(terms: tuple[Array, ...]) -> Array:
    """In any order, as a sum over an axis is; one term after the other would say which comes first."""
    return np.sum(np.stack(terms), axis=0)


def backward_hook_identity(*args: Array) -> tuple[Array, ...]:
    """y_i = x_i, through which module hooks see gradients."""
    return args
