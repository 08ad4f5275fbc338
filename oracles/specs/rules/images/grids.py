"""Aten operations that sample an image at the points of a grid.

What is hard here is the pixel that a point lies in: rounding decides that next to an edge of pixels. So the points are
arrays of the reading, with their errors, and a comparison that these leave open takes both pixels.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .....reference.array import Array, constant
from .....reference.condition import condition, is_open
from .....reference.exact import Exact, to_float_pair
from ..table import enter
from .interpolation import CUBIC, as_constant, keep_in_format

#: aten's numbers for how a point is interpolated, and for what is beyond the image.
_LINEAR, _NEAREST, _CUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2
#: A slope that is not known is between this and its negative.
_STEEPEST = 2.0**40


class _Axis(NamedTuple):
    """Points along one axis of the image, in pixels.

    Attributes:
        at: the points, an array of the reading. plain: as numbers. length: of the image.
    """

    at: Any
    plain: Any
    length: int


def _numbers(x: Any) -> Any:
    """About where an array's elements are; 0 for those that are NaN or infinite."""
    base = constant(x)
    if isinstance(base, Exact):
        plain = to_float_pair(base)[0]
    else:
        plain = np.asarray(base.comparable() if isinstance(base, Array) else base, dtype=np.float64)
    return np.nan_to_num(plain, nan=0.0, posinf=0.0, neginf=0.0)


def _move_into_image(axis: _Axis, padding: int, corners: bool) -> _Axis:
    """The points as torch moves them into the image, for all but zero padding."""
    at, plain, last = axis.at, axis.plain, float(axis.length - 1)
    if padding == _REFLECTION:
        low, span = (0.0, last) if corners else (-0.5, last + 1.0)
        if span == 0.0:
            at, plain = at * 0.0, plain * 0.0
        else:
            folds = np.floor((plain - low) / span)
            odd = folds % 2 != 0
            offset = keep_in_format(at - low) if low else at
            at = keep_in_format(np.where(odd, (folds + 1.0) * span - offset, offset - folds * span))
            at = keep_in_format(at + low) if low else at
            plain = np.where(odd, (folds + 1.0) * span - (plain - low), plain - low - folds * span) + low
    if padding != _ZEROS:
        at = np.where(at <= 0.0, 0.0, np.where(at >= last, last, at))
        plain = np.clip(plain, 0.0, last)
    return _Axis(at, plain, axis.length)


def _move_index(index: Any, length: int, padding: int, corners: bool) -> Any:
    """The pixels that pixels beyond the image stand for, along one axis; with zero padding they stay beyond it."""
    if padding == _REFLECTION and length > 1:
        period = 2 * (length - 1) if corners else 2 * length
        index = np.mod(index, period)
        index = np.where(index < length, index, period - index - (0 if corners else 1))
    return index if padding == _ZEROS else np.clip(index, 0, length - 1)


def _pick_pixels(x: Any, pixels: Sequence[Any]) -> Any:
    """x (N, C, *lengths) at pixels, one array of indices (N, *outputs) per axis; zeros beyond the image."""
    lengths = np.shape(x)[2:]
    inside = np.ones(np.shape(pixels[0]), dtype=bool)
    for pixel, length in zip(pixels, lengths, strict=True):
        inside &= (pixel >= 0) & (pixel < length)
    outputs = (1,) * (inside.ndim - 1)
    batch = np.arange(np.shape(x)[0]).reshape(-1, 1, *outputs)
    channel = np.arange(np.shape(x)[1]).reshape(1, -1, *outputs)
    within = (np.clip(pixel, 0, n - 1)[:, None] for pixel, n in zip(pixels, lengths, strict=True))
    values = x[(batch, channel, *within)]
    return values if inside.all() else np.where(inside[:, None], values, 0.0)


