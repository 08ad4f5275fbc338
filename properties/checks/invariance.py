"""INV: a slice has the same bits alone, in a batch, at another position, and among other neighbours.

What this is for: users serve one request alone today and in a batch tomorrow, and expect the same answer. The answers
differ where the split of a sum depends on how many rows there are, where the last rows of a block are computed in
another way, or where rows that do not exist, or that hold a NaN, leak into others.

What is hard here: two results within one bound may still have different bits. So nothing is compared with the formula;
the op is compared with itself, bit for bit, in its values and in the gradients of the sliced arguments. The gradients
of an op that is a derivative itself are sums of torch's there, and on CUDA torch splits a sum by how many others there
are; so on CUDA nothing is promised of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from ...oracles.judge.judge import Judge
from ...oracles.op.bits import different
from ...oracles.op.declaration import KERNELS, Sample, Slices, Stream, Tensor, is_float
from ...oracles.verdicts.violation import Code, Unsupported
from .agreement import require_same

#: An output that is repeated has more elements than this, which some kernels take for all that there can be.
MANY = 2**20
#: So many slices and more are hundreds, where no argument of theirs has more than `MOST` elements.
HUNDREDS = 300
#: The most elements of an argument that is repeated.
MOST = 4 * MANY
#: How many indices of the sliced axis are asked alone: two sums in another order have the same bits every other time.
ALONE = 4


def check_invariance(judge: Judge, sample: Sample) -> None:
    """INV: see the module."""
    promised = judge.op.promises.invariant
    slices = None if promised is None else promised(sample.args, judge.arithmetic)
    if slices is None:
        if promised is None:
            raise Unsupported(Code.NOT_APPLICABLE, f"{judge.op.name} promises nothing of slices")
        return  # a sample without an axis of slices
    sample = sample.with_args([slices.required.get(judge.op.argument(i), a) for i, a in enumerate(sample.args)])
    rng = sample.seeded(Stream.SLICES)
    # All slices share the arguments that are not sliced, so the other parts take these from the first.
    parts = [sample, *(_with_slices_of(judge, sample, args, slices) for args in sample.slices)]
    order = [int(i) for i in rng.permutation(len(parts))]
    alone = [_run(judge, part, slices) for part in parts]
    extents = [_extent(judge, part, slices) for part in parts]
    # In the first batch the neighbours of a slice are other data, in the second NaN; the slice must show neither.
    spoilt = [parts[0], *(_spoil(judge, part, slices) for part in parts[1:])]
    batches = [(parts, order, len(parts), "in a batch"), (spoilt, order, 1, "among neighbours of NaN")]
    batches += [(parts, order * times, 1, "among hundreds") for times in _times(judge, parts, sum(extents))]
    for batch, numbers, count, what in batches:
        together = _join_parts(judge, [batch[i] for i in numbers], slices)
        results = _run(judge, together, slices, [alone[i][1] for i in numbers])
        # Of a part that comes again, the last place.
        starts = dict(zip(numbers, itertools.accumulate((extents[i] for i in numbers), initial=0), strict=False))
        for i in range(count):
            got = [t.narrow(axis, starts[i], extents[i]) for t, axis in zip(*results[0::2], strict=True)]
            require_same(judge, got, alone[i][0], f"slice {what}, at {starts[i]} of {sum(extents[k] for k in numbers)}")
    for at in rng.permutation(extents[0])[:ALONE] if extents[0] > 1 else ():
        _judge_one_index(judge, parts[0], slices, alone[0], int(at))


def _times(judge: Judge, parts: Sequence[Sample], extent: int) -> list[int]:
    """How often the parts of a batch, of an extent together, come in one of hundreds of slices; [] for none.

    There is none of kernels on a CPU, which would take seconds for it.
    """
    elements = max(sum(args[i].numel() for args in (part.args for part in parts))
                   for i, a in enumerate(parts[0].args) if isinstance(a, Tensor))  # fmt: skip
    times = min(HUNDREDS // max(extent, 1) + 1, MOST // max(elements, 1))
    return [times] if extent and times > 1 and judge.subject_name not in KERNELS else []


def _judge_one_index(judge: Judge, part: Sample, slices: Slices, results: Any, at: int) -> None:
    """Violation unless one index of the sliced axis, alone, has the bits that it has in the results of its part."""
    values, directions, axes = results
    args = list(part.args)
    for i, axis in _sliced_arguments(judge, part, slices):
        args[i] = args[i].narrow(axis, at, 1)
    single = part.with_args(_set_counts(judge, args, slices, 1))
    cut = [g.narrow(axis, at, 1) for g, axis in zip(directions, slices.outputs, strict=True)] if directions else []
    got = _run(judge, single, slices, [cut])[0]
    require_same(judge, got, [t.narrow(axis, at, 1) for t, axis in zip(values, axes, strict=True)], f"slice {at} alone")


def _run(
    judge: Judge, sample: Sample, slices: Slices, directions: Sequence[Sequence[Tensor]] | None = None
) -> tuple[list[Tensor], list[Tensor], list[int]]:
    """Run the op: (sliced outputs and then sliced gradients, the cotangents, the sliced axis of each of the former).

    The cotangents of a batch are its parts' `directions`, put together; without these they are drawn.
    """
    primal = judge.primal(sample)
    values = [(t.detach(), axis) for t, axis in zip(primal, slices.outputs, strict=True) if axis is not None]
    cotangents: list[Tensor] = []
    # A cotangent of an output that sums over slices reaches all of them, so then no gradients are compared.
    steady = not (judge.arithmetic == "cuda" and judge.op.promises.order)
    if steady and None not in slices.outputs and any(i in judge.op.differentiable_positions(sample.args) for i, _ in
                                         _sliced_arguments(judge, sample, slices)):  # fmt: skip
        path = judge.path(sample, ("vjp",), primal, "eager")
        cotangents = list(path.directions)
        if directions is not None:
            columns = zip(*directions, strict=True)
            cotangents = [torch.cat(parts, axis or 0) for parts, axis in zip(columns, slices.outputs, strict=True)]
            path = path.along(("vjp",), cotangents)
        grads = judge.run(path, what="vjp")
        axes = dict(_sliced_arguments(judge, sample, slices))
        wrt = judge.op.differentiable_positions(sample.args)
        values += [(g.detach(), axes[i]) for i, g in zip(wrt, grads, strict=True) if i in axes]
    return [t for t, _ in values], cotangents, [axis for _, axis in values]


def check_repeated(judge: Judge, sample: Sample) -> None:
    """Judge the slices of a sample, repeated until the first output has more than `MANY` elements.

    The accept sets of the sample hold for each of its repetitions, so only the sample is read. Of the repetitions the
    one that is farthest from the sample's own result is judged.
    """
    promised = judge.op.promises.invariant
    slices = None if promised is None else promised(sample.args, "")
    if slices is None or slices.outputs[0] is None:
        return
    part = sample.with_args([slices.required.get(judge.op.argument(i), a) for i, a in enumerate(sample.args)])
    with torch.no_grad():
        primal = judge.primal(part)
    count = MANY // max(primal[0].numel(), 1) + 1
    if count * max(a.numel() for a in part.args if isinstance(a, Tensor)) > MOST:
        return
    whole = _join_parts(judge, [part] * count, slices)
    words = [()] if None in slices.outputs or not judge.op.differentiable_positions(part.args) else [(), ("vjp",)]
    for word in words:
        path = judge.path(part, word, primal, "eager")
        need = judge.run(path) if word else primal
        axes: Sequence[int | None] = slices.outputs
        larger = path
        with torch.no_grad():
            got: Sequence[Tensor] = judge.primal(whole)
        if word:
            directions = [torch.cat([g] * count, axis or 0) for g, axis in zip(path.directions, axes, strict=True)]
            larger = judge.path(whole, word, got, "eager").along(word, directions)
            got = judge.run(larger, what="vjp")
            sliced = dict(_sliced_arguments(judge, part, slices))
            axes = [sliced.get(i) for i in judge.op.differentiable_positions(part.args)]
        farthest = [
            one if axis is None else _farthest(y.detach(), one.detach(), axis)
            for y, one, axis in zip(got, need, axes, strict=True)
        ]
        judge.against(path.expected(f"one of {count} repetitions"), farthest, exactly=False)


def _farthest(whole: Tensor, one: Tensor, axis: int) -> Tensor:
    """The repetition in `whole` that is farthest from `one`."""
    pieces = torch.stack(whole.split(one.shape[axis], axis))
    distances = (pieces - one).double().abs().nan_to_num(nan=torch.inf)
    distances = torch.where(different(pieces, one.expand_as(pieces)), distances, 0.0)
    return pieces[int(distances.flatten(1).amax(1).argmax())]


def _with_slices_of(judge: Judge, sample: Sample, args: Sequence[Any], slices: Slices) -> Sample:
    own = list(sample.args)
    for i, _ in _sliced_arguments(judge, sample, slices):
        own[i] = args[i]
    return sample.with_args(own)


def _sliced_arguments(judge: Judge, sample: Sample, slices: Slices) -> list[tuple[int, int]]:
    """Positions of the arguments that have slices, with their axes."""
    names = ((i, judge.op.argument(i)) for i, a in enumerate(sample.args) if isinstance(a, Tensor))
    return [(i, slices.arguments[name]) for i, name in names if name in slices.arguments]


def _extent(judge: Judge, sample: Sample, slices: Slices) -> int:
    i, axis = _sliced_arguments(judge, sample, slices)[0]
    return int(sample.args[i].shape[axis])


def _join_parts(judge: Judge, parts: Sequence[Sample], slices: Slices) -> Sample:
    args = list(parts[0].args)
    for i, axis in _sliced_arguments(judge, parts[0], slices):
        args[i] = torch.cat([part.args[i] for part in parts], axis)
    return parts[0].with_args(_set_counts(judge, args, slices, sum(_extent(judge, part, slices) for part in parts)))


def _set_counts(judge: Judge, args: Sequence[Any], slices: Slices, extent: int) -> tuple[Any, ...]:
    """The arguments with the number of slices in place of those ints that count slices."""
    return tuple(extent if judge.op.argument(i) in slices.counts else a for i, a in enumerate(args))


def _spoil(judge: Judge, part: Sample, slices: Slices) -> Sample:
    args = list(part.args)
    for i, _ in _sliced_arguments(judge, part, slices):
        if is_float(args[i]):
            args[i] = torch.full_like(args[i], float("nan"))
    return part.with_args(args)
