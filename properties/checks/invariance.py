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

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from ...oracles.judge.judge import Judge
from ...oracles.op.bits import different
from ...oracles.op.declaration import Sample, Slices, Stream, Tensor, is_float
from ...oracles.verdicts.violation import Code, Unsupported
from ..relations import Leaves, Results, RowAxes, take_along
from .agreement import require_same

#: An output that is repeated has more elements than this, which some kernels take for all that there can be.
MANY = 2**20
#: So many slices and more are hundreds, where no argument of theirs has more than `MOST` elements.
HUNDREDS = 300
#: The most elements of an argument that is repeated.
MOST = 4 * MANY


def check_invariance(judge: Judge, sample: Sample) -> None:
    """INV: see the module."""
    promised = judge.op.promises.invariant
    slices = None if promised is None else promised(sample.args, judge.arithmetic)
    if slices is None:
        if promised is None:
            raise Unsupported(Code.NOT_APPLICABLE, f"{judge.op.name} promises nothing of slices")
        return  # a sample without an axis of slices
    sample = sample.with_args([slices.required.get(judge.op.argument(i), a) for i, a in enumerate(sample.args)])
    axes, rng, ask = _axes(judge, sample, slices), sample.seeded(Stream.SLICES), functools.partial(_run, judge, sample)
    # All slices share the arguments that are not sliced, so the other parts take these from the first.
    parts = [sample.args, *sample.slices]
    joined = [torch.cat([part[i] for part in parts], axes.arguments[i]) if i in axes.arguments else a
              for i, a in enumerate(sample.args)]  # fmt: skip
    order = [int(i) for i in rng.permutation(sum(map(axes.count, parts)))]
    batch, count = axes.take(joined, order), len(order)
    cotangents = _draw_cotangents(judge, sample.with_args(batch), slices)
    elements = max((batch[i].numel() for i in axes.arguments), default=0)
    # There are no hundreds on kernels on a CPU, which would take seconds for it.
    on_cpu = judge.op.production.machine(judge.subject_name)
    times = 1 if on_cpu else min(HUNDREDS // max(count, 1) + 1, MOST // max(elements, 1))
    many = [*range(count)] * max(times, 1)
    tiled = [take_along(g, axis, many) for g, axis in zip(cotangents, axes.results.values(), strict=False)]
    spoilt = axes.mix(batch, [torch.full_like(a, math.nan) if is_float(a) else a for a in batch], order[:2], is_float)
    relations = itertools.chain(
        axes.of_sizes(batch, (1, axes.count(sample.args), count - 1), cotangents),
        [axes.in_order(batch, order, "", cotangents), axes.beside(batch, spoilt, order[:2], "of NaN", cotangents)],
        axes.beside_longer(axes.turned(batch, [*range(count)] * (32 // count + 1 if times > 1 else 1)), "", 2),
        axes.of_sizes(axes.take(batch, many), (count,), tiled),
    ) if count else ()  # fmt: skip
    for relation in relations:
        one, other = relation.run(ask)
        require_same(judge, [*other.values()], [*one.values()], f"slices: {relation.words}")


def _axes(judge: Judge, sample: Sample, slices: Slices) -> RowAxes:
    """The axes of slices, by the positions of arguments, and those of outputs and of gradients by name."""
    op, args = judge.op, sample.args
    own = {i: slices.arguments[op.argument(i)] for i, a in enumerate(args)
           if isinstance(a, Tensor) and op.argument(i) in slices.arguments}  # fmt: skip
    counts = [i for i in range(len(args)) if op.argument(i) in slices.counts]
    results = {f"out[{i}]": axis for i, axis in enumerate(slices.outputs) if axis is not None}
    gradients = {f"gradient of {op.argument(i)}": axis for i, axis in own.items()}
    least = {i: slices.least[op.argument(i)] for i in own if op.argument(i) in slices.least}
    return RowAxes("slices", own, counts, results | gradients, least)


def _draw_cotangents(judge: Judge, sample: Sample, slices: Slices) -> list[Tensor]:
    """Cotangents of a batch; none where no gradient is compared.

    A cotangent of an output that sums over slices reaches all of them. On CUDA nothing is promised of an op that is a
    derivative itself.
    """
    wrt = judge.op.differentiable_positions(sample.args)
    steady = not (judge.arithmetic == "cuda" and judge.op.promises.order) and None not in slices.outputs
    if not steady or not any(judge.op.argument(i) in slices.arguments for i in wrt):
        return []
    return list(judge.path(sample, ("vjp",), judge.primal(sample), "eager").directions)


def _run(judge: Judge, sample: Sample, leaves: Leaves, cotangents: Sequence[Tensor] = (), **how: Any) -> Results:
    """Run the op: its outputs, and gradients where there are cotangents, by name."""
    own = sample.with_args(tuple(leaves))
    primal = judge.primal(own)
    results = {f"out[{i}]": t.detach() for i, t in enumerate(primal)}
    if cotangents:
        path = judge.path(own, ("vjp",), primal, "eager").along(("vjp",), list(cotangents))
        grads, wrt = judge.run(path, what="vjp"), judge.op.differentiable_positions(own.args)
        results |= {f"gradient of {judge.op.argument(i)}": g.detach() for i, g in zip(wrt, grads, strict=True)}
    return results


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
    axes, ask = _axes(judge, part, slices), functools.partial(_run, judge, part)
    many = [*range(axes.count(part.args))] * count
    cotangents = _draw_cotangents(judge, part, slices)
    tiled = [take_along(g, axis, many) for g, axis in zip(cotangents, axes.results.values(), strict=False)]
    need, got = ask(part.args, cotangents), ask(axes.take(part.args, many), tiled)
    farthest = {n: _farthest(got[n], y, axes.results[n]) if n in axes.results else y for n, y in need.items()}
    for word in [(), ("vjp",)] if cotangents else [()]:
        path = judge.path(part, word, primal, "eager")
        names = [name for name in need if name.startswith("gradient" if word else "out")]
        judge.against(path.expected(f"one of {count} repetitions"), [farthest[name] for name in names], exactly=False)


def _farthest(whole: Tensor, one: Tensor, axis: int) -> Tensor:
    """The repetition in `whole` that is farthest from `one`."""
    pieces = torch.stack(whole.split(one.shape[axis], axis))
    distances = (pieces - one).double().abs().nan_to_num(nan=torch.inf)
    distances = torch.where(different(pieces, one.expand_as(pieces)), distances, 0.0)
    return pieces[int(distances.flatten(1).amax(1).argmax())]
