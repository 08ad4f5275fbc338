"""Fourier transforms as evaluations compute them: as sums of products, level by level, or as convolutions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import orders
from .formats import Working

#: Real and imaginary parts.
_Pair = tuple[Any, Any]


def transform(working: Working, x: Any, axes: tuple[int, ...], inverse: bool, power: int, real: bool) -> Any:
    """Axis after axis in a random order, and then the factor."""
    for axis in working.draws.permutation(axes):
        rows = np.moveaxis(x, axis, -2)
        pair = _transform(working, (rows[..., 0], rows[..., 1]), 1 if inverse else -1)
        x = np.moveaxis(np.stack(pair, -1), -2, axis)
    count = math.prod(x.shape[axis] for axis in axes)
    if not power:
        return x
    factor = working.type(count) if power == 2 else working.round(np.sqrt(working.type(count)))
    if working.coin():
        return working.round(x * working.round(working.type(1.0) / factor))
    return working.round(x / factor)


def _transform(working: Working, x: _Pair, sign: int) -> _Pair:
    """Along the last axis."""
    n = x[0].shape[-1]
    factors = [r for r in range(2, n) if n % r == 0]
    ways = ["sum", *(["levels"] if factors else []), *(["chirp"] if pow(210, n.bit_length(), n) else [])]
    match ways[int(working.draws.integers(len(ways)))]:
        case "levels":
            return _by_levels(working, x, sign, int(working.draws.choice(factors)))
        case "chirp":
            return _by_chirp(working, x, sign)
    j = np.arange(n)
    weights = _weights(working, j[:, None] * j[None, :] % n, n, sign)
    return _sum_products(working, x, weights)


def _sum_products(working: Working, x: _Pair, weights: _Pair) -> _Pair:
    """Each part as one sum of real products, along a random tree."""
    a, b, cosine, sine = map(working.factor, (*x, *weights))
    parts = []
    for one, other in (((a, cosine), (-b, sine)), ((a, sine), (b, cosine))):
        terms = np.concatenate([each[..., :, None] * weight for each, weight in (one, other)], axis=-2)
        products = np.moveaxis(working.round(terms), -2, 0)
        parts.append(orders.along_tree(products, working, lambda p, q: working.round(p + q)))
    return parts[0], parts[1]


def _by_levels(working: Working, x: _Pair, sign: int, r: int) -> _Pair:
    n = x[0].shape[-1]
    m = n // r
    # Element j = j0 + r j1 comes to output k = k0 + m k1.
    inner = tuple(np.swapaxes(part.reshape(*part.shape[:-1], m, r), -1, -2) for part in x)
    first = _transform(working, (inner[0], inner[1]), sign)
    weights = _weights(working, np.arange(r)[:, None] * np.arange(m)[None, :], n, sign)
    product = _multiply(working, first, weights)
    last = _transform(working, (np.swapaxes(product[0], -1, -2), np.swapaxes(product[1], -1, -2)), sign)
    parts = [np.swapaxes(part, -1, -2).reshape(*part.shape[:-2], n) for part in last]
    return parts[0], parts[1]


def _by_chirp(working: Working, x: _Pair, sign: int) -> _Pair:
    """j k = (j² + k² − (k − j)²) / 2: a convolution with a chirp, by transforms whose length is a power of two."""
    n = x[0].shape[-1]
    m = 1 << (2 * n - 2).bit_length()
    j = np.arange(n)
    chirp = _weights(working, j * j % (2 * n), 2 * n, sign)
    inverse = chirp[0], -chirp[1]
    first = [np.zeros((*x[0].shape[:-1], m), working.type) for _ in range(2)]
    second = [np.zeros(m, working.type) for _ in range(2)]
    for whole, part in zip(first, _multiply(working, x, chirp), strict=True):
        whole[..., :n] = part
    for whole, part in zip(second, inverse, strict=True):
        whole[:n] = part
        whole[m - n + 1 :] = part[:0:-1]
    spectra = [_transform(working, (pair[0], pair[1]), -1) for pair in (first, second)]
    product = _transform(working, _multiply(working, *spectra), 1)
    quotients = [working.round(part / working.type(m))[..., :n] for part in product]
    return _multiply(working, (quotients[0], quotients[1]), chirp)


def _multiply(working: Working, a: _Pair, b: _Pair) -> _Pair:
    products = [working.round(a[i] * b[j]) for i, j in ((0, 0), (1, 1), (0, 1), (1, 0))]
    return working.round(products[0] - products[1]), working.round(products[2] + products[3])


def _weights(working: Working, turns: Any, n: int, sign: int) -> _Pair:
    """exp(±2πi t / n), of angles that are rounded in the format or in a wider one, and as far off as functions are."""
    angle: Any = 2 * np.arctan2(working.wide(0), working.wide(-1)) * turns / n
    if working.coin():
        circle = working.round(2 * np.pi)
        angle = working.round(working.round(circle * turns) / working.type(n))
    angle, ulps = sign * np.asarray(angle, working.wide), working.contract.functions.ulps
    return working.off(np.cos(angle), ulps["cos"]), working.off(np.sin(angle), ulps["sin"])
