"""Windows of an array: how many there are, and where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def positions_of(
    lengths: Sequence[int], sizes: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[int, ...]:
    """How many windows lie along each axis.

    Args:
        lengths: of the axes. sizes: of a window, in elements. stride: from window to window.
        dilation: from element to element of a window.
    """
    each = zip(lengths, sizes, stride, dilation, strict=True)
    return tuple(max((n - d * (k - 1) - 1) // s + 1, 0) for n, k, s, d in each)


def windows_of(x: Any, sizes: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Any:
    """The windows of a NumPy array along its last axes, as a view: those axes count windows, and new ones elements.

    Args:
        x: (..., *lengths). sizes, stride, dilation: see `positions_of`.

    Returns:
        (..., *positions, *sizes), which must not be written.
    """
    lead = x.ndim - len(sizes)
    positions = positions_of(x.shape[lead:], sizes, stride, dilation)
    strides = x.strides[lead:]
    steps = [s * n for s, n in zip(stride, strides, strict=True)]
    within = [d * n for d, n in zip(dilation, strides, strict=True)]
    return np.lib.stride_tricks.as_strided(
        x, (*x.shape[:lead], *positions, *sizes), (*x.strides[:lead], *steps, *within), writeable=False
    )


def offsets_of(x: Any, sizes: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Any:
    """For every element of a window, in order: its index, and the index of that element of all windows of `x`.

    Args:
        x: (..., *lengths). sizes, stride, dilation: see `positions_of`.
    """
    positions = positions_of(np.shape(x)[np.ndim(x) - len(sizes) :], sizes, stride, dilation)
    for offset in np.ndindex(*sizes):
        each = zip(offset, positions, stride, dilation, strict=True)
        yield offset, (..., *(slice(o * d, o * d + s * (n - 1) + 1, s) for o, n, s, d in each))
