"""Operations on integers that rounding leaves open (`Whole`): the least and the largest integer of each result.

Where few integers are possible, torch itself does an elementwise operation on each of them, so that the result is
torch's, wrapping around included. Operations that are monotone in their operands, or move them, are done on the bounds.
All others are left to the rules for real numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ...reference.array import Array
from ...reference.condition import condition
from ...reference.missing import NoReadingError
from ...reference.whole import Whole, unbounded, whole
from .rules.table import MOVES, overloads

aten = torch.ops.aten

#: An operation is done on every integer that an element may have if its bounds are at most `_FEW` apart, and if the
#: operands together have at most `_COMBINATIONS` combinations of such integers.
_FEW, _COMBINATIONS = 3, 64
#: Operations that grow or fall with every operand: the ends of the result come from ends of the operands.
_MONOTONE = set(
    overloads(
        "add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Scalar mul.Tensor mul.Scalar neg clamp clamp.Tensor clamp_min"
        " clamp_min.Tensor clamp_max clamp_max.Tensor maximum minimum relu cat stack constant_pad_nd sum"
        " sum.dim_IntList amax amin max min cumsum copy"
    )
)
#: Products of matrices, whose elements are sums of products.
_PRODUCTS = set(overloads("mm bmm mv dot _int_mm"))
#: Operations that read at the places that an operand names, and which operand that is.
_READING = {
    **dict.fromkeys(overloads("index.Tensor _unsafe_index.Tensor embedding take"), 1),
    **dict.fromkeys(overloads("gather index_select"), 2),
}
#: Operations that write at the places that an operand names, and which operand that is.
_WRITING = {
    **dict.fromkeys(overloads("index_put _unsafe_index_put put _embedding_bag"), 1),
    **dict.fromkeys(
        overloads(
            "scatter.src scatter.value scatter.reduce scatter.value_reduce scatter_add scatter_reduce.two index_copy"
            " index_add index_reduce index_fill.int_Scalar index_fill.int_Tensor"
        ),
        2,
    ),
}
#: Shifts to the right by a number, which grow with their operand.
_SHIFTS = set(overloads("__rshift__.Scalar bitwise_right_shift.Tensor_Scalar"))
_Torch = Callable[[Any, Any], Any]


def is_read_at(target: Any, args: Sequence[Any]) -> bool:
    """Whether an operation reads at indices that rounding leaves open.

    Raises:
        NoReadingError: the operation writes at such places.
    """
    place = _READING.get(target, _WRITING.get(target))
    if place is None or not any(isinstance(leaf, Whole) for leaf in pytree.tree_leaves(args[place])):
        return False
    if target in _WRITING:
        raise NoReadingError("it writes at a place that depends on how numbers are rounded")
    return True


def is_place(target: Any, args: Sequence[Any], value: Any) -> bool:
    """Whether a value stands among the places at which an operation reads or writes."""
    place = _READING.get(target, _WRITING.get(target))
    return place is not None and any(leaf is value for leaf in pytree.tree_leaves(args[place]))


def of_integers(target: Any, args: Any, kwargs: Mapping[str, Any], by_torch: _Torch) -> Any:
    """What an operation makes of integers of which some are open; None where only the rules for real numbers can say.

    Args:
        target: an aten operation that gives integers. args, kwargs: arrays of integers, `Whole`s and whatever else.
        by_torch: (args, kwargs) -> what torch computes of arrays of integers.
    """
    leaves, structure = pytree.tree_flatten((args, dict(kwargs)))
    open_ = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Whole)]

    def of(parts: Sequence[Any], change: Callable[[Any], Any] = lambda x: x) -> Any:
        filled = [change(leaf) for leaf in leaves]
        for i, part in zip(open_, parts, strict=True):
            filled[i] = change(part)
        return by_torch(*pytree.tree_unflatten(filled, structure))

    every: list[Whole] = [leaves[i] for i in open_]
    if target in MOVES and len(target._schema.returns) == 1:
        low, high = of([x.low for x in every]), of([x.high for x in every])
        return pytree.tree_map(lambda a, b: whole(a, b, every[0].reading), low, high)
    if target in _PRODUCTS:
        return _bound_product(target, args, by_torch)
    pointwise = torch.Tag.pointwise in target.tags
    if not pointwise and target not in _MONOTONE:
        return None
    ends: Any = _of_ends(of, every) if target in _MONOTONE else None
    if target in _SHIFTS:
        ends = of([x.low for x in every]), of([x.high for x in every])
    return _of_each(of, every, ends) if pointwise else whole(ends[0], ends[1], every[0].reading)


def _of_each(of: Callable[..., Any], every: Sequence[Whole], ends: Any) -> Any:
    """The result of an elementwise operation on each integer that its operands may have.

    Args:
        ends: bounds of the result where there are too many such integers; None where nothing is known there.
    """
    widths = [x.high.astype(np.float64) - x.low for x in every]
    few = [width <= _FEW for width in widths]
    counts = [int(np.max(width[small], initial=0.0)) + 1 for width, small in zip(widths, few, strict=True)]
    all_few = few[0]
    for small in few[1:]:
        all_few = all_few & small
    low: Any = None
    high: Any = None
    if np.prod(counts) <= _COMBINATIONS:
        for steps in itertools.product(*map(range, counts)):
            pairs = zip(every, steps, few, strict=True)
            # An element with too many integers stands here as its least one, and its result is left out below.
            parts = [np.minimum(x.low.astype(np.int64) + step * small, x.high) for x, step, small in pairs]
            one = of([part.astype(x.dtype) for part, x in zip(parts, every, strict=True)])
            low, high = (one, one) if low is None else (np.minimum(low, one), np.maximum(high, one))
    if low is None:
        if ends is not None:
            return whole(ends[0], ends[1], every[0].reading)
        low = high = of([x.low for x in every])
        all_few = np.False_
    info = np.iinfo(low.dtype)
    otherwise = (info.min, info.max) if ends is None else ends
    low, high = (np.where(all_few, a, b).astype(a.dtype) for a, b in zip((low, high), otherwise, strict=True))
    return whole(low, high, every[0].reading)


def _of_ends(of: Callable[..., Any], every: Sequence[Whole]) -> tuple[Any, Any]:
    """The least and the largest result of a monotone operation at the ends of its operands.

    Where a result may lie beyond the range of the dtype nothing is known, and the ends are those of the range.
    """
    corners = list(itertools.product(*((x.low, x.high) for x in every)))
    exact = [of(parts) for parts in corners]
    real = [of(parts, _real) for parts in corners]
    low, high = (np.asarray(take(exact, axis=0)) for take in (np.min, np.max))
    info = np.iinfo(low.dtype)
    # float64 rounds the ends of the range of 64-bit integers, so results at those ends count as beyond the range, too.
    outer = float(info.bits < 64)
    inside = (np.min(real, axis=0) > float(info.min) - outer) & (np.max(real, axis=0) < float(info.max) + outer)
    return np.where(inside, low, info.min).astype(low.dtype), np.where(inside, high, info.max).astype(low.dtype)


def _real(leaf: Any) -> Any:
    if isinstance(leaf, torch.dtype):
        return torch.float64
    return leaf.astype(np.float64) if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iu" else leaf


def _bound_product(target: Any, args: Sequence[Any], by_torch: _Torch) -> Any:
    """Bounds of a product of matrices: with m = high + low and w = high − low of each factor, 4 times the product is
    within m m' ± (w |m'| + |m| w' + w w').
    """
    reading = next(x.reading for x in args if isinstance(x, Whole))
    ends = [(x.low, x.high) if isinstance(x, Whole) else (x, x) for x in args]
    middles, widths = (
        [f(h.astype(np.float64), lo.astype(np.float64)) for lo, h in ends] for f in (np.add, np.subtract)
    )
    plain = aten.mm.default if target is aten._int_mm.default else target

    def times(a: Any, b: Any) -> Any:
        return np.asarray(plain(torch.from_numpy(a), torch.from_numpy(b)).numpy())

    sizes = [np.abs(m) for m in middles]
    centre = times(*middles)
    reach = times(widths[0], sizes[1]) + times(sizes[0], widths[1]) + times(*widths)
    dtype = by_torch([lo for lo, _ in ends], {}).dtype
    info = np.iinfo(dtype)
    low, high = np.ceil((centre - reach) / 4), np.floor((centre + reach) / 4)
    # Below 2^53 float64 has all of these sums exactly.
    in_range = (times(*sizes) + reach < 2.0**53) & (low >= info.min) & (high <= info.max)
    low, high = (np.where(in_range, each, 0.0).astype(dtype) for each in (low, high))
    return whole(
        np.where(in_range, low, info.min).astype(dtype), np.where(in_range, high, info.max).astype(dtype), reading
    )


def read_at(target: Any, args: Sequence[Any], by_rule: Callable[[Any], Any]) -> Any:
    """The elements that an operation reads at indices some of which rounding leaves open.

    An element may be any of those at its possible indices. It is unbounded if too many indices are possible.

    Args:
        target, args: of the operation, for which `is_read_at` is true.
        by_rule: (args with known indices) -> the elements that are read, from an array of a reading or of integers.
    """
    position = _READING[target]
    leaves, structure = pytree.tree_flatten(args[position])
    every: list[Whole] = [leaf for leaf in leaves if isinstance(leaf, Whole)]
    few = [x.high.astype(np.float64) - x.low <= _FEW for x in every]
    widths = [(x.high - x.low)[small] for x, small in zip(every, few, strict=True)]
    counts = [int(np.max(width, initial=0)) + 1 for width in widths]
    if np.prod(counts) > _COMBINATIONS:
        few, counts = [np.zeros(x.shape, bool) for x in every], [1] * len(every)

    def at(parts: Sequence[Any], x: Any) -> Any:
        rest = iter(parts)
        places = pytree.tree_unflatten([next(rest) if isinstance(leaf, Whole) else leaf for leaf in leaves], structure)
        return by_rule([places if i == position else x if i == 0 else arg for i, arg in enumerate(args)])

    x: Any = args[0].lifted() if isinstance(args[0], Whole) else args[0]
    reading = every[0].reading
    numbers = np.arange(int(np.prod(np.shape(x), dtype=np.int64))).reshape(np.shape(x))
    elements: Any = None
    first_places: Any = None
    for steps in itertools.product(*map(range, counts)):
        parts = [
            np.where(small, np.minimum(one.low.astype(np.int64) * small + step, one.high), 0)
            for one, small, step in zip(every, few, steps, strict=True)
        ]
        candidates, places = at(parts, x), at(parts, numbers)
        if elements is None:
            elements, first_places = candidates, places
            continue
        other = condition(np.zeros(places.shape, bool), places != first_places, reading)
        elements = np.where(other, candidates, elements)
    # An index with too many possible values may be any, so nothing is known of its element, unless there is only one.
    ends = [[np.where(small, one.low, end) for one, small in zip(every, few, strict=True)] for end in (0, -1)]
    nowhere = np.not_equal(*(at(parts, numbers) for parts in ends))
    if nowhere.any():
        # The unknown element is a multiple of the sum of all, so that nothing is known of its derivatives either.
        every_element: Any = np.sum(x) if isinstance(elements, Array) else 1.0
        anything = unbounded(reading, nowhere.shape)
        elements = np.where(nowhere, anything * every_element, elements)
    return elements
