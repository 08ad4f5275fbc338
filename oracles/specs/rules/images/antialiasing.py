"""Aten operations that resize images by filters as wide as the image shrinks: linear, cubic and Lanczos.

A pixel of the result is a weighted mean of the pixels that the filter reaches. Filters are zero where they end, so it
does not matter on which side of the end rounding puts a pixel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .....reference.array import Array
from ..table import Rule, enter
from .interpolation import as_constant, keep_in_format, resized_dims, scale_of, scales_of, with_lists

_Filter = Callable[[Any], Any]

#: The parameter of cubic convolution here, after R. Keys; torch's plain bicubic interpolation has −3/4.
_CUBIC = -0.5


def _weights_within(size: Any, reach: float, inner: Any) -> Any:
    return np.where(size < reach, inner, 0.0)


def _triangle(t: Any) -> Any:
    size = np.absolute(t)
    return _weights_within(size, 1.0, 1.0 - size)


def _cubic_weight(t: Any) -> Any:
    size = np.absolute(t)
    near = ((_CUBIC + 2.0) * size - (_CUBIC + 3.0)) * size * size + 1.0
    far = (((size - 5.0) * size + 8.0) * size - 4.0) * _CUBIC
    return np.where(size < 1.0, near, _weights_within(size, 2.0, far))


def _lanczos(t: Any) -> Any:
    size = np.absolute(t)
    return _weights_within(size, 3.0, np.sinc(size) * np.sinc(size / 3.0))


def _resize(x: Any, dim: int, new_length: int, ratio: tuple[float, float], of_filter: tuple[_Filter, float]) -> Any:
    """x resized along one dim.

    Args:
        new_length: that of the result. ratio: a quotient, the pixels of x per pixel of the result.
        of_filter: the filter, and how far it reaches in pixels of the larger image.
    """
    form, reach = of_filter
    length, quotient = np.shape(x)[dim], ratio[0] / ratio[1]
    wide = max(quotient, 1.0)
    middle = (np.arange(new_length) + 0.5) * quotient
    first = np.floor(middle - reach * wide).astype(np.int64) - 1
    pixels = first[:, None] + np.arange(int(np.ceil(2.0 * reach * wide)) + 4)
    inside = (pixels >= 0) & (pixels < length)
    step = as_constant(x, ratio[0]) / ratio[1]
    offset = as_constant(x, pixels + 0.5) - (as_constant(x, np.arange(new_length) + 0.5) * step)[:, None]
    weights = np.where(inside, form(offset / step if quotient > 1.0 else offset), 0.0)
    weights = keep_in_format(weights / np.sum(weights, axis=1, keepdims=True))
    values = x[(slice(None),) * dim + (np.clip(pixels, 0, length - 1),)]
    # A pixel outside the image has no weight, and no product is formed with the one that stands for it here.
    shape = (*pixels.shape, *(1,) * (np.ndim(x) - 1 - dim))
    products = np.where(np.reshape(inside, shape), values * np.reshape(weights, shape), 0.0)
    return np.sum(products, axis=dim + 1)


def _antialias(form: _Filter, reach: float) -> Rule:
    """The rule of an operation that resizes x along its last dims, one after another from the last, as torch does.

    Args:
        form: the weight of a pixel by its distance. reach: the distance from which on weights are zero.
    """

    def rule(x: Any, sizes: Any, corners: bool, *scales: Any) -> Any:
        for dim, length, new_length, scale in reversed(resized_dims(x, sizes, scales_of(scales))):
            if new_length == length and scale in (None, 1.0):
                continue  # Every pixel is itself.
            x = _resize(x, dim, new_length, scale_of(length, new_length, scale, corners), (form, reach))
            x = keep_in_format(x) if isinstance(x, Array) else x
        return x

    return rule


enter(
    {
        with_lists("_upsample_bilinear2d_aa"): _antialias(_triangle, 1.0),
        with_lists("_upsample_bicubic2d_aa"): _antialias(_cubic_weight, 2.0),
        with_lists("_upsample_lanczos2d_aa"): _antialias(_lanczos, 3.0),
    }
)
