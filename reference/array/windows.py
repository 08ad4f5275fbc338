"""The words of a formula that form windows of an array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .kind import WORDS, bind
from .shapes import normalize_axes


def windows(x: Any, sizes: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Any:
    """The windows of the last axes: those count windows then, and new axes behind them count their elements.

    Args:
        x: (..., *lengths). sizes, stride, dilation: a number per axis (`reference.windows.positions_of`).
    """
    params = {"sizes": tuple(sizes), "stride": tuple(stride), "dilation": tuple(dilation)}
    return bind("windows", (x,), params)


def _sliding_window_view(x: Any, window_shape: Any, axis: Any = None) -> Any:
    """`numpy.lib.stride_tricks.sliding_window_view`."""
    sizes = (window_shape,) if isinstance(window_shape, int) else tuple(window_shape)
    axes = normalize_axes(axis, x.ndim)
    if len(axes) != len(sizes):
        raise ValueError(f"window_shape: got {len(sizes)} lengths for axis={axis}, need one for each axis")
    rest = [i for i in range(x.ndim) if i not in axes]
    view = windows(np.transpose(x, (*rest, *axes)), sizes, (1,) * len(sizes), (1,) * len(sizes))
    order = [*rest, *axes]
    back = [order.index(i) for i in range(x.ndim)]
    return np.transpose(view, (*back, *range(x.ndim, x.ndim + len(sizes))))


WORDS[np.lib.stride_tricks.sliding_window_view] = _sliding_window_view
