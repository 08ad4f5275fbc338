"""LAYOUT and SIZE: inputs and cotangents with any strides, or at any alignment, with canaries in the memory around."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from ...oracles import process
from ...oracles.judge.judge import Judge
from ...oracles.op.bits import same_bits
from ...oracles.op.declaration import OWN, TURNS, Sample, Stream, Tensor, is_float
from ...oracles.op.paths import Path, Problem
from ...oracles.programs.along import defer_script
from ...oracles.programs.particular import script_overwrites
from ...oracles.programs.questions import of_equality
from ...oracles.verdicts.verdict import Code
from .agreement import require_equal, require_same
from .invariance import check_repeated

#: The integer around a view of integers and in its gaps. It is no valid class index, so an op that reads it shows that.
CANARY = 113
WRITTEN_LAYOUTS = ("stepped", "offset")
LAYOUTS = ("transposed", "stepped", "offset", "expanded", "channels_last")
#: Operands begin 0 to 15 elements behind an address that every vector load takes; neighbours differ by `STEP`.
OFFSETS, STEP = 16, 5


def lay_out(tensor: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    """A tensor of equal values in another layout, and the whole buffer of which it is a view, canaries around it."""
    shape, dense = tuple(tensor.shape), functools.partial(torch.empty, device="meta")
    strides = dense(shape).stride()
    if layout == "transposed":
        strides = dense(shape[::-1]).stride()[::-1]
    elif layout == "stepped":
        strides = tuple(2 * step for step in strides)
    elif layout == "expanded" and shape and torch.equal(tensor, tensor[:1].expand(shape)):
        strides = (0, *strides[1:])
    elif layout == "channels_last" and len(shape) > 2:
        strides = dense((shape[0], *shape[2:], shape[1])).movedim(-1, 1).stride()
    extent = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) if tensor.numel() else 0
    # Five elements are no multiple of 16 bytes, so every view is misaligned for vector loads, too.
    buffer, _ = surround(tensor, (extent,), 5, 10)
    view = buffer.as_strided(shape, strides, 5)
    # All rows of an expanded view are one piece of memory, into which torch refuses to copy them all.
    target, values = (view[:1], tensor[:1]) if 0 in strides else (view, tensor)
    target.copy_(values)
    return view, buffer


def surround(tensor: Tensor, shape: Sequence[int], start: int, more: int) -> tuple[Tensor, Tensor]:
    """A buffer of canaries, `more` than a tensor of that shape and the dtype has, and one at `start` elements in it."""
    count, canary = math.prod(shape), float("nan") if is_float(tensor) else CANARY
    buffer = torch.full((count + more,), canary, dtype=tensor.dtype, device=tensor.device)
    return buffer, buffer[start : start + count].view(tuple(shape))


def check_layouts(judge: Judge, sample: Sample) -> None:
    """LAYOUT: values of both modes for inputs and cotangents in other layouts; the memory around them untouched."""
    rng = sample.seeded(Stream.LAYOUT)
    buffers: list[tuple[Tensor, Tensor]] = []

    def lay(t: Tensor) -> Tensor:
        view, buffer = lay_out(t, LAYOUTS[int(rng.integers(len(LAYOUTS)))])
        buffers.append((buffer, buffer.clone()))
        return view

    # Operands that no derivative is taken in, saved statistics say, were computed from the values of the others. With
    # other values in these they would be wrong, so the values stay as they are where an op has such operands.
    repeat = not Problem(judge.op, sample.args).fixed and rng.random() < 0.3
    args = _repeat_first_row(sample.args) if repeat else sample.args
    laid = sample.with_args([lay(a) if isinstance(a, Tensor) else a for a in args])
    if judge.op.mutated_positions(sample.args):
        _judge_writes_in_place(judge, laid, rng)
    primal = judge.hold(laid, (), exactly=False)
    require_strides(judge, laid, primal, "laid out")
    path = judge.path(laid, ("vjp",), primal, "eager")
    directions = path.directions
    path = path.along(("vjp",), [lay(g) for g in (_repeat_first_row(directions) if rng.random() < 0.3 else directions)])
    computed = judge.run(path, what="vjp")
    require_contiguous(judge, primal, computed, "for laid-out operands")
    judge.against(path.expected("vjp (laid out)", make_script=defer_script(path)), computed, exactly=False)
    _require_unwritten(judge, path, buffers, "an input's view")
    if judge.subject_name == OWN and "jvp" not in judge.op.promises.without:
        _tangents_of_transposed(judge, sample)
    if judge.op.mutated_positions(sample.args):
        _judge_written_views(judge, sample)


def _tangents_of_transposed(judge: Judge, sample: Sample) -> None:
    """Judge forward mode at operands in another memory order: forward mode has kernels and expressions of its own.

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
    """Violation unless the first outputs of a call have the strides that the op promises for its arguments."""
    promised = judge.op.promises.memory.strides
    for i, (y, strides) in enumerate(zip(outputs, promised(sample.args) if promised else (), strict=False)):
        got, need = (tuple(s for s, n in zip(t, y.shape, strict=True) if n > 1) for t in (y.stride(), strides))
        if y.numel() and got != need:
            wrong = f"out[{i}] got strides={y.stride()}, need {strides}"
            path = judge.path(sample, (), outputs, "eager")
            violation = judge.violation(Code.ATTRIBUTE, wrong, where=what, path="forward")
            expression = f"tuple(outputs[{i}].stride())"
            script = functools.partial(of_equality, defer_script(path), expression, tuple(strides), path.name)
            raise violation.showing(script)
        judge.tally.count(1)


