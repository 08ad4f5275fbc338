"""How the simulated evaluation of `test_rounding` sums and multiplies: along random trees, in random orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opassay.reference.formats import BINARY32, round_array
from opassay.reference.windows import windows_of


def _windows(x: Any, w: Any, stride: Any, dilation: Any) -> tuple[Any, int]:
    view = windows_of(x, w.shape[3:], stride, dilation)  # (N, G, C, P, K)
    products = np.einsum("ngcpk,gock->ngopck", view, w)
    return products.reshape(*products.shape[:4], -1), 4


def _tree_cumsum(x: Any, rng: Any, axis: int) -> Any:
    rows = np.moveaxis(x, axis, 0)
    sums = [tree_sum(rows[: k + 1], (0,), rng)[0] for k in range(len(rows))]
    return np.moveaxis(np.stack(sums), 0, axis)


def _shuffled_product(x: Any, rng: Any, axes: tuple[int, ...]) -> Any:
    (axis,) = axes
    rows = np.moveaxis(x, axis, 0)
    total = np.ones(rows.shape[1:])
    for k in rng.permutation(len(rows)):
        total = round_array(BINARY32, total * rows[k])
    return np.expand_dims(total, axis)


SCANS: dict[str, Callable[..., Any]] = {"cumsum": _tree_cumsum, "prod": _shuffled_product}

#: The products that a bilinear primitive sums up, and along which axis.
PRODUCTS: dict[str, Callable[..., tuple[Any, int]]] = {
    "matmul": lambda a, b: (a[..., :, :, None] * b[..., None, :, :], a.ndim - 1),
    "correlate": _windows,
}


def tree_sum(values: Any, axes: tuple[int, ...], rng: Any) -> Any:
    """A float32 sum along a random binary tree, in random order."""
    rest = [i for i in range(values.ndim) if i not in axes]
    kept = [1 if i in axes else n for i, n in enumerate(values.shape)]
    terms = list(np.transpose(values, (*axes, *rest)).reshape(-1, *[values.shape[i] for i in rest]))
    while len(terms) > 1:
        i, j = rng.choice(len(terms), 2, replace=False)
        merged = round_array(BINARY32, terms[i] + terms[j])
        terms = [t for k, t in enumerate(terms) if k not in (i, j)] + [merged]
    return terms[0].reshape(kept)
