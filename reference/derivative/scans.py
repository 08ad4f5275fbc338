"""Derivatives of what runs along an axis, of products over axes, and of windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..array import Array, Operands, Params, bind, choose, constant, scatter
from ..condition import condition
from ..missing import NoReadingError
from ..ranked import places

#: The most entries in the table that says which element may take which open place.
LARGEST_TABLE = 2**26


def _sum_from_behind(g: Any, axis: int) -> Any:
    sums: Any = bind("cumsum", (np.flip(g, axis),), {"axis": axis})
    return np.flip(sums, axis)


# The words ask for `cumprod` and `prod` only where no factor is zero, so that the others are a quotient.


def _tangent_of_cumprod(ts: Any, xs: Operands, params: Params) -> Any:
    ((x,), (t,)) = xs, ts
    return bind("cumprod", (x,), params) * bind("cumsum", (t / x,), params)


def _cotangent_of_cumprod(position: int, g: Any, xs: Operands, params: Params) -> Any:
    (x,) = xs
    return _sum_from_behind(g * bind("cumprod", (x,), params), params["axis"]) / x


def _tangent_of_prod(ts: Any, xs: Operands, params: Params) -> Any:
    ((x,), (t,)) = xs, ts
    return bind("prod", (x,), params) * np.sum(t / x, axis=params["axes"], keepdims=True)


def _cotangent_of_prod(position: int, g: Any, xs: Operands, params: Params) -> Any:
    (x,) = xs
    return g * bind("prod", (x,), params) / x


class _Order:
    """Which element takes which place when `x` (*rows, n) is sorted along its last axis.

    Attributes:
        index: (*rows, n), the element at every place, by the values alone.
        open: (*rows, n), which places several elements may take.
        at, rows: an index of the open places, and without the last axis: of their rows, () where x is one row.
        possible: (open places, n), a condition, which elements of the row may take the place: open or false.
        share: (open places, 1), one divided by how many may, the part of each in the exact reading.
    """

    def __init__(self, x: Array) -> None:
        reading = constant(x)
        # NumPy puts a NaN last among numbers of its own, but not among those of the exact reading.
        nans = reading.compare(np.not_equal, reading)
        values, *ends = (np.where(nans, np.inf, each) for each in (reading.comparable(), *reading.ends()))
        order = np.argsort(values, axis=-1, kind="stable")
        late = np.argsort(np.take_along_axis(nans, order, -1), axis=-1, kind="stable")
        self.index = np.take_along_axis(order, late, -1)
        first, last = places(*ends)
        self.open = np.take_along_axis(first, self.index, -1) != np.take_along_axis(last, self.index, -1)
        self.at = np.nonzero(self.open)
        *rows, place = self.at
        self.rows = tuple(rows)
        count = x.shape[-1]
        if len(place) * count > LARGEST_TABLE:
            raise NoReadingError(
                f"sort: got {len(place)} places that more than one element may take among {count}, need at most "
                f"{LARGEST_TABLE // count} of them for a derivative; ties count"
            )
        may = (first[self.rows] <= place[:, None]) & (place[:, None] <= last[self.rows])
        self.share = 1.0 / np.maximum(may.sum(axis=-1, keepdims=True), 1)
        self.possible = condition(np.zeros_like(may), may, reading)

    def along(self) -> tuple[Any, ...]:
        """The index of the elements in order, along the last axis."""
        grid = list(np.ogrid[tuple(slice(n) for n in self.index.shape)])
        grid[-1] = self.index
        return tuple(grid)

    def tangent(self, t: Any) -> Any:
        """The tangent of sorted x, from that of x; at an open place any mixture of those of the elements that may come.

        Args:
            t: (*rows, n).
        """
        moved = t[self.along()]
        if not self.open.any():
            return moved
        choice: Any = choose(self.possible, t[self.rows] if self.rows else t, 0.0, self.share)
        parts = np.sum(choice, axis=-1)
        return choose(self.open, scatter(parts, self.at, self.index.shape), moved)

    def cotangent(self, g: Any) -> Any:
        """The cotangent of x, from that of sorted x (*rows, n): the transposed map."""
        shape = self.index.shape
        if not self.open.any():
            return scatter(g, self.along(), shape)
        sure = scatter(choose(self.open, 0.0, g), self.along(), shape)
        open_cotangents = np.expand_dims(g[self.at], -1)
        spread: Any = choose(self.possible, np.broadcast_to(open_cotangents, np.shape(self.possible)), 0.0, self.share)
        return sure + (scatter(spread, self.rows, shape) if self.rows else np.sum(spread, axis=0))


def _sorted_slopes(x: Any, moved: Any, axis: int, change: Callable[[_Order, Any], Any]) -> Any:
    """The tangent or the cotangent of what is sorted along an axis, by a method of `_Order`."""
    rows, slopes = np.moveaxis(x, axis, -1), np.moveaxis(moved, axis, -1)
    return np.moveaxis(change(_Order(rows), slopes), -1, axis)


def _cotangent_of_overlap(position: int, g: Any, xs: Operands, params: Params) -> Any:
    return bind("windows", (g,), {name: params[name] for name in ("sizes", "stride", "dilation")})


TANGENTS: dict[str, Callable[..., Any]] = {
    "cumprod": _tangent_of_cumprod,
    "prod": _tangent_of_prod,
    "sort": lambda ts, xs, params: _sorted_slopes(xs[0], ts[0], params["axis"], _Order.tangent),
}
COTANGENTS: dict[str, Callable[..., Any]] = {
    "cumsum": lambda position, g, xs, params: _sum_from_behind(g, params["axis"]),
    "cumprod": _cotangent_of_cumprod,
    "prod": _cotangent_of_prod,
    "sort": lambda position, g, xs, params: _sorted_slopes(xs[0], g, params["axis"], _Order.cotangent),
    "windows": lambda position, g, xs, params: bind("overlap", (g,), {"shape": np.shape(xs[0]), **params}),
    "overlap": _cotangent_of_overlap,
}
