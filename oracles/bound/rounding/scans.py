"""Balls of cumulative sums and products, of products over axes, of sorted elements, and of windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....reference.windows import offsets_of, windows_of
from ..contract import Contract
from . import lengths
from .ball import RULES, Ball
from .spread import SLACK, limited


def _magnitude(a: Ball) -> Any:
    """The largest magnitude that each element may have."""
    size = np.abs(a.centre).astype(np.float64, copy=False)
    return size if a.radius is None else size + a.radius


def _cumsum(contract: Contract, a: Ball, axis: int) -> Ball:
    """In any order and along any tree, the k-th sum costs k additions."""
    count = a.shape[axis]
    lengths.record_sum(count)
    additions = np.arange(count, dtype=np.float64).reshape(count, *(1,) * (len(a.shape) - axis - 1))
    centre = np.cumsum(a.centre, axis=axis)
    if count <= 1:
        return Ball(centre, a.radius, contract)
    slack = 1.0 + count * SLACK
    size = np.cumsum(_magnitude(a), axis=axis)
    radius = size * (additions * ((contract.roundoff + contract.centre_roundoff) * slack))
    if contract.flush:
        radius += additions * contract.underflow
    if a.radius is not None:
        radius += np.cumsum(a.radii(), axis=axis) * slack
    return Ball(centre, limited(size, contract.limit, radius), contract)


def _bound_products(contract: Contract, a: Ball, centre: Any, multiply: Callable[[Any], Any], factors: Any) -> Ball:
    """The ball of products of several factors, in any order.

    Args:
        centre: the product of the centres. multiply: what makes products of an array of factors.
        factors: how many of them each product has.
    """
    whole, size = multiply(_magnitude(a)), np.abs(centre).astype(np.float64)
    roundings = np.maximum(factors - 1.0, 0.0)
    relative = np.expm1(roundings * (contract.roundoff + contract.centre_roundoff) * (1.0 + 4.0 * SLACK))
    radius = whole * (relative * (1.0 + factors * SLACK))
    if a.radius is not None:
        # The radii contribute the difference of the products of ends and of centres, both of which are rounded.
        radius += np.maximum(whole - size, 0.0) + whole * (factors * SLACK)
    # The factors above 1 may be multiplied first: they overflow before the others bring the product down, or they bring
    # up what underflowed.
    upward = multiply(np.maximum(_magnitude(a), 1.0))
    radius += roundings * contract.underflow * upward
    return Ball(centre, limited(upward, contract.limit, np.where(np.isnan(radius), np.inf, radius)), contract)


def _cumprod(contract: Contract, a: Ball, axis: int) -> Ball:
    count = a.shape[axis]
    factors = np.arange(1.0, count + 1).reshape(count, *(1,) * (len(a.shape) - axis - 1))
    return _bound_products(contract, a, np.cumprod(a.centre, axis=axis), lambda x: np.cumprod(x, axis=axis), factors)


def _prod(contract: Contract, a: Ball, axes: tuple[int, ...]) -> Ball:
    centre = np.prod(a.centre, axis=axes, keepdims=True)
    factors = np.float64(a.centre.size // max(centre.size, 1))
    if factors <= 1:
        return Ball(centre, None if a.radius is None else np.sum(a.radii(), axis=axes, keepdims=True), contract)
    product = _bound_products(contract, a, centre, lambda x: np.prod(x, axis=axes, keepdims=True), factors)
    roundoff = _stored_roundoff(contract)
    if not roundoff:
        return product
    size = np.abs(centre).astype(np.float64) + product.radii()
    radius = product.radii() + size * np.expm1(np.log1p(roundoff) * (factors - 1.0)) * (1.0 + SLACK)
    # A stored partial result may underflow before factors above 1 enlarge it, or overflow before others reduce it.
    upward = np.prod(np.maximum(_magnitude(a), 1.0), axis=axes, keepdims=True)
    radius = radius + (factors - 1.0) * contract.stores.eta * upward
    return Ball(product.centre, np.where(upward > contract.stores.max, np.inf, radius), contract)


def _sort(contract: Contract, a: Ball, axis: int) -> Ball:
    """The k-th element in order lies between the k-th of the lower ends and the k-th of the upper ends."""
    centre = np.sort(a.centre, axis=axis)
    if a.radius is None:
        return Ball(centre, None, contract)
    low, high = (np.sort(each, axis=axis) for each in a.ends())
    reach = np.asarray(np.maximum(high - centre, centre - low), dtype=np.float64)
    return Ball(centre, np.where(np.isnan(centre), 0.0, reach * (1.0 + SLACK)), contract)


def _windows(contract: Contract, a: Ball, sizes: Any, stride: Any, dilation: Any) -> Ball:
    radius = None if a.radius is None else windows_of(np.ascontiguousarray(a.radii()), sizes, stride, dilation)
    return Ball(windows_of(a.centre, sizes, stride, dilation), radius, contract)


def _stored_roundoff(contract: Contract) -> float:
    """The roundoff of a partial result that is stored, 0 where none is stored in a narrower format."""
    return contract.stores.unit_roundoff if contract.may_store(contract.stores) else 0.0


def _bound_overlap(contract: Contract, a: Ball, shape: Any, sizes: Any, stride: Any, dilation: Any) -> Ball:
    """Windows put back in place: the values that overlap at an element are added up there, in any order."""

    def summed(values: Any) -> Any:
        out = np.zeros(shape, dtype=values.dtype)
        for offset, index in offsets_of(out, sizes, stride, dilation):
            out[index] += values[(..., *offset)]
        return out

    centre = summed(a.centre)
    additions = np.maximum(summed(np.broadcast_to(np.ones(()), a.shape)) - 1.0, 0.0)
    size = summed(_magnitude(a))
    slack = 1.0 + (float(np.max(additions, initial=0.0)) + 2.0) * SLACK
    radius = size * additions * ((contract.roundoff + contract.centre_roundoff) * slack)
    if contract.flush:
        radius += additions * contract.underflow
    if roundoff := _stored_roundoff(contract):  # They may be added one by one to a stored partial sum.
        radius += additions * (size * roundoff)
        radius = np.where((additions > 0) & (size > contract.stores.max), np.inf, radius)
    if a.radius is not None:
        radius += summed(a.radii()) * slack
    elif not additions.any():
        return Ball(centre, None, contract)
    return Ball(centre, limited(size, contract.limit, radius), contract)


RULES.update(
    {
        "cumsum": _cumsum,
        "cumprod": _cumprod,
        "prod": _prod,
        "sort": _sort,
        "windows": _windows,
        "overlap": _bound_overlap,
    }
)