def _weigh_pixels(x: Any, pixels: Sequence[Sequence[Any]], weights: Sequence[Sequence[Any]]) -> Any:
    """The sum of pixels, of which every axis has as many as it has weights."""
    total: Any = None
    for taps in itertools.product(*(range(len(each)) for each in weights)):
        weight: Any = None
        for own, tap in zip(reversed(weights), reversed(taps), strict=True):  # as torch does: along x first
            weight = own[tap] if weight is None else keep_in_format(weight * own[tap])
        term = keep_in_format(_pick_pixels(x, [own[tap] for own, tap in zip(pixels, taps, strict=True)]) * weight)
        total = term if total is None else keep_in_format(total + term)
    return total


def _linear(x: Any, bases: Sequence[Any], parts: Sequence[Any], padding: int, corners: bool) -> Any:
    pixels = [(base, base + 1) for base in bases]
    return _weigh_pixels(x, pixels, [(keep_in_format(1.0 - part), part) for part in parts])


def _cubic_weights(part: Any) -> list[Any]:
    """The weights of four pixels, whose every step torch keeps in the format of the image on CPUs."""

    def near(t: Any) -> Any:
        line = keep_in_format(keep_in_format(t * (CUBIC + 2.0)) - (CUBIC + 3.0))
        return keep_in_format(keep_in_format(keep_in_format(line * t) * t) + 1.0)

    def far(t: Any) -> Any:
        line = keep_in_format(keep_in_format(t * CUBIC) - 5.0 * CUBIC)
        return keep_in_format(keep_in_format(keep_in_format(keep_in_format(line * t) + 8.0 * CUBIC) * t) - 4.0 * CUBIC)

    return [
        far(keep_in_format(part + 1.0)),
        near(part),
        near(keep_in_format(1.0 - part)),
        far(keep_in_format(2.0 - part)),
    ]


def _sample_cubic(x: Any, bases: Sequence[Any], parts: Sequence[Any], padding: int, corners: bool) -> Any:
    lengths = np.shape(x)[2:]
    each = zip(bases, lengths, strict=True)
    pixels = [[_move_index(base + i, n, padding, corners) for i in range(-1, 3)] for base, n in each]
    rows, columns = pixels
    along_rows, along_columns = (_cubic_weights(part) for part in parts)
    total: Any = None
    for row, weight in zip(rows, along_rows, strict=True):
        line = keep_in_format(_weigh_pixels(x, [[row], columns], [[1.0], along_columns]) * weight)
        total = line if total is None else keep_in_format(total + line)
    return total


def _nearest(x: Any, bases: Sequence[Any], parts: Sequence[Any], padding: int, corners: bool) -> Any:
    return _pick_pixels(x, bases)


def _on_either_side(axes: Sequence[_Axis], edge: Callable[[Any], Any], value: Callable[[Sequence[Any]], Any]) -> Any:
    """A value made of the pixels before the points or, where a point may be beyond an edge, of those after them.

    Args:
        axes: the points. edge: of numbers, the edge that is nearest to each; the pixel before it is ⌈edge⌉ − 1, and
            the pixel at or after it ⌈edge⌉.
        value: of a pixel for each axis.
    """

    def along(pixels: Sequence[Any]) -> Any:
        if len(pixels) == len(axes):
            return value(pixels)
        at, plain, _ = axes[len(pixels)]
        border = edge(plain)
        after = np.ceil(border).astype(np.int64)
        before = at < border
        if is_open(before):
            # Half a pixel belongs to the even one, so a point that is an edge itself may be on either side of it.
            return np.where(before[:, None], along([*pixels, after - 1]), along([*pixels, after]))
        at_half = (border != np.rint(border)) & (plain == border) & (after % 2 != 0)
        return along([*pixels, np.where(before | at_half, after - 1, after)])

    return along([])


