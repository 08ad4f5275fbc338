"""The words of a formula that run along an axis, and products over axes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..algorithms import Algorithm, Inapplicable, Reverse
from ..condition import is_open, surely
from .kind import WORDS, Array, among, attach, bind, constant, order_of
from .shapes import drop_axes, normalize_axes, reshape

#: Factors, up to which the product without each of them is formed by itself.
_SHORT = 2**6


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
    # The slope of a product is a quotient of it where no factor is zero, and else that of the products themselves. The
    # value is that of a product in any order all the same.
    params = {"axis": axis % x.ndim}
    if _without_zeros(x) or not order_of(x):
        return bind("cumprod", (x,), params)
    ways = [Algorithm(functools.partial(scanned, axis=axis, join=np.multiply), "")]
    texts = (_without_each_so_far, _by_quotient_so_far) if x.shape[axis] <= _SHORT else (_by_quotient_so_far,)
    ways += [Algorithm(Reverse(functools.partial(text, axis=params["axis"])), "") for text in texts]
    return attach(bind("cumprod", (constant(x),), params), among(ways, x), always=True)


def _prod(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
    axes = normalize_axes(axis, x.ndim)
    if not axes:
        return x
    product: Any
    if _without_zeros(x) or not order_of(x):
        product = bind("prod", (x,), {"axes": axes})
    else:
        ways = [Algorithm(lambda x: functools.reduce(_multiply_halves, axes, x), "")]
        if len(axes) == 1 and x.shape[axes[0]] <= _SHORT:
            texts = (_without_each, _by_quotient)
            ways += [Algorithm(Reverse(functools.partial(text, axis=axes[0])), "") for text in texts]
        product = among(ways, x)
        product = attach(bind("prod", (constant(x),), {"axes": axes}), product, always=True)
    return drop_axes(product, axes, keepdims)


def _without_each(x: Any, g: Any, axis: int) -> Any:
    """g times the product of all others, for every element: in any order, so that what underflows in one counts."""
    return g * np.moveaxis(np.prod(_leave_each_out(x, axis), axis=-1), -1, axis)


def _by_quotient(x: Any, g: Any, axis: int) -> Any:
    """The same as a quotient of the whole product where an element is not zero, as torch has it of scattered factors.

    Raises:
        Inapplicable: rounding leaves open whether an element is zero.
    """
    zero = np.equal(constant(x), 0.0)
    if is_open(zero):
        raise Inapplicable
    quotient = g * np.prod(x, axis=axis, keepdims=True) / np.where(zero, 1.0, x)
    return np.where(zero, _without_each(x, g, axis), quotient)


def _without_each_so_far(x: Any, g: Any, axis: int) -> Any:
    """Σ g times the product without each element, over all products that have it."""
    count = np.shape(x)[axis]
    products = np.cumprod(_leave_each_out(x, axis), axis=-1) * np.expand_dims(np.moveaxis(g, axis, -1), -2)
    terms = np.where(np.tri(count, dtype=bool).T, products, 0.0)
    return np.moveaxis(np.sum(terms, axis=-1), -1, axis)


def _by_quotient_so_far(x: Any, g: Any, axis: int) -> Any:
    """The same, as torch's `cumprod_backward` has it: a quotient of sums of g y before the first zero of a row.

    Args:
        x, g: (..., n, ...) along the axis, the factors and the cotangent of their products so far.

    Raises:
        Inapplicable: rounding leaves open whether an element is zero.
    """
    zero = np.equal(constant(x), 0.0)
    if is_open(zero):
        raise Inapplicable
    zeros = np.cumsum(zero, axis=axis)
    before, first = zeros == 0, zero & (zeros == 1)
    terms = np.where(before, g * np.cumprod(np.where(before, x, 1.0), axis=axis), 0.0)
    quotient = np.flip(np.cumsum(np.flip(terms, axis), axis=axis), axis) / np.where(before, x, 1.0)
    # With 1 in the place of the first zero, the products from there on are those without it.
    behind = np.cumprod(np.where(first, 1.0, x), axis=axis)
    whole = np.sum(np.where(zeros == 1, g * behind, 0.0), axis=axis, keepdims=True)
    return np.where(before, quotient, np.where(first, whole, 0.0))


def _leave_each_out(x: Any, axis: int) -> Any:
    """(..., n, n): the rows along an axis with 1 in the place of each element in its turn."""
    rows = np.expand_dims(np.moveaxis(x, axis, -1), -2)
    return np.where(np.eye(np.shape(x)[axis], dtype=bool), 1.0, rows)


def _multiply_halves(x: Any, axis: int) -> Any:
    """The product along an axis, of halves and of their halves."""
    while (count := np.shape(x)[axis]) > 1:
        half = count // 2
        product = x[_part(axis, None, half)] * x[_part(axis, half, 2 * half)]
        x = np.concatenate([product, x[_part(axis, 2 * half, None)]], axis=axis) if count % 2 else product
    return x


WORDS.update({np.cumsum: _cumsum, np.cumprod: _cumprod, np.prod: _prod})
