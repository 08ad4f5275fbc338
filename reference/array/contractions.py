"""The words of a formula that multiply arrays and add up, in terms of products that other words are made of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .kind import WORDS


def _flat(x: Any) -> Any:
    return np.reshape(x, (-1,))


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    if isinstance(axes, (int, np.integer)):
        of_a, of_b = list(range(np.ndim(a) - axes, np.ndim(a))), list(range(axes))
    else:
        of_a, of_b = ([int(i) % np.ndim(x) for i in np.atleast_1d(part)] for x, part in zip((a, b), axes, strict=True))
    free_a = [i for i in range(np.ndim(a)) if i not in of_a]
    free_b = [i for i in range(np.ndim(b)) if i not in of_b]
    shape = [np.shape(a)[i] for i in free_a] + [np.shape(b)[i] for i in free_b]
    rows, terms = (math.prod(np.shape(a)[i] for i in axes) for axes in (free_a, of_a))
    left = np.reshape(np.transpose(a, free_a + of_a), (rows, terms))
    right = np.reshape(np.transpose(b, of_b + free_b), (terms, math.prod(shape[len(free_a) :])))
    return np.reshape(np.matmul(left, right), shape)


def _inner(a: Any, b: Any) -> Any:
    if np.ndim(a) == 0 or np.ndim(b) == 0:
        return a * b
    return _tensordot(a, b, axes=(-1, -1))


def _kron(a: Any, b: Any) -> Any:
    """Kronecker's product of two matrices."""
    (rows, columns), (its_rows, its_columns) = np.shape(a), np.shape(b)
    blocks = np.reshape(a, (rows, 1, columns, 1)) * np.reshape(b, (1, its_rows, 1, its_columns))
    return np.reshape(blocks, (rows * its_rows, columns * its_columns))


def _cross(a: Any, b: Any) -> Any:
    """The vector product along the last axis, of length 3."""
    x, y, z = (a[..., i] for i in range(3))
    u, v, w = (b[..., i] for i in range(3))
    return np.stack([y * w - z * v, z * u - x * w, x * v - y * u], axis=-1)


WORDS.update(
    {
        np.outer: lambda a, b: np.reshape(_flat(a), (-1, 1)) * np.reshape(_flat(b), (1, -1)),
        np.vdot: lambda a, b: np.sum(_flat(a) * _flat(b)),
        np.tensordot: _tensordot,
        np.inner: _inner,
        np.kron: _kron,
        np.cross: _cross,
    }
)
