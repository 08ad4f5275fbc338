"""Aten operations that interpolate images: nearest, linear and cubic, along one dim after another.

What is hard here is where an output element stands among the inputs: at (i + 1/2) n/m − 1/2, say, which an evaluation
computes in floating point. Where that is next to a whole number, one evaluation finds the element before it and another
the one after it. So the coordinates are arrays of the reading, with their rounding errors, and a comparison that these
leave open takes both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .....reference.array import Array, constant, store
from .....reference.condition import is_open
from ..table import Rule, enter

#: The parameter of cubic convolution that torch has; R. Keys, Cubic convolution interpolation for digital image
#: processing, IEEE Trans. ASSP 29, 1981, has −1/2.
CUBIC = -0.75


def as_constant(x: Any, value: Any) -> Any:
    """A constant in the reading of x."""
    return constant(x).lift(value) if isinstance(x, Array) else np.asarray(value, dtype=np.float64)


def _coordinates(x: Any, places: Any, ratio: tuple[float, float], shift: float) -> tuple[Any, Any]:
    """places · ratio − shift, in the reading of x and as plain numbers.

    Args:
        places: of the outputs. ratio: a quotient of two numbers. shift: 1/2 where pixels have a width, else 0.
    """
    quotient = ratio[0] / ratio[1]
    plain = places * quotient - shift
    if float(np.float32(quotient)) == quotient:  # Whatever evaluates this has the quotient, and rounds nothing.
        return as_constant(x, plain), plain
    coordinate = as_constant(x, places) * (as_constant(x, ratio[0]) / ratio[1])
    return coordinate - shift if shift else np.where(places == 0.0, 0.0, coordinate), plain  # Nothing rounds 0.


def _pick_pixels(x: Any, dim: int, index: Any) -> Any:
    length = np.shape(x)[dim]
    return x[(slice(None),) * dim + (np.clip(index, 0, length - 1),)]


def keep_in_format(weight: Any) -> Any:
    """A weight or a term, which an evaluation may keep in the format of the image."""
    return store(weight, always=False)


def _nearest(x: Any, dim: int, base: Any, part: Any) -> Any:
    return _pick_pixels(x, dim, base)


def _linear(x: Any, dim: int, base: Any, part: Any) -> Any:
    weights = (keep_in_format(1.0 - part), keep_in_format(part))
    before, after = (keep_in_format(_pick_pixels(x, dim, base + i) * weight) for i, weight in enumerate(weights))
    return before + after


def _interpolate_cubic(x: Any, dim: int, base: Any, part: Any) -> Any:
    def near(t: Any) -> Any:
        return ((CUBIC + 2.0) * t - (CUBIC + 3.0)) * t * t + 1.0

    def far(t: Any) -> Any:
        return ((CUBIC * t - 5.0 * CUBIC) * t + 8.0 * CUBIC) * t - 4.0 * CUBIC

    weights = [keep_in_format(w) for w in (far(part + 1.0), near(part), near(1.0 - part), far(2.0 - part))]
    terms = [keep_in_format(_pick_pixels(x, dim, base + i - 1) * weight) for i, weight in enumerate(weights)]
    return keep_in_format(terms[0] + terms[1]) + keep_in_format(terms[2] + terms[3])


def _interpolate_along(x: Any, dim: int, between: Callable[..., Any], coordinate: Any, plain: Any) -> Any:
    """x interpolated along a dim at coordinates, which are given as `_coordinates` gives them."""
    shape = (-1,) + (1,) * (np.ndim(x) - 1 - dim)
    nearest = np.round(plain)

    def value(base: Any) -> Any:
        return between(x, dim, base.astype(np.int64), np.reshape(coordinate - base, shape))

    before = coordinate < nearest
    if is_open(before):
        return np.where(np.reshape(before, shape), value(nearest - 1.0), value(nearest))
    return value(np.where(before, nearest - 1.0, nearest))


def scale_of(length: int, new_length: int, scale: Any, corners: bool) -> tuple[float, float]:
    """How many pixels of an image one of the result stands for, as a quotient of two numbers.

    Args:
        length, new_length: of the image and of the result along a dim. scale: by how much it grows, or None.
        corners: whether corners agree.
    """
    if corners:
        return (float(length - 1), float(new_length - 1)) if new_length > 1 else (0.0, 1.0)
    return (float(length), float(new_length)) if scale is None else (1.0, float(scale))


def resized_dims(x: Any, sizes: Any, scales: Sequence[Any]) -> list[tuple[int, int, int, Any]]:
    """For each of the last dims its number, its length before and after, and the scale that was given, or None."""
    count = len(scales if sizes is None else sizes)
    dims = []
    for place, dim in enumerate(range(np.ndim(x) - count, np.ndim(x))):
        scale, length = scales[place] if scales else None, np.shape(x)[dim]
        dims.append((dim, length, int(length * scale) if sizes is None else int(sizes[place]), scale))
    return dims


def _upsample(
    x: Any, sizes: Any, scales: Sequence[Any], between: Callable[..., Any], corners: bool, middle: float, shift: float
) -> Any:
    """Interpolated along the last dims, at (i + middle) ratio − shift.

    Args:
        sizes: of the output along them, or None. scales: by how much they grow, or None for each.
        between: how. corners: whether the corners of both images agree.
        middle, shift: 1/2 where a pixel has a width, else 0.
    """
    for dim, length, new_length, scale in resized_dims(x, sizes, scales):
        ratio = scale_of(length, new_length, scale, corners)
        coordinate, plain = _coordinates(x, np.arange(new_length) + middle, ratio, shift)
        if between is _linear:
            coordinate, plain = np.where(coordinate < 0.0, 0.0, coordinate), np.maximum(plain, 0.0)
        x = _interpolate_along(x, dim, between, coordinate, plain)
    return x


def _with_corners(between: Callable[..., Any]) -> Rule:
    def rule(x: Any, sizes: Any, corners: bool, *scales: Any) -> Any:
        half = 0.0 if corners else 0.5
        return _upsample(x, sizes, scales_of(scales), between, corners, half, half)

    return rule


def _of_nearest(middle: float) -> Rule:
    return lambda x, sizes, *scales: _upsample(x, sizes, scales_of(scales), _nearest, False, middle, 0.0)


def scales_of(scales: Sequence[Any]) -> Sequence[Any]:
    """The scales of all dims, whether they came as one list or one by one."""
    if len(scales) == 1 and isinstance(scales[0], Sequence):
        return list(scales[0])
    return [] if None in scales else list(scales)


def with_lists(*names: str) -> str:
    """The names of operations that take a scale for each dim, with those that take a list of scales."""
    return " ".join(f"{name} {name}.vec" for name in names)


enter(
    {
        with_lists("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"): _with_corners(_linear),
        with_lists("upsample_bicubic2d"): _with_corners(_interpolate_cubic),
        with_lists(*(f"upsample_nearest{axes}d" for axes in (1, 2, 3))): _of_nearest(0.0),
        with_lists(*(f"_upsample_nearest_exact{axes}d" for axes in (1, 2, 3))): _of_nearest(0.5),
    }
)
