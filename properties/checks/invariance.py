"""INV: a slice has the same bits alone, in a batch, at another position, and among other neighbours.

What this is for: users serve one request alone today and in a batch tomorrow, and expect the same answer. It is lost
where the split of a sum depends on how many rows there are, where the last rows of a block are computed another way, or
where rows that do not exist, or that hold a NaN, leak into others.

What is hard here: equal within a bound is not equal. So nothing is compared with the formula; the op is compared with
itself, bit for bit, in values and in the cotangents of what is sliced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...oracles.judge.judge import Judge
from ...oracles.op.declaration import Sample, Slices, Stream, Tensor, is_float
from ...oracles.verdicts.verdict import Code
from ...oracles.verdicts.violation import Unsupported
from .agreement import require_same


def invariant(judge: Judge, sample: Sample) -> None:
    """INV: see the module."""
    promised = judge.op.promises.invariant
    found = None if promised is None else promised(sample.args, judge.arithmetic)
    if found is None:
        if promised is None:
            raise Unsupported(Code.NOT_APPLICABLE, f"{judge.op.name} promises nothing of slices")
        return  # a sample without an axis of slices
    sample = sample.with_args([found.given.get(judge.op.argument(i), a) for i, a in enumerate(sample.args)])
    rng = sample.seeded(Stream.SLICES)
    # What has no slices is shared by all, so the other parts take it from the first.
    parts = [sample, *(_with_slices_of(judge, sample, args, found) for args in sample.slices)]
    order = [int(i) for i in rng.permutation(len(parts))]
    alone = [_everything(judge, part, found) for part in parts]
    extents = [_extent(judge, part, found) for part in parts]
    # The neighbours of a slice are other data, and in a second batch they are NaN: neither may be seen in it.
    spoilt = [parts[0], *(_spoilt(judge, part, found) for part in parts[1:])]
    for batch, kept, what in ((parts, parts, "in a batch"), (spoilt, parts[:1], "among neighbours of NaN")):
        together = _join_parts(judge, [batch[i] for i in order], found)
        results = _everything(judge, together, found, [alone[i][1] for i in order])
        starts = dict(zip(order, _starts([extents[i] for i in order]), strict=True))
        for i in range(len(kept)):
            got = [t.narrow(axis, starts[i], extents[i]) for t, axis in zip(*results[0::2], strict=True)]
            require_same(judge, got, alone[i][0], f"slice {what}, at {starts[i]} of {sum(extents)}")
    _alone_again(judge, parts[0], found, alone[0], int(rng.integers(max(extents[0], 1))))


def _alone_again(judge: Judge, part: Sample, found: Slices, results: Any, at: int) -> None:
    """One index of the axis alone."""
    if _extent(judge, part, found) < 2:
        return
    values, directions, axes = results
    args = list(part.args)
    for i, axis in _sliced_arguments(judge, part, found):
        args[i] = args[i].narrow(axis, at, 1)
    single = part.with_args(_counted(judge, args, found, 1))
    cut = [g.narrow(axis, at, 1) for g, axis in zip(directions, found.outputs, strict=True)] if directions else []
    got = _everything(judge, single, found, [cut])[0]
    require_same(judge, got, [t.narrow(axis, at, 1) for t, axis in zip(values, axes, strict=True)], f"slice {at} alone")


def _everything(
    judge: Judge, sample: Sample, found: Slices, directions: Sequence[Sequence[Tensor]] | None = None
) -> tuple[list[Tensor], list[Tensor], list[int]]:
    """Values and cotangents that have slices, the cotangents' directions, and the axes of the former.

    Args:
        judge, sample: the op is called at. found: where its slices are.
        directions: of the parts of a batch, to be put together; drawn if there are none.
    """
    primal = judge.primal(sample)
    values = [(t.detach(), axis) for t, axis in zip(primal, found.outputs, strict=True) if axis is not None]
    drawn: list[Tensor] = []
    # Where some output sums over slices, a cotangent of it reaches all of them, and none is taken.
    if None not in found.outputs and any(i in judge.op.differentiable_positions(sample.args) for i, _ in
                                         _sliced_arguments(judge, sample, found)):  # fmt: skip
        path = judge.path(sample, ("vjp",), primal, "eager")
        drawn = list(path.directions)
        if directions is not None:
            columns = zip(*directions, strict=True)
            drawn = [torch.cat(parts, axis or 0) for parts, axis in zip(columns, found.outputs, strict=True)]
            path = path.along(("vjp",), drawn)
        grads = judge.run(path, what="vjp")
        axes = dict(_sliced_arguments(judge, sample, found))
        wrt = judge.op.differentiable_positions(sample.args)
        values += [(g.detach(), axes[i]) for i, g in zip(wrt, grads, strict=True) if i in axes]
    return [t for t, _ in values], drawn, [axis for _, axis in values]


def _with_slices_of(judge: Judge, sample: Sample, args: Sequence[Any], found: Slices) -> Sample:
    own = list(sample.args)
    for i, _ in _sliced_arguments(judge, sample, found):
        own[i] = args[i]
    return sample.with_args(own)


def _sliced_arguments(judge: Judge, sample: Sample, found: Slices) -> list[tuple[int, int]]:
    """Positions of the arguments that have slices, with their axes."""
    given = ((i, judge.op.argument(i)) for i, a in enumerate(sample.args) if isinstance(a, Tensor))
    return [(i, found.arguments[name]) for i, name in given if name in found.arguments]


def _extent(judge: Judge, sample: Sample, found: Slices) -> int:
    i, axis = _sliced_arguments(judge, sample, found)[0]
    return int(sample.args[i].shape[axis])


def _starts(extents: Sequence[int]) -> list[int]:
    return [sum(extents[:i]) for i in range(len(extents))]


def _join_parts(judge: Judge, parts: Sequence[Sample], found: Slices) -> Sample:
    args = list(parts[0].args)
    for i, axis in _sliced_arguments(judge, parts[0], found):
        args[i] = torch.cat([part.args[i] for part in parts], axis)
    return parts[0].with_args(_counted(judge, args, found, sum(_extent(judge, part, found) for part in parts)))


def _counted(judge: Judge, args: Sequence[Any], found: Slices, extent: int) -> tuple[Any, ...]:
    """The arguments with those ints that count slices set to how many there are."""
    return tuple(extent if judge.op.argument(i) in found.counts else a for i, a in enumerate(args))


def _spoilt(judge: Judge, part: Sample, found: Slices) -> Sample:
    args = list(part.args)
    for i, _ in _sliced_arguments(judge, part, found):
        if is_float(args[i]):
            args[i] = torch.full_like(args[i], float("nan"))
    return part.with_args(args)
