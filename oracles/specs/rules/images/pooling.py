"""Aten operations that pool windows: their sums, their largest elements, and where these are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .....reference.algorithms import STORED, Algorithm
from .....reference.array import among, bind, choose, constant, extreme_at, scatter, windows
from .....reference.choice import Choice
from .....reference.condition import surely
from ....bound.rounding.rows import Recorded
from ..table import enter, enter_moves, may_store
from .convolution import for_each_axis, insert_zeros


class _Windows(NamedTuple):
    """Windows along the last axes, in elements; `before` and `after` are what is added around them."""

    sizes: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def axes(self) -> int:
        return len(self.sizes)


def _windows_of(
    lengths: Sequence[int], axes: int, sizes: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> _Windows:
    """torch's arguments of pooling, with as many zeros behind as the last window needs.

    Args:
        lengths: of the pooled axes. axes: how many they are.
        sizes, stride, padding, dilation, ceil_mode: as torch takes them.
    """
    size, padding, dilation = (for_each_axis(_as_list(n), axes) for n in (sizes, padding, dilation))
    step = for_each_axis(_as_list(stride), axes) if _as_list(stride) else size
    after = []
    for n, k, s, p, d in zip(lengths, size, step, padding, dilation, strict=True):
        room = n + 2 * p - d * (k - 1) - 1
        count = -(-room // s) + 1 if ceil_mode else room // s + 1
        if ceil_mode and (count - 1) * s >= n + p:  # The last window must begin within the elements or before them.
            count -= 1
        after.append((count - 1) * s + d * (k - 1) + 1 - n - p)
    return _Windows(size, step, padding, tuple(after), dilation)


def _as_list(numbers: Any) -> Sequence[int]:
    return [numbers] if isinstance(numbers, int) else list(numbers)


def _sums(x: Any, over: _Windows) -> Any:
    """The sum of every window: a product with ones, so that no window is formed in memory."""
    lead = np.shape(x)[: np.ndim(x) - over.axes]
    padded = insert_zeros(x, over.before, over.after, (1,) * over.axes)
    flat = np.reshape(padded, (math.prod(lead), 1, 1, *np.shape(padded)[len(lead) :]))
    totals: Any = bind(
        "correlate", (flat, np.ones((1, 1, 1, *over.sizes))), {"stride": over.stride, "dilation": over.dilation}
    )
    return np.reshape(totals, (*lead, *np.shape(totals)[3:]))


def _average(axes: int) -> Callable[..., Any]:
    def rule(
        x: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Any:  # fmt: skip
        lengths = np.shape(x)[-axes:]
        over = _windows_of(lengths, axes, kernel_size, stride, padding, 1, ceil_mode)
        total = _sums(x, over)
        if divisor_override is not None:
            return total / float(divisor_override)
        counts = _count_elements(lengths, over, count_include_pad)
        return total / (float(counts.flat[0]) if (counts == counts.flat[0]).all() else counts)

    return rule


def _count_elements(lengths: Sequence[int], over: _Windows, padded: bool) -> Any:
    """How many elements each window has: with the declared zeros around them, or without."""
    counts: Any = np.ones(())
    for n, k, s, before, after in zip(lengths, over.sizes, over.stride, over.before, over.after, strict=True):
        starts = np.arange((n + before + after - k) // s + 1) * s - before
        ends = np.minimum(starts + k, n + before if padded else n)
        counts = counts[..., None] * (ends - (starts if padded else np.maximum(starts, 0)))
    return counts


def _cells(length: int, count: int) -> list[slice]:
    """The windows of an adaptive pooling: as equal as they can be, and overlapping where they are not."""
    return [slice(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]


def _adaptive(x: Any, output_size: Any, axes: int, pooled: Callable[[Any], Any]) -> Any:
    """`pooled` of every cell, whose axes are the last; x (..., *lengths)."""
    lengths = np.shape(x)[-axes:]
    counts = for_each_axis(_as_list(output_size), axes)
    cells = itertools.product(*(_cells(n, count) for n, count in zip(lengths, counts, strict=True)))
    parts = [pooled(x[(..., *cell)]) for cell in cells]
    return np.reshape(np.stack(parts, axis=-1), (*np.shape(x)[:-axes], *counts))


def _adaptive_average(axes: int) -> Callable[..., Any]:
    def rule(x: Any, output_size: Any) -> Any:
        lengths, counts = np.shape(x)[-axes:], for_each_axis(_as_list(output_size), axes)
        if all(n % count == 0 for n, count in zip(lengths, counts, strict=True)):
            sizes = tuple(n // count for n, count in zip(lengths, counts, strict=True))
            return _average(axes)(x, sizes)
        return _adaptive(x, output_size, axes, lambda cell: np.mean(cell, axis=tuple(range(-axes, 0))))

    def one_by_one(x: Any, output_size: Any) -> Any:
        return _adaptive(x, output_size, axes, lambda cell: _mean_one_by_one(cell, axes))

    def any_way(x: Any, output_size: Any) -> Any:
        ways = (Algorithm(partial(f, output_size=output_size), name) for f, name in ((rule, ""), (one_by_one, STORED)))
        return among(list(ways), x)

    return any_way if axes == 3 else rule


def _mean_one_by_one(cell: Any, axes: int) -> Any:
    """The mean over the last axes, as torch has it of volumes: added one by one to what is stored."""
    flat = np.moveaxis(np.reshape(cell, (*np.shape(cell)[:-axes], math.prod(np.shape(cell)[-axes:]))), -1, 0)
    count = np.shape(flat)[0]
    total = scatter(flat, np.zeros(count, dtype=np.int64), (1, *np.shape(flat)[1:]), in_place=True)[0]
    return may_store(total) / float(count)


def _below(x: Any) -> float:
    """A number that no element of an array is below, if all are finite; else the lowest of all."""
    base = constant(x)
    if isinstance(base, Recorded) and not base.plan.evaluated:
        return -np.inf  # Which number it is says nothing of which rows take part.
    for size in (2.0**4, 2.0**16, 2.0**100):
        if surely((base > -size) & (base < size)).all():
            return -size
    return -np.inf


def _largest(axes: int) -> Callable[..., Any]:
    def rule(
        x: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Any:
        lengths = np.shape(x)[-axes:]
        over = _windows_of(lengths, axes, kernel_size, stride, padding, dilation, ceil_mode)
        padded = insert_zeros(x, over.before, over.after, (1,) * axes)
        if any(over.before) or any(n > 0 for n in over.after):
            inside = insert_zeros(np.ones(lengths), over.before, over.after, (1,) * axes) > 0
            padded = choose(inside, padded, _below(x))
        view = windows(padded, over.sizes, over.stride, over.dilation)
        values = np.max(view, axis=tuple(range(-axes, 0)))
        return values, _positions(view, lengths, over)

    return rule


def _positions(view: Any, lengths: Sequence[int], over: _Windows) -> Choice:
    """The flat index, within the pooled axes, of the largest element of every window."""
    within = extreme_at(view, tuple(range(-over.axes, 0)))

    def starts() -> list[Any]:
        """Of every window its first index along each pooled axis, which is negative in the padding."""
        counts = within.shape[-over.axes :]
        each = (np.arange(n) * s - b for n, s, b in zip(counts, over.stride, over.before, strict=True))
        return list(np.meshgrid(*each, indexing="ij"))

    def accepts(indices: Any) -> Any:
        """Which indices are of elements of their own window that may be its largest one."""
        possible = (indices >= 0) & (indices < math.prod(lengths))
        offsets = []
        at = np.unravel_index(np.where(possible, indices, 0), lengths)
        for index, start, k, d in zip(at, starts(), over.sizes, over.dilation, strict=True):
            offset = index - start
            possible = possible & (offset >= 0) & (offset < d * k) & (offset % d == 0)
            offsets.append(np.where(possible, offset // d, 0))
        return possible & within.accepts(np.ravel_multi_index(offsets, over.sizes))

    def likely() -> tuple[Any, Any]:
        offsets = np.unravel_index(within.likely(), over.sizes)
        each = zip(offsets, starts(), over.dilation, strict=True)
        return np.ravel_multi_index([o * d + start for o, start, d in each], lengths), within.sure()

    return Choice(within.shape, accepts, likely)


def _adaptive_largest(axes: int) -> Callable[..., Any]:
    def rule(x: Any, output_size: Any) -> Any:
        lengths, counts = np.shape(x)[-axes:], for_each_axis(_as_list(output_size), axes)
        if all(n % count == 0 for n, count in zip(lengths, counts, strict=True)):
            sizes = tuple(n // count for n, count in zip(lengths, counts, strict=True))
            return _largest(axes)(x, sizes)
        values = _adaptive(x, output_size, axes, lambda cell: np.max(cell, axis=tuple(range(-axes, 0))))
        return values, _positions_of_cells(x, lengths, counts)

    return rule


def _positions_of_cells(x: Any, lengths: Sequence[int], counts: Sequence[int]) -> Choice:
    axes = len(counts)
    cells = list(itertools.product(*(_cells(n, count) for n, count in zip(lengths, counts, strict=True))))
    parts = [extreme_at(x[(..., *cell)], tuple(range(-axes, 0))) for cell in cells]
    numbers = np.arange(math.prod(lengths)).reshape(tuple(lengths))
    shape = (*np.shape(x)[:-axes], *counts)

    def each(answers: Sequence[Any]) -> Any:
        return np.stack(answers, axis=-1).reshape(shape)

    def accepts(indices: Any) -> Any:
        answers = []
        for i, (cell, part) in enumerate(zip(cells, parts, strict=True)):
            own = numbers[cell].ravel()
            index = indices.reshape(*part.shape, -1)[..., i]
            place = np.minimum(np.searchsorted(own, index), len(own) - 1)
            answers.append((own[place] == index) & part.accepts(place))
        return each(answers)

    def likely() -> tuple[Any, Any]:
        indices = [numbers[cell].ravel()[part.likely()] for cell, part in zip(cells, parts, strict=True)]
        return each(indices), each([part.sure() for part in parts])

    return Choice(shape, accepts, likely)


for _axes in (1, 2, 3):
    _own = "" if _axes == 1 else f" _adaptive_avg_pool{_axes}d"
    enter({f"avg_pool{_axes}d": _average(_axes), f"adaptive_avg_pool{_axes}d{_own}": _adaptive_average(_axes)})
    enter_moves(
        {f"max_pool{_axes}d_with_indices": _largest(_axes), f"adaptive_max_pool{_axes}d": _adaptive_largest(_axes)}
    )
enter_moves({"max_pool1d": lambda *args, **kwargs: _largest(1)(*args, **kwargs)[0]})
