"""Aten operations that form windows of a tensor, or add them up again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .....reference.array import bind, windows
from ..table import RULES, enter_move
from .convolution import insert_zeros

aten = torch.ops.aten


def _unfold(x: Any, dim: int, size: int, step: int) -> Any:
    """Windows along one dim, whose elements are the last dim."""
    dim %= np.ndim(x)
    return np.moveaxis(windows(np.moveaxis(x, dim, -1), (size,), (step,), (1,)), -2, dim)


def _im2col(
    x: Any, sizes: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Any:
    """torch.nn.functional.unfold: (N, C · elements, windows); also without N."""
    view = windows(insert_zeros(x, padding, padding, (1, 1)), sizes, stride, dilation)
    lead, counts = np.shape(view)[:-4], np.shape(view)[-4:-2]
    columns = np.moveaxis(np.reshape(view, (*lead, math.prod(counts), math.prod(sizes))), -1, -2)
    return np.reshape(columns, (*lead[:-1], lead[-1] * math.prod(sizes), math.prod(counts)))


def _col2im(
    x: Any, output_size: Sequence[int], sizes: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
    stride: Sequence[int],
) -> Any:  # fmt: skip
    """torch.nn.functional.fold: the sum of the windows where they overlap."""
    wide = [n + 2 * p for n, p in zip(output_size, padding, strict=True)]
    each = zip(wide, sizes, stride, dilation, strict=True)
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in each]
    lead, channels = np.shape(x)[:-2], np.shape(x)[-2] // math.prod(sizes)
    columns = np.moveaxis(np.reshape(x, (*lead, channels, math.prod(sizes), math.prod(counts))), -2, -1)
    params = {"shape": (*lead, channels, *wide), "sizes": tuple(sizes), "stride": tuple(stride)}
    params["dilation"] = tuple(dilation)
    out = bind("overlap", (np.reshape(columns, (*lead, channels, *counts, *sizes)),), params)
    return out[(..., *(slice(p, n - p) for n, p in zip(wide, padding, strict=True)))]


enter_move(_unfold, aten.unfold.default)
enter_move(_im2col, aten.im2col.default)
RULES[aten.col2im.default] = _col2im
