"""WAYS with larger arguments: vmap over many slices and over one, and tensors of five and six dims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ....oracles.judge.judge import Judge
from ....oracles.judge.native import refusal_of_native
from ....oracles.op.bits import same_results
from ....oracles.op.declaration import Sample, Tensor
from ....oracles.op.paths import in_arguments
from ....oracles.verdicts.verdict import Code
from ..agreement import Args, call_unless_refused, outputs_of, require_equal

#: Slices of a batch: an odd number, more than two vectors of any kernel. Slices of a chunk; the last one has three.
SLICES, CHUNK = 33, 5
#: The largest number of dims.
MOST_DIMS = 6


def check_many_slices(judge: Judge, sample: Sample) -> None:
    """Compare vmap over many slices, whole and in chunks, with a call for each slice."""
    if "vmap" in judge.op.promises.without:
        return
    tensors = [i for i, a in enumerate(sample.args) if isinstance(a, Tensor)]
    # The batch repeats the slices of the sample.
    rows = [[args[i] for i in tensors] for args in (sample.args, *sample.slices)]
    numbers = [k % len(rows) for k in range(SLICES)]
    stacked = [torch.stack([rows[k][i] for k in numbers]) for i in range(len(tensors))]
    f = in_arguments(judge.subject, sample.args, tensors)
    with torch.no_grad():
        need = [judge.call(f, *row, what="forward") for row in rows]
        for chunk in (None, CHUNK):
            what = f"vmap over {SLICES} slices" + (f" in chunks of {chunk}" if chunk else "")
            outputs = judge.call(torch.func.vmap(f, chunk_size=chunk), *stacked, what=what)
            _slices_equal(judge, sample, list(outputs), [[need[k][j] for k in numbers] for j in range(len(outputs))],
                          what)  # fmt: skip


def check_one_slice(judge: Judge, sample: Sample) -> None:
    """Compare vmap over one slice of each tensor with the plain call; it may be refused if two slices are refused."""
    if "vmap" in judge.op.promises.without:
        return
    with torch.no_grad():
        plain = judge.primal(sample)
    for i, value in enumerate(sample.args):
        if not isinstance(value, Tensor):
            continue
        batched = torch.func.vmap(in_arguments(judge.subject, sample.args, (i,)))
        what = f"vmap over one slice of {judge.op.label(i)}"
        if call_unless_refused(judge, batched, (torch.stack((value, value)),)) is None:
            continue
        outputs = call_unless_refused(judge, batched, (value.unsqueeze(0),))
        if outputs is None:
            raise judge.violation(Code.RAISED, "refused, and two slices are taken", where=what)
        if any(y.dim() == 0 or y.shape[0] != 1 for y in outputs):
            wrong = f"got outputs of shapes={[tuple(y.shape) for y in outputs]}, need a batch of one"
            raise judge.violation(Code.ATTRIBUTE, wrong, where=what)
        require_equal(judge, judge.path(sample, (), plain, "eager"), [y[0] for y in outputs], plain, what)


def _slices_equal(judge: Judge, sample: Sample, outputs: list[Tensor], need: list[list[Tensor]], what: str) -> None:
    """Violation unless each slice of each output equals the need for that slice, or lies in its bound."""
    whole = [torch.stack(column) for column in need]
    if len(outputs) == len(whole) and all(map(same_results, outputs, whole)):
        judge.tally.count(sum(int(y.numel()) for y in outputs))
        return
    parts = [sample, *(sample.with_args(_tensors_of(sample, args)) for args in sample.slices)]
    for number in range(SLICES):
        part = parts[number % len(parts)]
        plain = [column[number] for column in need]
        judge.require_alike(outputs, [one.expand(SLICES, *one.shape) for one in plain], "shape", where=what)
        path = judge.path(part, (), plain, "eager")
        require_equal(judge, path, [y[number] for y in outputs], plain, f"slice {number} of {what}")


def _tensors_of(sample: Sample, args: Args) -> Args:
    return tuple(b if isinstance(a, Tensor) else a for a, b in zip(sample.args, args, strict=True))


def check_more_dims(judge: Judge, sample: Sample) -> None:
    """Judge tensors of five and six dims, where the op accepts them; a refusal is no failure."""
    if "dims" in judge.op.promises.without:
        return
    most = max((a.ndim for a in sample.args if isinstance(a, Tensor)), default=0)
    for dims in range(max(most + 1, MOST_DIMS - 1), MOST_DIMS + 1):
        for what, args in _with_dims(judge, sample.args, most, dims - most):
            if refusal_of_native(judge, args):
                continue
            # Torch's own ops accept arguments and then read past their end; the production op checks its arguments.
            if outputs_of(judge, args) is None or call_unless_refused(judge, judge.subject, args) is None:
                continue
            larger = sample.with_args(args)
            with torch.no_grad():
                got = judge.primal(larger, what=what)
            judge.against(judge.path(larger, (), got, "eager").expected(what), got, exactly=False)
            break


def _with_dims(judge: Judge, args: Args, most: int, more: int) -> Iterator[tuple[str, Args]]:
    """(description, arguments) with `more` dims beside the `most` of a tensor, in front of these or behind them."""
    label, dims = judge.op.label, most + more
    front = tuple(_in_front(a, most, more, label(i)) for i, a in enumerate(args))
    yield f"{dims} dims, the new ones in front", front
    for least in (most - 1, most):
        behind = tuple(_behind(a, least, more) if isinstance(a, Tensor) else a for a in args)
        yield f"{dims} dims, the new ones behind", behind


def _in_front(value: Any, most: int, more: int, name: str) -> Any:
    if name == "dim" and isinstance(value, int):
        return value + more if value >= 0 else value
    if isinstance(value, Tensor) and value.ndim == most:
        return value.expand(2, *(1,) * (more - 1), *value.shape).clone()
    return value


def _behind(tensor: Tensor, least: int, more: int) -> Tensor:
    return tensor.reshape(*tensor.shape, *(1,) * more) if tensor.ndim >= max(least, 1) else tensor
