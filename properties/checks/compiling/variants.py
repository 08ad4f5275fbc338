"""Variants of a sample's arguments: of other sizes, and with other values of the arguments that are no tensors.

What this is for: code that was compiled for one call must be right in another one.

What is hard here: the op alone knows which extents must be equal, and which numbers are extents or divide them. So
equal extents grow together, and the production op is called with the new arguments, because it checks whether they are
valid.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ....oracles.judge.judge import Judge
from ....oracles.op.bits import same_results
from ....oracles.op.declaration import Sample, Tensor
from ....oracles.verdicts.violation import Violation, error_lines, error_name
from ....reference.dtypes import FORMATS
from ..agreement import Args, outputs_of

#: Factors by which axes are longer in the other sizes: one group of equal extents alone, and all groups together.
LONGER = (2, 3)
#: At most this many groups of equal extents grow.
GROUPS = 3
#: Words that arguments of torch's ops may be (`reduction`).
WORDS = ("none", "mean", "sum")
_DTYPES = tuple(getattr(torch, name) for name in FORMATS)


@dataclass(frozen=True)
class Size:
    """Arguments of another size.

    Attributes:
        description: which axes are longer. args: the arguments. extents: those of the sample that are longer here.
        constants: whether the arguments that are no tensors are those of the sample.
    """

    description: str
    args: Args
    extents: frozenset[int]
    constants: bool


def change_sizes(judge: Judge, sample: Sample) -> list[Size]:
    """Arguments in which one extent is larger, for every extent that may grow; and arguments in which all are."""
    sizes: list[Size] = []
    extents = {n for a in sample.args if isinstance(a, Tensor) for n in a.shape if n > 1}
    together, grown = sample.args, set()
    for extent in sorted(extents, reverse=True)[:GROUPS]:
        alone = _grow(judge, sample.args, extent, LONGER[0])
        if alone is None:
            continue
        sizes.append(_size(f"axes of {extent} elements with {LONGER[0] * extent}", alone, sample.args, {extent}))
        # Together the extents grow by another factor. An extent that would become equal to another one does not grow,
        # because the two would then grow together.
        more = None if extent * LONGER[1] in extents else _grow(judge, together, extent, LONGER[1])
        if more is not None:
            together = more
            grown.add(extent)
    if len(grown) > 1:
        sizes.append(_size(f"axes {LONGER[1]} times as long", together, sample.args, grown))
    return sizes


def _size(description: str, args: Args, before: Args, extents: Iterable[int]) -> Size:
    same = all(isinstance(a, Tensor) or a == b for a, b in zip(args, before, strict=True))
    return Size(description, args, frozenset(extents), same)


def marks_of(sample: Sample, extents: Collection[int]) -> dict[int, list[int]]:
    """The axes of these extents, by the position of the tensor that has them."""
    marks: dict[int, list[int]] = {}
    for i, a in enumerate(sample.args):
        if isinstance(a, Tensor):
            axes = [axis for axis, n in enumerate(a.shape) if n in extents]
            marks |= {i: axes} if axes else {}
    return marks


def _grow(judge: Judge, args: Args, extent: int, times: int) -> Args | None:
    """The arguments with every axis of an extent `times` as long; None where the op refuses all such arguments."""
    tensors = tuple(_longer(a, extent, times) if isinstance(a, Tensor) else a for a in args)
    # A number may be the extent, a multiple of it, or be unrelated to it. The smallest set of numbers that have to grow
    # for the op to accept the arguments is tried first.
    numbers = [i for i, a in enumerate(args) if _has_extent(a, extent)]
    note = ""
    for size in range(len(numbers) + 1):
        for combination in itertools.combinations(numbers, size):
            candidate = tuple(_scale_extent(a, extent, times) if i in combination else a for i, a in enumerate(tensors))
            try:
                if outputs_of(judge, candidate) is not None:
                    return candidate
            except Violation as violation:
                note = _assertion_of(violation)
    if note and note not in judge.tally.notes:
        judge.tally.note(note)
    return None


def _assertion_of(violation: Violation) -> str:
    """What an op asserts of arguments of a size that nobody promised: no fault, as any other exception is."""
    err = violation.__cause__
    if not isinstance(err, AssertionError):
        raise violation
    return f"another size was not asked: {' '.join((error_name(err), *error_lines(err)[:1]))}"


def _longer(tensor: Tensor, extent: int, times: int) -> Tensor:
    """The tensor, repeated along its axes of that extent, so that the statistics of its rows do not change."""
    return tensor.repeat([times if n == extent else 1 for n in tensor.shape]) if tensor.ndim else tensor


def _has_extent(value: Any, extent: int) -> bool:
    if isinstance(value, tuple):
        return any(_has_extent(item, extent) for item in value)
    return type(value) is int and value > 0 and value % extent == 0


def _scale_extent(value: Any, extent: int, times: int) -> Any:
    if isinstance(value, tuple):
        return tuple(_scale_extent(item, extent, times) if item == extent else item for item in value)
    return value * times


def change_values(judge: Judge, sample: Sample, apart: bool) -> list[tuple[str, Args]]:
    """(description, arguments) of other calls: every argument that is no tensor has another value in one of them.

    Several arguments change at once where each change still shows in the outputs, unless they are to change apart.
    """
    before = outputs_of(judge, sample.args)
    groups: list[dict[int, Any]] = []
    for i, value in enumerate(sample.args):
        other = None if isinstance(value, Tensor) or before is None else _visible(judge, sample.args, i, before)
        if other is None:
            continue
        change = {i: other}
        home = next((g for g in groups if not apart and _are_all_visible(judge, sample.args, g | change)), None)
        if home is None:
            groups.append(change)
        else:
            home |= change
    label = judge.op.label
    return [
        (", ".join(f"{label(i)}={_describe_value(value)}" for i, value in group.items()), _change(sample.args, group))
        for group in groups
    ]


def _describe_value(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _change(args: Args, changes: Mapping[int, Any]) -> Args:
    """The arguments with other values at some positions."""
    return tuple(changes.get(i, a) for i, a in enumerate(args))


def _visible(judge: Judge, args: Args, position: int, before: Sequence[Tensor]) -> Any:
    """Another value of an argument that the op accepts and that changes its outputs; None where there is none."""
    for value in _candidates(args[position]):
        after = _call_at_guess(judge, _change(args, {position: value}))
        # Without outputs there would be nothing to compare.
        if after and not _are_equal(before, after):
            return value
    return None


def _call_at_guess(judge: Judge, args: Args) -> tuple[Tensor, ...] | None:
    """The outputs at arguments that may be invalid; None where the op raises anything.

    A guessed value may have a type that the op does not know, so no error is a fault of the op.
    """
    try:
        return outputs_of(judge, args)
    except Violation:
        return None


def _are_all_visible(judge: Judge, args: Args, changes: Mapping[int, Any]) -> bool:
    """Whether the op accepts all of the changes together, and has other outputs without any one of them."""
    after = outputs_of(judge, _change(args, changes))
    if not after:
        return False
    others = (outputs_of(judge, _change(args, {i: v for i, v in changes.items() if i != own})) for own in changes)
    return all(other is not None and not _are_equal(other, after) for other in others)


def _are_equal(before: Sequence[Tensor], after: Sequence[Tensor]) -> bool:
    return len(before) == len(after) and all(map(same_results, before, after))


def _candidates(value: Any) -> Iterator[Any]:
    if value is None or isinstance(value, torch.dtype):
        yield from (dtype for dtype in _DTYPES if dtype != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (other for other in (0, 1, 2, value + 1, value - 1, 3, -1) if other != value)
    elif isinstance(value, float):
        yield from (value + 0.25, 2 * value, value / 2)
    elif isinstance(value, str):
        yield from (word for word in WORDS if word != value and value in WORDS)
    elif isinstance(value, tuple) and all(isinstance(item, bool) for item in value):
        yield from (tuple(not b if k == i else b for k, b in enumerate(value)) for i in range(len(value)))
    elif isinstance(value, tuple) and len(value) > 1:
        yield from (value[1:], value[::-1])
