"""Sums and products of many terms along random trees, in random orders: any of them is an evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .formats import Working

Join = Callable[[Any, Any], Any]
#: The most terms whose tree is drawn merge by merge; more are added in blocks and by halves, as kernels do.
FEW = 12


def along_tree(terms: Any, working: Working, join: Join) -> Any:
    """The terms along axis 0, joined two by two in a random order and along a random tree."""
    terms = terms[working.draws.permutation(len(terms))]
    if len(terms) <= FEW:
        return _merge(list(terms), working, join)
    if working.coin():
        return _by_halves(terms, join)
    blocks = int(working.draws.integers(1, min(len(terms), 64)))
    return _merge_in_turn(terms, blocks, working, join)


def _merge(parts: list[Any], working: Working, join: Join) -> Any:
    while len(parts) > 1:
        i, j = working.draws.choice(len(parts), 2, replace=False)
        merged = join(parts[i], parts[j])
        parts = [part for k, part in enumerate(parts) if k not in (i, j)] + [merged]
    return parts[0]


def _by_halves(terms: Any, join: Join) -> Any:
    while len(terms) > 1:
        half = len(terms) // 2
        joined = join(terms[:half], terms[half : 2 * half])
        terms = np.concatenate([joined, terms[2 * half :]]) if len(terms) % 2 else joined
    return terms[0]


def _merge_in_turn(terms: Any, blocks: int, working: Working, join: Join) -> Any:
    """Several sums side by side, each one term after the other, and then the sum of those: a loop on vector lanes."""
    count = -(-len(terms) // blocks)
    if count > 4 * len(terms) ** 0.5 and count > 256:
        return _by_halves(terms, join)
    total, rest = terms[:blocks], terms[blocks:]
    while len(rest) >= blocks:
        total, rest = join(total, rest[:blocks]), rest[blocks:]
    if len(rest):
        total = np.concatenate([join(total[: len(rest)], rest), total[len(rest) :]])
    return _merge(list(total), working, join) if len(total) <= FEW else _by_halves(total, join)


def reduce_axes(values: Any, axes: tuple[int, ...], working: Working, join: Join) -> Any:
    """A reduction over axes, which are kept with length 1."""
    rest = [i for i in range(values.ndim) if i not in axes]
    shape = [1 if i in axes else n for i, n in enumerate(values.shape)]
    terms = np.transpose(values, (*axes, *rest))
    count = int(np.prod(terms.shape[: len(axes)], dtype=np.int64))
    terms = terms.reshape(count, *terms.shape[len(axes) :])
    if not count:
        return np.broadcast_to(np.zeros((), values.dtype), shape)
    return along_tree(terms, working, join).reshape(shape)


def scan(values: Any, axis: int, join: Join) -> Any:
    """A scan, one element after the other."""
    rows = np.moveaxis(values, axis, 0).copy()
    for i in range(1, len(rows)):
        rows[i] = join(rows[i - 1], rows[i])
    return np.moveaxis(rows, 0, axis)
