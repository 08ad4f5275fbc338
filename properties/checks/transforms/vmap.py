"""VMAP: vmap over every combination of axes, a different sample in every slice, against the loop that it stands for.

What this is for: a batching rule may mix slices up, put the batch at the wrong axis, or forget that an argument is
shared by all slices. So each slice is another sample, every tensor is batched along several axes or not at all, and
each slice of the outputs is judged by the formula.

What is hard here: an op that writes to an argument (`Op.mutates`). Where all slices share that argument and would
write different values to it, there is no right result, so the call must be refused; where they would write the same
values, a refusal is right only if the values may depend on what is batched (`_call_unless_refused`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ....oracles.bound.rounding import balls
from ....oracles.judge.judge import Judge
from ....oracles.op.declaration import OWN, Sample, Stream, Tensor, is_float
from ....oracles.op.paths import Expected, Problem, in_arguments, output_names
from ....oracles.op.transforms import Vmap
from ....oracles.programs.particular import script_vmap
from ....oracles.verdicts.violation import Code, Violation, error_lines
from ....reference.algorithms import algorithm_of, algorithms
from ...table import PROPERTIES

#: How many slices a batch has: as many as the samples of VMAP come with.
SLICES = PROPERTIES["VMAP"].sampling.slices
#: At most this many combinations of in_dims and out_dims are judged on one sample.
COMBINATIONS = 16


def check_vmap(judge: Judge, sample: Sample) -> None:
    """VMAP: in_dims None, first, last and middle for every tensor, all outputs, out_dims first and last."""
    judge.offered(((Vmap(SLICES),),))
    tensors = [i for i, a in enumerate(sample.args) if isinstance(a, torch.Tensor)]
    rng = sample.seeded(Stream.VMAP)
    # All in_dims that batch the same tensors stand for the same loop. Its reading is slow, so each loop is read once.
    loops: dict[frozenset[int], _Loop] = {}
    for dims in _combinations(sample, tensors, rng):
        varied = frozenset(i for i, dim in zip(tensors, dims, strict=True) if dim is not None)
        if varied not in loops:
            loops[varied] = _Loop(judge, sample, varied)
        # torch 2.13 misplaces the batch of an output that depends on no batched input. Such an output exists only where
        # some input is not batched; so the batch is asked for as the last axis only where every input is batched.
        _judge_batching(judge, sample, tensors, dims, loops[varied], last=None not in dims and bool(rng.integers(2)))


class _Loop:
    """The loop that vmap stands for: one call per slice, and the readings of all calls, stacked.

    Attributes:
        slices: arguments of each call. varied: positions of the batched arguments; the slices share the others.
        expected, read: the stacked outputs of all calls, as a formula and as balls.
    """

    def __init__(self, judge: Judge, sample: Sample, varied: frozenset[int]) -> None:
        self.varied = varied
        rows = (sample.args, *sample.slices)[:SLICES]
        self.slices = [[a if i in varied else sample.args[i] for i, a in enumerate(args)] for args in rows]
        problems = [Problem(judge.op, args) for args in self.slices]
        operands = [array for problem in problems for array in problem.arrays()]
        self.expected = Expected(_stack_formulas([problem.formula((), 0) for problem in problems]), operands, (), "")
        self.read = judge.read(self.expected)


def _stack_formulas(formulas: Sequence[Callable[..., Any]]) -> Callable[..., tuple[Any, ...]]:
    """One function of the operands of all formulas, one formula after the other, with stacked outputs."""

    def along(rows: Sequence[Callable[..., Any]]) -> Callable[..., tuple[Any, ...]]:
        def whole(*operands: Any) -> tuple[Any, ...]:
            own = len(operands) // len(rows)
            outputs = [f(*operands[k * own : (k + 1) * own]) for k, f in enumerate(rows)]
            return tuple(np.stack(column) for column in zip(*outputs, strict=True))

        return whole

    first = along(formulas)
    # One call of a batched op runs one algorithm for the whole batch, so an alternative algorithm is stacked with
    # itself in all slices.
    for rows in zip(*map(algorithms, formulas), strict=True):
        algorithm_of(first)(along(rows))
    return first


def _combinations(sample: Sample, tensors: Sequence[int], rng: Any) -> Iterator[tuple[int | None, ...]]:
    choices = [(None, 0, -1, *((1,) if sample.args[i].ndim > 1 else ())) for i in tensors]
    count = math.prod(map(len, choices)) - 1  # Combination number 0 batches nothing, so it is left out.
    picked = range(count) if count <= COMBINATIONS else sorted(rng.choice(count, COMBINATIONS, False))
    return (_combination_at(int(number) + 1, choices) for number in picked)


def _combination_at(number: int, choices: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """An item of `itertools.product(*choices)`, by its number: the product may be too large for a list."""
    item = []
    for options in reversed(choices):
        number, index = divmod(number, len(options))
        item.append(options[index])
    return tuple(reversed(item))


def _judge_batching(
    judge: Judge, sample: Sample, tensors: Sequence[int], dims: Sequence[int | None], loop: _Loop, last: bool,
) -> None:  # fmt: skip
    """Judge one way of batching the arguments at positions `tensors`: along `dims`, None for one that the slices share.

    The batch is the last axis of the outputs, or the first.
    """
    slices = loop.slices
    batched = [
        sample.args[i] if d is None else torch.stack([row[i] for row in slices], d if d >= 0 else slices[0][i].ndim)
        for i, d in zip(tensors, dims, strict=True)
    ]
    f = in_arguments(judge.subject, sample.args, tensors)
    with torch.no_grad():
        alone = judge.call(f, *(slices[0][i] for i in tensors), what="forward")
        out_dims = tuple(one.ndim if last else 0 for one in alone)
        named = ", ".join(f"{judge.op.label(i)}: {d}" for i, d in zip(tensors, dims, strict=True))
        what = f"vmap(in_dims=({named}), out_dims={out_dims})"
        call = torch.func.vmap(f, in_dims=tuple(dims), out_dims=out_dims)
        outputs = _call_unless_refused(judge, call, batched, loop, what)
    if outputs is None:
        return
    pairs = zip(alone, out_dims, strict=True)
    need = [one.unsqueeze(d).expand(*one.shape[:d], len(slices), *one.shape[d:]) for one, d in pairs]
    judge.require_alike(outputs, need, "dtype", "shape", where=what)
    names = [f"slices of {name}" for name in output_names(len(outputs))]
    mine = [y.movedim(d, 0) for y, d in zip(outputs, out_dims, strict=True)]
    problem, arguments = Problem(judge.op, sample.args), dict(zip(tensors, batched, strict=True))
    script = functools.partial(script_vmap, problem, arguments, dims, out_dims)
    judge.compare(replace(loop.expected, names=names, path=what, make_script=script), mine, loop.read)


def _call_unless_refused(
    judge: Judge, call: Callable[..., Any], batched: Sequence[Tensor], loop: _Loop, what: str,
) -> Any:  # fmt: skip
    """The outputs of a batched call, or None where the op was right to refuse it.

    Where slices would write different values to an argument that they share, no result is right, so the call must raise
    a RuntimeError that names the argument. Where the values are equal by chance, but depend on batched arguments, the
    op may refuse or not. They depend on these if NaN in all batched arguments makes them NaN.
    """
    first, varied = loop.slices[0], loop.varied
    writes = judge.op.mutated_positions(first)
    shared = [(i, k) for k, i in enumerate(writes) if i not in varied]
    if not shared:
        return judge.call(call, *batched, what=what)
    with judge.tally.clock("reference"):
        values = [np.asarray(ball.centre) for ball in loop.read[len(loop.read) - len(writes) :]]
        blank = [torch.full_like(a, math.nan) if i in varied and is_float(a) else a for i, a in enumerate(first)]
        reached = _read_written_values(judge, blank, len(writes))
    same = functools.partial(np.array_equal, equal_nan=True)
    must = [judge.op.label(i) for i, k in shared if not all(same(values[k][0], row) for row in values[k][1:])]
    may = any(np.isnan(reached[k]).any() for _, k in shared)
    try:
        outputs = judge.call(call, *batched, what=what)
    except Violation as violation:
        err = violation.__cause__
        if not isinstance(err, RuntimeError) or not (must or may):
            raise
        if must and judge.subject_name == OWN and not any(name in str(err) for name in must):
            wrong = f"the refusal does not mention {must[0]!r}"
            raise judge.violation(Code.NOT_RAISED, wrong, error_lines(err), where=what) from err
        judge.tally.count(1)
        return None
    if must:
        wrong = f"slices write different values to {must[0]}, which they share; need RuntimeError"
        raise judge.violation(Code.NOT_RAISED, wrong, where=what)
    return outputs


def _read_written_values(judge: Judge, args: Sequence[Any], count: int) -> list[Any]:
    """The values that a call must write, by the formula."""
    problem = Problem(judge.op, args)
    readings = balls(problem.formula((), 0), problem.arrays(), judge.contract_of(0))
    return [np.asarray(ball.centre) for ball in readings[len(readings) - count :]]
