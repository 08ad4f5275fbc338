"""Derivatives of the primitives that are linear in each of two operands: of one of them, a product of the same kind."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import numpy as np

from ..array import Operands, Params, bind, contract_pair, scatter


def _letters(shape: tuple[int, ...], batch: tuple[int, ...], last: str) -> str:
    """A letter per axis of an operand of `matmul`; none for axes along which it is repeated."""
    names = string.ascii_lowercase[: len(batch)][len(batch) + 2 - len(shape) :]
    axes = zip(names, shape[:-2], batch[len(batch) - len(names) :], strict=True)
    return "".join(c for c, own, full in axes if own == full) + last


def _cotangent_of_matmul(position: int, g: Any, xs: Operands, params: Params) -> Any:
    """The cotangent of one factor, as one sum over the axes along which that factor is repeated, too."""
    a, b = xs
    batch = np.shape(g)[:-2]
    names = [_letters(np.shape(x), batch, last) for x, last in ((a, "XY"), (b, "YZ"))]
    other = xs[1 - position]
    factor = np.reshape(other, _lengths(np.shape(other), batch))
    whole = string.ascii_lowercase[: len(batch)] + "XZ"
    pair = ((g, whole), (factor, names[1 - position]))
    (x, of_x), (y, of_y) = pair if position == 0 else reversed(pair)
    return np.reshape(contract_pair(x, of_x, y, of_y, names[position]), np.shape(xs[position]))


def _lengths(shape: tuple[int, ...], batch: tuple[int, ...]) -> tuple[int, ...]:
    full = batch[len(batch) + 2 - len(shape) :]
    return tuple(own for own, whole in zip(shape[:-2], full, strict=True) if own == whole) + shape[-2:]


def _cotangent_of_correlate(position: int, g: Any, xs: Operands, params: Params) -> Any:
    x, w = xs
    stride, dilation = params["stride"], params["dilation"]
    window = [d * (k - 1) for d, k in zip(dilation, np.shape(w)[3:], strict=True)]
    if position == 1:
        # Every position of the result is a term of the sum: the cotangent is the window, and steps and gaps change
        # places. Elements of x that no window reaches are left out.
        reach = [s * (n - 1) + m + 1 for s, n, m in zip(stride, np.shape(g)[3:], window, strict=True)]
        used = np.transpose(x[(..., *(slice(n) for n in reach))], _order_axes(x, (2, 1, 0)))
        taps = np.transpose(g, _order_axes(g, (1, 2, 0)))
        cotangent: Any = bind("correlate", (used, taps), {"stride": dilation, "dilation": stride})
        return np.transpose(cotangent, _order_axes(cotangent, (1, 2, 0)))
    # Zeros stand between the positions of the result and around them, and the windows are turned round.
    spread = tuple(slice(m, m + s * (n - 1) + 1, s) for m, s, n in zip(window, stride, np.shape(g)[3:], strict=True))
    shape = (*np.shape(g)[:3], *(n + m for n, m in zip(np.shape(x)[3:], window, strict=True)))
    turned = np.transpose(w[(..., *(slice(None, None, -1),) * len(window))], _order_axes(w, (0, 2, 1)))
    return bind(
        "correlate",
        (scatter(g, (..., *spread), shape, inserted=True), turned),
        {"stride": (1,) * len(window), "dilation": dilation},
    )


def _order_axes(x: Any, first: tuple[int, ...]) -> tuple[int, ...]:
    return (*first, *range(3, np.ndim(x)))


def _tangent_rule(primitive: str) -> Callable[..., Any]:
    def rule(ts: list[Any], xs: Operands, params: Params) -> Any:
        (a, b), (ta, tb) = xs, ts
        parts = [bind(primitive, pair, params) for t, pair in ((ta, (ta, b)), (tb, (a, tb))) if t is not None]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    return rule


TANGENTS: dict[str, Callable[..., Any]] = {name: _tangent_rule(name) for name in ("matmul", "correlate")}
COTANGENTS: dict[str, Callable[..., Any]] = {"matmul": _cotangent_of_matmul, "correlate": _cotangent_of_correlate}
