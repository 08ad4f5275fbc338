"""The words of a formula that run along an axis, and products over axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..condition import surely
from .kind import WORDS, Array, bind, constant
from .shapes import normalize_axes, reshape


def _part(axis: int, start: int | None, end: int | None, step: int | None = None) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(start, end, step))


def scanned(x: Any, axis: int, join: Callable[[Any, Any], Any]) -> Any:
    """Every element joined with all before it along the axis, by an operation whose order does not matter."""
    axis %= np.ndim(x)
    step, count = 1, np.shape(x)[axis]
    while step < count:
        joined = join(x[_part(axis, step, None)], x[_part(axis, None, -step)])
        x = np.concatenate([x[_part(axis, None, step)], joined], axis=axis)
        step *= 2
    return x


def _cumsum(x: Array, axis: int | None = None) -> Any:
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    return bind("cumsum", (x,), {"axis": axis % x.ndim}) if x.ndim else x


def _without_zeros(x: Array) -> bool:
    return bool(surely(constant(x) != 0.0).all())


def _cumprod(x: Array, axis: int | None = None) -> Any:
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    if not x.ndim:
        return x
    # The slope of a product is a quotient of it where no factor is zero. Else it is that of the products themselves.
    if _without_zeros(x):
        return bind("cumprod", (x,), {"axis": axis % x.ndim})
    return scanned(x, axis, np.multiply)


def _prod(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
    axes = normalize_axes(axis, x.ndim)
    if not axes:
        return x
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    if _without_zeros(x):
        product: Any = bind("prod", (x,), {"axes": axes})
    else:
        product = x
        for each in axes:
            product = _halved(product, each)
    return product if keepdims else reshape(product, tuple(n for i, n in enumerate(kept) if i not in axes))


def _halved(x: Any, axis: int) -> Any:
    """The product along an axis, of halves and of their halves."""
    while (count := np.shape(x)[axis]) > 1:
        half = count // 2
        product = x[_part(axis, None, half)] * x[_part(axis, half, 2 * half)]
        x = np.concatenate([product, x[_part(axis, 2 * half, None)]], axis=axis) if count % 2 else product
    return x


WORDS.update({np.cumsum: _cumsum, np.cumprod: _cumprod, np.prod: _prod})
