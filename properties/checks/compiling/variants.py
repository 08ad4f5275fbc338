"""Other arguments of the same kind as a sample's: of other sizes, and with other values of what is no tensor.

What this is for: compiled code was made for one call, and is asked to serve another one.

What is hard here: which extents must be equal, and which numbers are extents or divide them, the op alone knows. So
extents that are equal grow together, and the production op is asked whether it takes what comes of it: it checks its
arguments.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ....oracles.judge.judge import Judge
from ....oracles.op.bits import same_results
from ....oracles.op.declaration import Sample, Tensor
from ....oracles.verdicts.violation import Violation
from ..agreement import Args, outputs_of

#: How many times as long an axis is in the other sizes.
LONGER = (2, 3)
#: At most so many groups of equal extents grow one by one.
GROUPS = 3
#: Words that ops of torch take for an argument.
WORDS = ("none", "mean", "sum")
_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


# ---------------------------------------------------------------------------------------------------------- sizes


@dataclass(frozen=True)
class Size:
    """Arguments of another size.

    Attributes:
        said: what is longer. args: the arguments. extents: the extents of the sample that are longer here.
        constants: whether all that is no tensor is what it was.
    """

    said: str
    args: Args
    extents: frozenset[int]
    constants: bool


def resized(judge: Judge, sample: Sample) -> list[Size]:
    """Arguments of another size for every extent that may grow, one by one, and for all of them together."""
    found: list[Size] = []
    extents = {n for a in sample.args if isinstance(a, Tensor) for n in a.shape if n > 1}
    together, grown = sample.args, set()
    for extent in sorted(extents, reverse=True)[:GROUPS]:
        alone = _grown(judge, sample.args, extent, LONGER[0])
        if alone is None:
            continue
        found.append(_size(f"axes of {extent} elements with {LONGER[0] * extent}", alone, sample.args, {extent}))
        # Together they grow by another factor. An extent that is now as long as another one would grow with that, so
        # it is left as it is.
        more = None if extent * LONGER[1] in extents else _grown(judge, together, extent, LONGER[1])
        if more is not None:
            together = more
            grown.add(extent)
    if len(grown) > 1:
        found.append(_size(f"axes {LONGER[1]} times as long", together, sample.args, grown))
    return found


def _size(said: str, args: Args, before: Args, extents: Iterable[int]) -> Size:
    same = all(isinstance(a, Tensor) or a == b for a, b in zip(args, before, strict=True))
    return Size(said, args, frozenset(extents), same)


def marks_of(sample: Sample, extents: Collection[int]) -> dict[int, list[int]]:
    """The axes of these extents, by the position of the tensor that has them."""
    found: dict[int, list[int]] = {}
    for i, a in enumerate(sample.args):
        if isinstance(a, Tensor):
            axes = [axis for axis, n in enumerate(a.shape) if n in extents]
            found |= {i: axes} if axes else {}
    return found


def _grown(judge: Judge, args: Args, extent: int, times: int) -> Args | None:
    """The arguments with every axis of that extent so many times as long; None where the op takes none like that."""
    tensors = tuple(_longer(a, extent, times) if isinstance(a, Tensor) else a for a in args)
    # A number may be the extent, a multiple of it, or have nothing to do with it; what has nothing to do with it stays.
    numbers = [i for i, a in enumerate(args) if _has_extent(a, extent)]
    for size in range(len(numbers) + 1):
        for chosen in itertools.combinations(numbers, size):
            given = tuple(_scale_extent(a, extent, times) if i in chosen else a for i, a in enumerate(tensors))
            if outputs_of(judge, given) is not None:
                return given
    return None


def _longer(tensor: Tensor, extent: int, times: int) -> Tensor:
    """The tensor repeated along its axes of that extent: statistics of its rows stay what they are."""
    return tensor.repeat([times if n == extent else 1 for n in tensor.shape]) if tensor.ndim else tensor


def _has_extent(value: Any, extent: int) -> bool:
    if isinstance(value, tuple):
        return any(_has_extent(item, extent) for item in value)
    return type(value) is int and value > 0 and value % extent == 0


def _scale_extent(value: Any, extent: int, times: int) -> Any:
    if isinstance(value, tuple):
        return tuple(_scale_extent(item, extent, times) if item == extent else item for item in value)
    return value * times


# ---------------------------------------------------------------------------------------------------------- values


@dataclass(frozen=True)
class ArgumentChange:
    """Another value of an argument that is no tensor."""

    position: int
    value: Any


def revalued(judge: Judge, sample: Sample, apart: bool) -> list[tuple[str, Args]]:
    """(what has which value, arguments): every argument that is no tensor is changed in one of them.

    A change is made with others at once where each of them can still be seen in the outputs.

    Args:
        judge, sample: whose arguments they are. apart: whether each change is made by itself instead.
    """
    before = outputs_of(judge, sample.args)
    groups: list[list[ArgumentChange]] = []
    for i, value in enumerate(sample.args):
        other = None if isinstance(value, Tensor) or before is None else _visible(judge, sample.args, i, before)
        if other is None:
            continue
        change = ArgumentChange(i, other)
        home = next((g for g in groups if not apart and _all_seen(judge, sample.args, [*g, change])), None)
        if home is None:
            groups.append([change])
        else:
            home.append(change)
    label = judge.op.label
    return [
        (", ".join(f"{label(c.position)}={_told_as(c.value)}" for c in group), _changed(sample.args, group))
        for group in groups
    ]


def _told_as(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _changed(args: Args, changes: Sequence[ArgumentChange]) -> Args:
    new = {change.position: change.value for change in changes}
    return tuple(new.get(i, a) for i, a in enumerate(args))


def _visible(judge: Judge, args: Args, position: int, before: Sequence[Tensor]) -> Any:
    """Another value of an argument that the op takes and that changes its outputs; None where there is none."""
    for value in _candidates(args[position]):
        after = _guessed(judge, _changed(args, [ArgumentChange(position, value)]))
        # Without outputs there would be nothing to compare.
        if after and not _have_same_layout(before, after):
            return value
    return None


def _guessed(judge: Judge, args: Args) -> tuple[Tensor, ...] | None:
    """The outputs at arguments that are a guess: another type than an argument had may be none that the op knows of.

    So an error of any kind says that the guess was wrong, and nothing about the op.
    """
    try:
        return outputs_of(judge, args)
    except Violation:
        return None


def _all_seen(judge: Judge, args: Args, changes: Sequence[ArgumentChange]) -> bool:
    """Whether the op takes all of the changes, and without any one of them has other outputs."""
    after = outputs_of(judge, _changed(args, changes))
    if not after:
        return False
    others = (outputs_of(judge, _changed(args, [c for c in changes if c is not change])) for change in changes)
    return all(other is not None and not _have_same_layout(other, after) for other in others)


def _have_same_layout(before: Sequence[Tensor], after: Sequence[Tensor]) -> bool:
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
