"""Convolutions in aten, along any number of axes: the primitive `correlate`, zeros around its operand, and windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .....reference.algorithms import STORED, Algorithm
from .....reference.array import Array, among, bind, scatter, store, windows
from ..table import enter, enter_moves


def for_each_axis(values: Sequence[int], axes: int) -> tuple[int, ...]:
    """A number for each axis; torch takes a single one for all of them."""
    numbers = tuple(int(n) for n in values)
    return numbers * axes if len(numbers) == 1 else numbers


def insert_zeros(x: Any, before: Sequence[int], after: Sequence[int], step: Sequence[int]) -> Any:
    """`x` with zeros before, after and between its elements along the last axes; negative ones cut elements off.

    An evaluation may leave out products with these zeros, as a kernel does that never forms them.
    """
    lengths = np.shape(x)[np.ndim(x) - len(before) :]
    spread = [(n - 1) * s + 1 for n, s in zip(lengths, step, strict=True)]
    wide = tuple(max(b, 0) + n + max(a, 0) for b, n, a in zip(before, spread, after, strict=True))
    if wide != lengths:
        index = (slice(max(b, 0), max(b, 0) + n, s) for b, n, s in zip(before, spread, step, strict=True))
        shape = (*np.shape(x)[: np.ndim(x) - len(before)], *wide)
        place = (..., *index)
        x = scatter(x, place, shape, inserted=True) if isinstance(x, Array) else _zeros_with(x, place, shape)
    if any(n < 0 for n in (*before, *after)):
        each = zip(before, wide, after, strict=True)
        x = x[(..., *(slice(max(-b, 0), n - max(-a, 0)) for b, n, a in each))]
    return x


def _zeros_with(x: Any, index: Any, shape: tuple[int, ...]) -> Any:
    out = np.zeros(shape)
    out[index] = x
    return out


def _convolution(
    x: Any, weight: Any, bias: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    transposed: bool, output_padding: Sequence[int], groups: int,
) -> Any:  # fmt: skip
    """aten.convolution: x (N, C, *lengths); weight (O, C / groups, *sizes), (C, O / groups, *sizes) if transposed."""
    axes = np.ndim(x) - 2
    stride, padding, dilation, extra = (for_each_axis(n, axes) for n in (stride, padding, dilation, output_padding))
    sizes = np.shape(weight)[2:]
    own = np.reshape(weight, (groups, np.shape(weight)[0] // groups, *np.shape(weight)[1:]))
    if transposed:
        # The adjoint of a convolution: zeros between the elements of x, and the windows turned round.
        # What is cut off is computed first, because a kernel may form products with its cotangents, which are zeros.
        margin = [d * (k - 1) for d, k in zip(dilation, sizes, strict=True)]
        x = insert_zeros(x, margin, [m + e for m, e in zip(margin, extra, strict=True)], stride)
        swapped: Any = np.swapaxes(own, 1, 2)
        own = swapped[(..., *(slice(None, None, -1),) * axes)]
        stride = (1,) * axes
    else:
        x = insert_zeros(x, padding, padding, (1,) * axes)
    grouped = np.reshape(x, (np.shape(x)[0], groups, np.shape(x)[1] // groups, *np.shape(x)[2:]))
    if bias is not None:
        # The bias may be what a sum begins with, and then passes all its roundings: so it is one more term.
        grouped = np.concatenate([grouped, np.ones((*np.shape(grouped)[:2], 1, *np.shape(grouped)[3:]))], axis=2)
        first = np.reshape(bias, (*np.shape(own)[:2], 1, *(1,) * axes))
        own = np.concatenate([own, insert_zeros(first, (0,) * axes, [n - 1 for n in sizes], (1,) * axes)], axis=2)
    out: Any = bind("correlate", (grouped, own), {"stride": stride, "dilation": dilation})
    out = np.reshape(out, (np.shape(x)[0], math.prod(np.shape(own)[:2]), *np.shape(out)[3:]))
    if transposed and any(padding):
        out = out[(..., *(slice(p, n - p) for p, n in zip(padding, np.shape(out)[2:], strict=True)))]
    return out


def _by_time(x: Any, weight: Any, bias: Any, pad: int = 0) -> Any:
    """conv_tbc: x (time, N, C), weight (size, C, O)."""

    def at_once(x: Any, weight: Any, bias: Any) -> Any:
        moved, turned = np.transpose(x, (1, 2, 0)), np.transpose(weight, (2, 1, 0))
        return np.transpose(_convolution(moved, turned, bias, [1], [pad], [1], False, [0], 1), (2, 0, 1))

    def in_stored_steps(x: Any, weight: Any, bias: Any) -> Any:
        wide = np.moveaxis(insert_zeros(np.moveaxis(x, 0, -1), [pad], [pad], [1]), -1, 0)
        count = np.shape(wide)[0] - np.shape(weight)[0] + 1
        # torch's backward sums the gradient of the bias over time, stores the sums, and adds them up over the batch.
        # The derivatives of these two broadcasts are the same two sums.
        of_batch = np.broadcast_to(bias, (np.shape(x)[1], *np.shape(bias)))
        total = np.broadcast_to(of_batch, (count, *np.shape(of_batch)))
        for k in range(np.shape(weight)[0]):
            total = store(total + np.matmul(wide[k : k + count], weight[k]), always=False)
        return total

    return among([Algorithm(at_once, ""), Algorithm(in_stored_steps, STORED)], x, weight, bias)


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


enter_moves({"im2col": _im2col})
enter({"convolution": _convolution, "conv_tbc": _by_time, "col2im": _col2im})
