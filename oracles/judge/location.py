"""Sentences about where the wrong elements of an output are, and how they are related to the right values.

The place of wrong elements often shows the fault to a kernel's author: a last tile that was not masked, a row that was
shifted, a factor that was forgotten. A sentence is given only if it is true of every wrong element.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

#: Extents of tiles that kernels work in, the largest first.
_TILES = (1024, 512, 256, 128, 64, 32, 16, 8)
#: Two errors are called the same if they differ by at most this share of themselves. That chooses the words of a
#: sentence after the verdict; no verdict depends on it.
_ALIKE = 2.0**-4
#: A factor nearer to 1 is described by its distance from 1, because four digits would show it as 1.
_ONE = 2.0**-7
#: The largest number of elements whose wrong and right values are compared with each other.
_LOOKED_AT = 2**16
#: The words for rows that are too many to name.
_SOMEWHERE = "each as a whole"
#: The words for flushed subnormal numbers, or for memory that was never written.
ALL_ZERO = "all of these are zero"
#: The largest number of lines and of columns of a map, and the smallest number of elements of which one is drawn.
_LINES, _COLUMNS, _SAMPLES = 8, 64, 16


def box_of(outside: Any) -> tuple[tuple[int, int], ...]:
    """The first and the last index of wrong elements along every axis.

    Args:
        outside: bool array of the shape of the output, with at least one true element.
    """
    return tuple((int(at.min()), int(at.max())) for at in np.nonzero(outside))


def describe_place(outside: Any) -> str:
    """Where the wrong elements are, in words; empty if no short sentence is true of all of them.

    Args:
        outside: as for `box_of`.
    """
    if outside.ndim == 0 or outside.size == 1:
        return ""
    if outside.all():
        return "all elements"
    lines = _describe_lines(outside)
    if lines:
        return lines
    box = box_of(outside)
    narrow = [axis for axis, (first, last) in enumerate(box) if last - first + 1 < outside.shape[axis]]
    if not narrow:
        return ""
    if len(narrow) == 1:
        axis = narrow[0]
        return f"only in {_describe_range(outside.shape, axis, *box[axis])}"
    span = (str(first) if first == last else f"{first}:{last + 1}" for first, last in box)
    return f"only in [{', '.join(span)}]"


def draw_map(outside: Any) -> list[str]:
    """Where the wrong elements lie along the last two axes, drawn: the scale, and a line of cells for some rows each.

    A cell is a rectangle whose sides are powers of two, as those of tiles are; elements of all other indices count in
    it. Nothing is drawn of fewer than 16 elements, where `describe_place` says all, and where no cell is free of them.

    Args:
        outside: as for `box_of`.
    """
    if outside.size < _SAMPLES:
        return []
    lines, box = _describe_lines(outside), math.prod(last - first + 1 for first, last in box_of(outside))
    if box == np.count_nonzero(outside) or (lines and not lines.endswith(_SOMEWHERE)):
        return []
    shape = [extent for extent in outside.shape if extent > 1]
    rows, columns = shape[-2] if len(shape) > 1 else 1, shape[-1]
    share = outside.reshape(-1, rows, columns).mean(0)
    high, wide = _side(rows, _LINES), _side(columns, _COLUMNS)
    below, right = -rows % high, -columns % wide
    cells = np.pad(share, ((0, below), (0, right)), constant_values=np.nan)
    tenths = np.nanmean(cells.reshape(-(-rows // high), high, -1, wide), axis=(1, 3)) * 10
    if tenths.all():
        return []
    scale = f"of {high} by {wide} elements each: . none outside, 1 to 9 tenths, # all"
    return [scale, *("".join(".123456789#"[min(math.ceil(t), 9 + (t == 10))] for t in line) for line in tenths)]


def _side(extent: int, most: int) -> int:
    """The side of the cells that an axis is cut into: the least power of two that makes no more than `most` of them."""
    return 1 << max(math.ceil(extent / most) - 1, 0).bit_length()


def _describe_lines(outside: Any) -> str:
    """Rows, columns or slices that are wrong as a whole, where there are no other wrong elements."""
    for axis in range(outside.ndim):
        lines = outside.any(axis=tuple(i for i in range(outside.ndim) if i != axis))
        if not np.array_equal(np.broadcast_to(_along(lines, axis, outside.ndim), outside.shape), outside):
            continue
        at = np.flatnonzero(lines)
        first, last, steps = int(at[0]), int(at[-1]), np.diff(at)
        if len(at) == last - first + 1:
            count = outside.shape[axis] - len(at)
            if count == 1 and len(at) > 1:
                return f"all {_name(axis, outside.ndim)} but the {'last' if first == 0 else 'first'}"
            return f"only {_describe_range(outside.shape, axis, first, last)}"
        if len(at) > 2 and np.all(steps == steps[0]):
            return f"{_name(axis, outside.ndim, f'{first}, {at[1]}, {at[2]} and so on')}, by steps of {steps[0]}"
        if len(at) <= 4:
            return f"only {_name(axis, outside.ndim, ', '.join(map(str, at)))}"
        return f"{len(at)} of the {outside.shape[axis]} {_name(axis, outside.ndim)}, {_SOMEWHERE}"
    return ""


def _describe_range(shape: tuple[int, ...], axis: int, first: int, last: int) -> str:
    """A range of indices along one axis, and whether it is what remains after whole tiles."""
    count, extent = last - first + 1, shape[axis]
    if first == last:
        return _name(axis, len(shape), first, many=False) + " (the last)" * (last == extent - 1)
    text = _name(axis, len(shape), f"{first} to {last}")
    if not first or last < extent - 1:
        return text
    if count in _TILES and first % count == 0:
        return f"{text} (the last tile of {count})"
    tile = next((tile for tile in _TILES if first % tile == 0 and count < tile), 0)
    return f"{text} (the rest after tiles of {tile})" if tile else text


def _along(lines: Any, axis: int, dims: int) -> Any:
    return lines.reshape(tuple(-1 if i == axis else 1 for i in range(dims)))


def _name(axis: int, dims: int, which: object = "", *, many: bool = True) -> str:
    """Indices of an axis in words: "rows 2 to 5", "the columns", "index 3 of axis 0"."""
    one = "element" if dims == 1 else {dims - 1: "column", dims - 2: "row"}.get(axis, "")
    if one:
        return f"{one}{'s' * many} {which}".strip()
    return " ".join(f"{'indices' if many else 'index'} {which}".split()) + f" of axis {axis}"


def describe_relation(computed: Any, exact: Any, outside: Any) -> str:
    """How the wrong elements go with the right ones; empty where no short sentence is true of all.

    Args:
        computed, exact: float64 arrays of one shape. outside: bool array, the wrong elements.
    """
    wrong, right = computed[outside][:_LOOKED_AT], exact[outside][:_LOOKED_AT]
    if outside.size == 1 or not np.isfinite(right).all():
        return ""
    if np.isnan(wrong).all():
        return "all of these are NaN"
    if not np.isfinite(wrong).all() or not right.any():
        return ""
    if not wrong.any():
        return ALL_ZERO
    if len(wrong) < 2:
        return ""
    known = right != 0
    with np.errstate(all="ignore"):
        factors = wrong[known] / right[known]
        apart = wrong - right
    factor = float(np.median(factors))
    if not wrong[~known].any() and np.all(np.abs(factors - factor) <= _ALIKE * abs(factor - 1.0)):
        if abs(factor + 1.0) <= _ALIKE:
            return "of the other sign"
        return (
            f"off by the factor {factor:.4g}" if abs(factor - 1.0) >= _ONE else f"off by {factor - 1.0:.3g} of itself"
        )
    offset = float(np.median(apart))
    if offset and np.all(np.abs(apart - offset) <= _ALIKE * abs(offset)):
        return f"off by {offset:+.4g}"
    return _describe_shift(computed, exact)


@np.errstate(invalid="ignore")  # elements that are right may be infinite
def _describe_shift(computed: Any, exact: Any) -> str:
    """A sentence if the output is the right one shifted by one along an axis; else empty."""
    for axis in range(computed.ndim):
        if computed.shape[axis] < 4:
            continue
        for step in (1, -1):
            moved = np.roll(exact, step, axis)
            inner = tuple(slice(1, -1) if i == axis else slice(None) for i in range(computed.ndim))
            # The difference must be small relative to the error, because in an output of nearly equal numbers every
            # shift gives small differences.
            error = np.abs(computed[inner] - exact[inner]).max(initial=0.0)
            if error and np.all(np.abs(computed[inner] - moved[inner]) <= _ALIKE * error):
                here, right = (1, 0) if step == 1 else (0, 1)
                one = _name(axis, computed.ndim, here, many=False)
                return f"shifted by one: {one} holds what belongs into {right}, and so on"
    return ""
