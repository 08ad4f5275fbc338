"""Primitives of the exact reading that move elements, choose them or add them up."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpmath import libmp

from ..condition import is_open, possibly, surely
from ..formats import Specials, format_of_cast, round_to
from ..windows import offsets_of, windows_of
from .numbers import Raw, bits_in_use, larger, primitives_at


def raw_array(values: Any) -> Any:
    """float64 values (or Python numbers) as an object array of raw numbers, exactly."""
    array = np.asarray(values)
    if array.dtype == object:
        return array
    flat = [libmp.from_float(x) for x in array.astype(np.float64, copy=False).ravel().tolist()]
    return objects(flat, array.shape)


def objects(flat: Sequence[Raw], shape: tuple[int, ...]) -> Any:
    return np.fromiter(flat, dtype=object, count=len(flat)).reshape(shape)


def wrap_scalar(value: Any) -> Any:
    """NumPy unwraps 0-dimensional object arrays; wrap again."""
    if isinstance(value, np.ndarray):
        return value
    box = np.empty((), dtype=object)
    box[()] = value
    return box


def _reduce_rows(values: Any, axes: tuple[int, ...], function: Callable[[list[Raw]], Raw]) -> Any:
    rest = [i for i in range(values.ndim) if i not in axes]
    shape = tuple(1 if i in axes else n for i, n in enumerate(values.shape))
    # The number of rows is computed, since of an array without elements `reshape` can derive only one length, and the
    # length of a row is 0 there.
    count = int(np.prod([values.shape[i] for i in rest], dtype=np.int64))
    rows = np.transpose(values, (*rest, *axes)).reshape(count, -1 if values.size else 0)
    return objects([function(list(row)) for row in rows], shape)


def _sum_rows(values: Any, axes: tuple[int, ...], means: bool = False) -> Any:
    bits = bits_in_use()
    return _reduce_rows(values, axes, lambda row: libmp.mpf_sum(row, bits, "n"))


def _choose(a: Any, b: Any, condition: Any, share: Any) -> Any:
    picked = np.where(possibly(condition), a, b)
    if not is_open(condition):
        return picked
    # The middle of what a slope at a kink may be: `share` of one and the rest of the other.
    table = primitives_at(bits_in_use())
    parts = [
        wrap_scalar(table["multiply"](raw_array(weight), x)) for weight, x in ((share, a), (1.0 - np.asarray(share), b))
    ]
    mixed = wrap_scalar(table["add"](*parts))
    return np.where(possibly(condition) & ~surely(condition), mixed, picked)


def _scatter(values: Any, index: Any, shape: tuple[int, ...], in_place: bool = False, inserted: bool = False) -> Any:
    out = raw_array(np.zeros(shape))
    # Slices and integers reach every element at most once, so that assigning is adding. An index array may name an
    # element twice; NumPy would keep the last value alone, so the elements are added one by one.
    if all(isinstance(i, (slice, int, type(Ellipsis))) for i in (index if isinstance(index, tuple) else (index,))):
        # A single element takes the number itself: NumPy would put the 0-dimensional array there that has the number.
        out[index] = values if isinstance(out[index], np.ndarray) else values[()]
        return out
    places = np.arange(out.size).reshape(shape)[index]
    flat = out.reshape(-1)
    for place, value in zip(np.ravel(places), np.broadcast_to(values, np.shape(places)).ravel(), strict=True):
        flat[place] = libmp.mpf_add(flat[place], value, bits_in_use(), "n")
    return flat.reshape(shape)


def _multiply_matrices(a: Any, b: Any) -> Any:
    """Products of matrices: every sum of exact products is rounded once."""
    bits = bits_in_use()
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    count = math.prod(batch)  # `reshape` cannot derive it of matrices without elements.
    lefts = np.broadcast_to(a, (*batch, *a.shape[-2:])).reshape(count, *a.shape[-2:]).tolist()
    rights = np.broadcast_to(b, (*batch, *b.shape[-2:])).reshape(count, *b.shape[-2:]).swapaxes(1, 2).tolist()
    sums = [
        libmp.mpf_sum([libmp.mpf_mul(x, y) for x, y in zip(row, column, strict=True)], bits, "n")
        for rows, columns in zip(lefts, rights, strict=True)
        for row in rows
        for column in columns
    ]
    return objects(sums, (*batch, a.shape[-2], b.shape[-1]))


def _correlate(x: Any, w: Any, stride: tuple[int, ...], dilation: tuple[int, ...]) -> Any:
    batch, groups, channels = x.shape[:3]
    view = windows_of(x, w.shape[3:], stride, dilation)
    positions = view.shape[3 : x.ndim]
    order = (0, 1, *range(3, x.ndim), 2, *range(x.ndim, view.ndim))
    terms = channels * math.prod(w.shape[3:])
    rows = view.transpose(order).reshape(batch, groups, math.prod(positions), terms)
    sums = _multiply_matrices(rows, w.reshape(groups, -1, terms).swapaxes(1, 2))
    return sums.swapaxes(2, 3).reshape(batch, groups, w.shape[1], *positions)


def _transform(x: Any, axes: tuple[int, ...], inverse: bool, power: int, real: bool) -> Any:
    """A discrete Fourier transform, axis by axis, by products with matrices of cosines and sines."""
    bits = bits_in_use()
    for axis in axes:
        n = x.shape[axis]
        rows = np.moveaxis(x, axis, -2)
        circle = [libmp.mpf_cos_sin_pi(libmp.from_rational(2 * j, n, 2 * bits), bits, "n") for j in range(n)]
        weights = np.empty((n, 2, n, 2), dtype=object)
        for j, k in np.ndindex(n, n):
            cosine, sine = circle[j * k % n]
            minus = libmp.mpf_neg(sine)
            into, out = (minus, sine) if inverse else (sine, minus)
            weights[j, 0, k, 0] = weights[j, 1, k, 1] = cosine
            weights[j, 0, k, 1], weights[j, 1, k, 0] = out, into
        product = _multiply_matrices(rows.reshape(-1, 1, 2 * n) if n else rows, weights.reshape(2 * n, 2 * n))
        x = np.moveaxis(product.reshape(rows.shape), -2, axis)
    count = math.prod(x.shape[axis] for axis in axes)
    if power and count:
        root = libmp.mpf_sqrt(libmp.from_int(count), bits, "n") if power == 1 else libmp.from_int(count)
        flat = [libmp.mpf_div(raw, root, bits, "n") for raw in x.reshape(-1).tolist()]
        return objects(flat, x.shape)
    return x


def _overlap(values: Any, shape: Any, sizes: Any, stride: Any, dilation: Any) -> Any:
    out = raw_array(np.zeros(shape))
    add = primitives_at(bits_in_use())["add"]
    for offset, index in offsets_of(out, sizes, stride, dilation):
        out[index] = add(out[index], values[(..., *offset)])
    return out


def _running(name: str) -> Callable[..., Any]:
    """A scan by one primitive, element after element."""

    def scan(values: Any, axis: int) -> Any:
        join = primitives_at(bits_in_use())[name]
        rows = np.moveaxis(values, axis, 0).copy()
        for i in range(1, len(rows)):
            rows[i : i + 1] = join(rows[i - 1 : i], rows[i : i + 1])  # One raw number alone is a tuple to NumPy.
        return np.moveaxis(rows, 0, axis)

    return scan


def _product_rows(values: Any, axes: tuple[int, ...]) -> Any:
    bits = bits_in_use()

    def multiply(a: Raw, b: Raw) -> Raw:
        return libmp.mpf_mul(a, b, bits, "n")

    return _reduce_rows(values, axes, lambda row: functools.reduce(multiply, row, libmp.fone))


def _cast(values: Any, dtype: str, saturates: bool) -> Any:
    """The nearest number of a format; NaN where it has no code for what is beyond it. As `formats.cast_array`."""
    fmt = format_of_cast(dtype, saturates)

    def cast_one(raw: Raw) -> Raw:
        rounded = round_to(fmt, libmp.mpf_abs(raw) if fmt.specials is Specials.POWERS else raw)
        return libmp.fnan if rounded in (libmp.finf, libmp.fninf) and fmt.specials is not Specials.IEEE else rounded

    return objects([cast_one(raw) for raw in values.reshape(-1).tolist()], values.shape)


def _sort(values: Any, axis: int) -> Any:
    def sort_row(row: list[Raw]) -> list[Raw]:
        numbers = [x for x in row if x != libmp.fnan]
        return sorted(numbers, key=functools.cmp_to_key(libmp.mpf_cmp)) + [libmp.fnan] * (len(row) - len(numbers))

    rows = np.moveaxis(values, axis, -1)
    count = math.prod(rows.shape[:-1])
    flat = [raw for row in rows.reshape(count, rows.shape[-1]).tolist() for raw in sort_row(row)]
    return np.moveaxis(objects(flat, rows.shape), -1, axis)


STRUCTURE: dict[str, Callable[..., Any]] = {
    "sum": _sum_rows,
    "max": lambda values, axes, shared=False: _reduce_rows(values, axes, lambda row: functools.reduce(larger, row)),
    "prod": _product_rows,
    "windows": windows_of,
    "overlap": _overlap,
    "cumsum": _running("add"),
    "cumprod": _running("multiply"),
    "sort": _sort,
    "matmul": _multiply_matrices,
    "correlate": _correlate,
    "fourier": _transform,
    "store": lambda x, dtype, always: x,
    "cast": _cast,
    "where": _choose,
    "reshape": lambda x, shape: np.reshape(x, shape),
    "transpose": lambda x, axes: np.transpose(x, axes),
    "broadcast": lambda x, shape: np.broadcast_to(x, shape),
    "getitem": lambda x, index: x[index],
    "scatter": _scatter,
    "concatenate": lambda *xs, axis: np.concatenate(xs, axis=axis),
}
