"""LAYOUT: any strides in, for inputs and cotangents, with canaries around every view."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ...oracles import process
from ...oracles.judge.card import attribute
from ...oracles.judge.judge import Judge
from ...oracles.op.bits import same_bits
from ...oracles.op.declaration import OWN, Sample, Stream, Tensor, is_float
from ...oracles.op.paths import Problem
from ...oracles.programs.along import defer_script
from ...oracles.programs.particular import around_views
from ...oracles.verdicts.verdict import Code
from .agreement import require_equal, require_same

#: What stands around the integers of a view, and in its gaps: no class, so that an op that reads it shows that.
CANARY = 113
WRITTEN = ("stepped", "offset")
LAYOUTS = ("transposed", "stepped", "offset", "expanded", "channels_last")


def relaid(tensor: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    """A tensor of equal values in another layout, and the whole buffer it is a view of, canaries around it."""
    shape = tuple(tensor.shape)
    if layout == "transposed" and tensor.ndim > 1:
        buffer, view = _framed(tensor, shape[::-1], lambda t: t.permute(*reversed(range(t.ndim))))
    elif layout == "stepped" and tensor.ndim > 0:
        buffer, view = _framed(tensor, (*shape[:-1], 2 * shape[-1]), lambda t: t[..., ::2])
    elif layout == "expanded" and tensor.ndim > 0 and torch.equal(tensor, tensor[:1].expand(shape)):
        # All rows of an expanded view are one piece of memory, into which torch refuses to copy. So the first row is
        # filled in before it is expanded, and the copy at the end is skipped.
        buffer, view = _framed(tensor[:1], (1, *shape[1:]), lambda t: t.expand(shape))
        return view, buffer
    elif layout == "channels_last" and tensor.ndim > 2:
        buffer, view = _framed(tensor, (shape[0], *shape[2:], shape[1]), lambda t: t.movedim(-1, 1))
    else:
        buffer, view = _framed(tensor, shape, lambda t: t)
    view.copy_(tensor)
    return view, buffer


def _framed(tensor: Tensor, shape: tuple[int, ...], view: Any) -> tuple[Tensor, Tensor]:
    """A buffer with canaries on both sides, and `view` of the part between; values are copied where they fit."""
    # Five elements are no multiple of 16 bytes, so every view is misaligned for vector loads, too.
    margin, count = 5, int(np.prod(shape, dtype=np.int64))
    canary = float("nan") if is_float(tensor) else CANARY
    buffer = torch.full((count + 2 * margin,), canary, dtype=tensor.dtype, device=tensor.device)
    inner = buffer[margin : margin + count].view(shape)
    if tuple(tensor.shape) == shape:
        inner.copy_(tensor)
    return buffer, view(inner)


def layouts(judge: Judge, sample: Sample) -> None:
    """LAYOUT: values of forward and reverse mode for laid-out inputs and cotangents; memory around views untouched."""
    rng = sample.seeded(Stream.LAYOUT)
    buffers: list[tuple[Tensor, Tensor]] = []

    def lay(t: Tensor) -> Tensor:
        view, buffer = relaid(t, LAYOUTS[int(rng.integers(len(LAYOUTS)))])
        buffers.append((buffer, buffer.clone()))
        return view

    # Operands that no derivative is taken in, saved statistics say, were computed from the values of the others. With
    # other values in these they would be wrong, so the values stay as they are where an op has such operands.
    repeat = not Problem(judge.op, sample.args).fixed and rng.random() < 0.3
    given = _repeated(sample.args) if repeat else sample.args
    laid = sample.with_args([lay(a) if isinstance(a, Tensor) else a for a in given])
    if judge.op.written(sample.args):
        _written_in_place(judge, laid, rng)
    primal = judge.hold(laid, (), exactly=False)
    require_strides(judge, laid, primal, "laid out")
    path = judge.path(laid, ("vjp",), primal, "eager")
    drawn = path.directions
    path = path.along(("vjp",), [lay(g) for g in (_repeated(drawn) if rng.random() < 0.3 else drawn)])
    computed = judge.run(path, what="vjp")
    require_contiguous(judge, primal, computed, "for laid-out operands")
    judge.against(path.expected("vjp (laid out)", make_script=defer_script(path)), computed, exactly=False)
    for buffer, before in buffers:
        if not same_bits(buffer, before):
            found = judge.broken(Code.MUTATED, "wrote into or around an input's view", path="forward + vjp")
            raise found.showing(functools.partial(around_views, path))
    if judge.subject_name == OWN and "jvp" not in judge.op.promises.without:
        _tangents_of_transposed(judge, sample)
    if judge.op.written(sample.args):
        _written_views(judge, sample)


def _tangents_of_transposed(judge: Judge, sample: Sample) -> None:
    """Forward mode of operands in another memory order: it has kernels and expressions of its own.

    The order is one without gaps, because torch lays a tangent out as its primal, and copies where it cannot.
    """
    laid = sample.with_args([transposed(a) if isinstance(a, Tensor) else a for a in sample.args])
    outputs = judge.primal(laid)
    require_strides(judge, laid, outputs, "transposed")
    require_contiguous(judge, outputs, (), "transposed")
    plain, there = (judge.path(one, ("jvp",), outputs, "eager") for one in (sample, laid))
    there = there.along(("jvp",), list(map(transposed, there.directions)))
    require_equal(judge, there, judge.run(there), judge.run(plain), "jvp, transposed")


def transposed(tensor: Tensor) -> Tensor:
    """A tensor of equal values whose first dim lies innermost in its memory, and its last one outermost."""
    return tensor.transpose(0, -1).contiguous().transpose(0, -1) if tensor.ndim > 1 else tensor


def require_strides(judge: Judge, sample: Sample, outputs: Sequence[Tensor], what: str) -> None:
    """Violation unless the first outputs have the strides that the op promises for these arguments.

    Args:
        judge: of the subject. sample: the arguments. outputs: of a call with them. what: what messages call the call.
    """
    promised = judge.op.promises.strides
    for i, (y, strides) in enumerate(zip(outputs, promised(sample.args) if promised else (), strict=False)):
        got, need = (tuple(s for s, n in zip(t, y.shape, strict=True) if n > 1) for t in (y.stride(), strides))
        if y.numel() and got != need:
            wrong = f"out[{i}] got strides={y.stride()}, need {strides}"
            path = judge.path(sample, (), outputs, "eager")
            found = judge.broken(Code.ATTRIBUTE, wrong, where=what, path="forward")
            raise found.showing(attribute(path, f"str(tuple(outputs[{i}].stride()))", str(strides)))
        judge.tally.count(1)


def require_contiguous(judge: Judge, outputs: Sequence[Tensor], gradients: Sequence[Tensor], what: str) -> None:
    """Violation unless results are contiguous, of the production op where that promises so.

    Args:
        judge: of the subject. outputs, gradients: of a call; gradients of a backward op are those of second order, of
            which nothing is promised. what: what messages call the call.
    """
    if not judge.op.promises.contiguous or judge.subject_name != OWN:
        return
    for t in (*outputs, *(() if judge.op.promises.order else gradients)):
        if not t.is_contiguous():
            wrong = f"a result of shape={tuple(t.shape)} has stride={t.stride()}, need a contiguous one"
            raise judge.broken(Code.ATTRIBUTE, wrong, where=what, path="forward + vjp")
        judge.tally.count(1)


def _written_views(judge: Judge, sample: Sample) -> None:
    """What a call writes may be a view with gaps, is written again by the next call, and is refused where expanded."""
    written = judge.op.written(sample.args)
    call = judge.op.implementation(judge.subject_name)
    once = judge.primal(sample)[-len(written) :]
    after = dict(zip(written, once, strict=True))
    twice = judge.primal(sample.with_args([after.get(i, a) for i, a in enumerate(sample.args)]))[-len(written) :]
    for layout in ("stepped", "offset"):
        laid = {i: relaid(sample.args[i], layout) for i in written}
        before = {i: (view.clone(), buffer.clone()) for i, (view, buffer) in laid.items()}
        args = [laid[i][0] if i in laid else a for i, a in enumerate(sample.args)]
        for time, need in (("a call", once), ("a second call", twice)):
            judge.call(call, *args, what=f"writing to {layout} views")
            got = [laid[i][0] for i in written]
            require_same(judge, got, need, f"{layout} views after {time}", Code.MUTATED)
        for i, (view, buffer) in laid.items():
            values, whole = before[i]
            view.copy_(values)
            if not same_bits(buffer, whole):
                raise judge.broken(Code.MUTATED, f"wrote around the view of {judge.op.label(i)}", path="forward")
    for i in written:
        _expanded(judge, sample, call, i)


def _expanded(judge: Judge, sample: Sample, call: Any, position: int) -> None:
    """An expanded argument has one element for many, so a write to it is refused, and nothing at all is written."""
    written = judge.op.written(sample.args)
    args = [a.clone() if i in written else a for i, a in enumerate(sample.args)]
    judge.call(call, *args, what="forward")
    writes = any(args[i]._version for i in written)
    if writes and args[position].shape == (1,):
        # One element has a place of its own whatever its stride is, so this is no expanded argument, and is written.
        need, args = args[position], [a.clone() if i in written else a for i, a in enumerate(sample.args)]
        args[position] = args[position].clone().expand(2)[:1]
        judge.call(call, *args, what="one element of stride 0")
        require_same(judge, [args[position]], [need], "one element of stride 0", Code.MUTATED)
    if not writes or args[position].dim() == 0 or args[position].shape[0] < 2:
        return
    args = [a.clone() if i in written else a for i, a in enumerate(sample.args)]
    args[position] = args[position][:1].clone().expand(args[position].shape)
    before = [(i, args[i].clone()) for i in written]
    name = judge.op.label(position)
    try:
        process.undisturbed(call, args)
    except RuntimeError:
        if any(not same_bits(args[i], copy) for i, copy in before):
            raise judge.broken(
                Code.MUTATED, f"refuses {name} expanded, and has written before", path="forward"
            ) from None
        judge.tally.count(1)
        return
    raise judge.broken(Code.MUTATED, f"writes to {name} where it is expanded, need RuntimeError", path="forward")


def _written_in_place(judge: Judge, sample: Sample, rng: Any) -> None:
    """The values of a call that writes to arguments with strides, and the memory between and around what it writes."""
    views: list[tuple[Tensor, Tensor, Tensor]] = []

    def lay(t: Tensor) -> Tensor:
        view, buffer = relaid(t, WRITTEN[int(rng.integers(len(WRITTEN)))])
        views.append((view, buffer, buffer.clone()))
        return view

    function = judge.op.functional(judge.op.implementation(judge.subject_name), lay)
    judge.hold(sample, (), function=function, exactly=False)
    for view, buffer, before in views:
        # What the view itself holds was judged as an output. The rest of the buffer must be as it was.
        view.fill_(0)
        around = relaid_like(before, view, buffer)
        around.fill_(0)
        if not same_bits(buffer, before):
            raise judge.broken(Code.MUTATED, "wrote around an argument that it writes to", path="forward")


def relaid_like(other: Tensor, view: Tensor, buffer: Tensor) -> Tensor:
    """The view of another buffer that is what `view` is of `buffer`."""
    return other.as_strided(view.shape, view.stride(), view.storage_offset() - buffer.storage_offset())


def _repeated(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The first row of every tensor in all its rows, so that it can be laid out expanded."""
    return tuple(a[:1].expand(a.shape).clone() if is_float(a) and a.ndim > 1 and a.numel() else a for a in args)