def require_contiguous(judge: Judge, outputs: Sequence[Tensor], gradients: Sequence[Tensor], what: str) -> None:
    """Violation unless the results of a production op that promises contiguous results are contiguous.

    The gradients of a backward op are of second order, and their strides are not promised.
    """
    if not judge.op.promises.memory.contiguous or judge.subject_name != OWN:
        return
    for t in (*outputs, *(() if judge.op.promises.order else gradients)):
        if not t.is_contiguous():
            wrong = f"a result of shape={tuple(t.shape)} has stride={t.stride()}, need a contiguous one"
            raise judge.violation(Code.ATTRIBUTE, wrong, where=what, path="forward + vjp")
        judge.tally.count(1)


def _judge_written_views(judge: Judge, sample: Sample) -> None:
    """An argument that a call writes may be a view with gaps, is written, and is refused expanded if promised."""
    writes = judge.op.mutated_positions(sample.args)
    call = judge.op.implementation(judge.subject_name)
    once = judge.primal(sample)[-len(writes) :]
    after = dict(zip(writes, once, strict=True))
    twice = judge.primal(sample.with_args([after.get(i, a) for i, a in enumerate(sample.args)]))[-len(writes) :]
    for layout in ("stepped", "offset"):
        laid = {i: lay_out(sample.args[i], layout) for i in writes}
        before = {i: (view.clone(), buffer.clone()) for i, (view, buffer) in laid.items()}
        args = [laid[i][0] if i in laid else a for i, a in enumerate(sample.args)]
        for time, need in (("a call", once), ("a second call", twice)):
            judge.call(call, *args, what=f"writing to {layout} views")
            got = [laid[i][0] for i in writes]
            require_same(judge, got, need, f"{layout} views after {time}", Code.MUTATED)
        for i, (view, buffer) in laid.items():
            values, whole = before[i]
            view.copy_(values)
            if not same_bits(buffer, whole):
                raise judge.violation(Code.MUTATED, f"wrote around the view of {judge.op.label(i)}", path="forward")
    for i in writes if judge.op.promises.memory.refuses_expanded else ():
        _require_refusal_of_expanded(judge, sample, call, i)