def _sample_grid(x: Any, grid: Any, mode: int, padding: int, corners: bool) -> Any:
    """grid_sample: x (N, C, *lengths), grid (N, *outputs, axes) from −1 to 1, whose last axis is in reverse order."""
    lengths = np.shape(x)[2:]
    axes, is_point = [], np.ones(np.shape(grid)[:-1], dtype=bool)
    for k, n in enumerate(lengths):
        points = grid[..., len(lengths) - 1 - k]
        at = keep_in_format(keep_in_format(points + 1.0) * ((n - 1) / 2.0 if corners else n / 2.0))
        at = at if corners else keep_in_format(at - 0.5)
        if padding == _REFLECTION:  # Where a pixel is a rounding error of the point, as behind an overflow.
            is_point &= _is_near(at)
        whole = _Axis(at, np.clip(_numbers(at), -(2.0**40), 2.0**40), n)
        axes.append(whole if mode == _CUBIC else _move_into_image(whole, padding, corners))
    if mode == _NEAREST:
        between, edge = _nearest, lambda plain: np.floor(plain) + 0.5
    else:
        between, edge = (_linear if mode == _LINEAR else _sample_cubic), np.rint

    def value(bases: Sequence[Any]) -> Any:
        parts = [keep_in_format(axis.at - base)[:, None] for axis, base in zip(axes, bases, strict=True)]
        return between(x, bases, parts, padding, corners)

    samples = _on_either_side(axes, edge, value)
    is_point &= np.isfinite(sum(_finite_or_nan(grid[..., k]) for k in range(len(lengths))))
    if is_point.all():
        return samples
    # Where a coordinate is not finite torch promises some point, and its kernels differ in which: any value is right,
    # and so is any slope by any pixel.
    is_sure = np.broadcast_to(is_point[:, None], np.shape(samples))
    open_ = condition(is_sure, np.ones(is_sure.shape, dtype=bool), constant(x))
    pixels = np.sum(x, axis=tuple(range(2, np.ndim(x))))
    slope = np.where(open_, 0.0, _STEEPEST) * np.where(open_, 1.0, -1.0)
    anything = np.reshape(pixels, (*np.shape(pixels), *(1,) * (np.ndim(samples) - 2))) * slope
    return np.where(open_, samples + anything, np.inf)


def _is_near(at: Any) -> Any:
    """Where all evaluations of points in pixels are closer to each other than half a pixel."""
    if not isinstance(at, Array):
        return np.isfinite(at)
    low, high = constant(at).ends()
    with np.errstate(invalid="ignore"):
        return np.asarray(high - low < 0.5, dtype=bool)


def _finite_or_nan(x: Any) -> Any:
    base = constant(x)
    finite = np.asarray(np.isfinite(base), dtype=bool)
    return np.where(finite, 0.0, np.nan)


def _base(x: Any, count: int, corners: bool) -> Any:
    """The middles of pixels, where −1 and 1 are the outer middles (`corners`) or the outer edges of the image."""
    ends = np.linspace(-1.0, 1.0, count) if count > 1 else np.zeros(1)
    along = keep_in_format(as_constant(x, ends))
    return along if corners else keep_in_format(keep_in_format(along * float(count - 1)) / float(count))


def _affine_grid(theta: Any, size: Sequence[int], corners: bool) -> Any:
    """affine_grid: theta (N, axes, axes + 1) maps the points of an image (N, C, *lengths)."""
    lengths = tuple(int(n) for n in size[2:])
    columns = []
    for k in reversed(range(len(lengths))):
        along = np.reshape(_base(theta, lengths[k], corners), (-1,) + (1,) * (len(lengths) - 1 - k))
        columns.append(np.broadcast_to(along, lengths))
    points = np.reshape(np.stack([*columns, np.ones(lengths)], axis=-1), (-1, len(lengths) + 1))
    grid = np.matmul(points, np.swapaxes(theta, 1, 2))
    return np.reshape(grid, (np.shape(theta)[0], *lengths, len(lengths)))


enter({"affine_grid_generator": _affine_grid, "grid_sampler_2d grid_sampler_3d": _sample_grid})