def _require_refusal_of_expanded(judge: Judge, sample: Sample, call: Any, position: int) -> None:
    """Violation unless a write to an expanded argument, whose elements share memory, is refused before any write."""
    writes = judge.op.mutated_positions(sample.args)
    args = [a.clone() if i in writes else a for i, a in enumerate(sample.args)]
    judge.call(call, *args, what="forward")
    has_written = any(args[i]._version for i in writes)
    if has_written and args[position].shape == (1,):
        # A single element shares its memory with no other one, whatever its stride is. So the op must write to it.
        need, args = args[position], [a.clone() if i in writes else a for i, a in enumerate(sample.args)]
        args[position] = args[position].clone().expand(2)[:1]
        judge.call(call, *args, what="one element of stride 0")
        require_same(judge, [args[position]], [need], "one element of stride 0", Code.MUTATED)
    if not has_written or args[position].dim() == 0 or args[position].shape[0] < 2:
        return
    args = [a.clone() if i in writes else a for i, a in enumerate(sample.args)]
    args[position] = args[position][:1].clone().expand(args[position].shape)
    before = [(i, args[i].clone()) for i in writes]
    name = judge.op.label(position)
    try:
        process.undisturbed(call, args)
    except RuntimeError:
        if any(not same_bits(args[i], copy) for i, copy in before):
            raise judge.violation(
                Code.MUTATED, f"refuses {name} expanded, and has written before", path="forward"
            ) from None
        judge.tally.count(1)
        return
    raise judge.violation(Code.MUTATED, f"writes to {name} where it is expanded, need RuntimeError", path="forward")


def _judge_writes_in_place(judge: Judge, sample: Sample, rng: Any) -> None:
    """Judge a call that writes to arguments with strides: its values, and the memory between and around them."""
    views: list[tuple[Tensor, Tensor, Tensor]] = []

    def lay(t: Tensor) -> Tensor:
        view, buffer = lay_out(t, WRITTEN_LAYOUTS[int(rng.integers(len(WRITTEN_LAYOUTS)))])
        views.append((view, buffer, buffer.clone()))
        return view

    function = judge.op.functional(judge.op.implementation(judge.subject_name), lay)
    judge.hold(sample, (), function=function, exactly=False)
    for view, buffer, before in views:
        # The elements of the view were judged as an output. The rest of the buffer must be as it was in the copy.
        view.fill_(0)
        start = view.storage_offset() - buffer.storage_offset()
        before.as_strided(view.shape, view.stride(), start).fill_(0)
        if not same_bits(buffer, before):
            raise judge.violation(Code.MUTATED, "wrote around an argument that it writes to", path="forward")


def _repeat_first_row(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The first row of every tensor in all its rows, so that it can be laid out expanded."""
    return tuple(a[:1].expand(a.shape).clone() if is_float(a) and a.ndim > 1 and a.numel() else a for a in args)


#: The turns of the samples that SIZE repeats: some of a cell of the commit profile, and none of one in brief. The step
#: is no divisor of the number of an op's axes, so that these samples are long along one after the other.
REPEATED = range(12, TURNS, 3)


def check_sizes(judge: Judge, sample: Sample) -> None:
    """SIZE: operands at any alignment, with canaries around them; nothing around them read or written."""
    buffers: list[tuple[Tensor, Tensor]] = []

    def lay(t: Tensor) -> Tensor:
        # Over `OFFSETS` samples in a row each operand has every offset; the operands of one sample have different ones.
        view, buffer = at_offset(t, (sample.turn + STEP * len(buffers)) % OFFSETS)
        buffers.append((buffer, buffer.clone()))
        return view

    laid = sample.with_args([lay(a) if isinstance(a, Tensor) else a for a in sample.args])
    outputs = judge.hold(laid, (), exactly=False)
    path = judge.path(laid, (), ())
    if judge.op.differentiable_positions(laid.args) and laid.args:
        path = judge.path(laid, ("vjp",), outputs, "eager")
        path = path.along(("vjp",), [lay(g) for g in path.directions])
        judge.against(path.expected(make_script=defer_script(path)), judge.run(path), exactly=False)
    _require_unwritten(judge, path, buffers, "an input")
    if sample.turn in REPEATED:
        check_repeated(judge, sample)


def _require_unwritten(judge: Judge, path: Path, buffers: Sequence[tuple[Tensor, Tensor]], what: str) -> None:
    """Violation unless buffers around operands are as their copies, which were made before the call."""
    if not all(same_bits(buffer, before) for buffer, before in buffers):
        violation = judge.violation(Code.MUTATED, f"wrote into or around {what}", path="forward + vjp")
        raise violation.showing(functools.partial(script_overwrites, path))


def at_offset(tensor: Tensor, offset: int) -> tuple[Tensor, Tensor]:
    """A contiguous tensor of equal values that begins `offset` elements into a buffer of canaries, and the buffer."""
    buffer, view = surround(tensor, tensor.shape, offset, 2 * OFFSETS)
    view.copy_(tensor)
    return view, buffer
