"""COMM: an op over ranks gives, on any partition of its batch, what it gives on the whole; so does every derivative.

Each rank runs a whole word of transforms on its part. What an operand is to the ranks, and what a result is, follows
from three kinds: *cut* along axis 0, and so are its tangents and cotangents; *shared*, equal on every rank, and its
cotangents are *partial*: what counts is their sum over ranks, and the cotangent of what is partial is shared again; or
at *home* on one rank, as its tangents and cotangents are, while the others hold NaNs that nobody may look at.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ....reference.formats import FORMATS, ulp_array
from ...bits import same_bits
from ...judgement import Judgement, Violation
from ...op import OWN, Ranks, Sample, Tensor, dtype_name, to_array
from ...rounding import Ball, balls
from ...transforms import (
    ENGINES,
    FIRST,
    SECOND,
    Problem,
    Word,
    along,
    derivative_order,
    draw_directions,
    output_names,
    word_name,
)
from ...transforms import signature as signature_of
from ...verdict import Code

Kind = str | int  # of an operand: one of the words, or the rank that it is at home on
CUT, SHARED, PARTIAL = "cut", "shared", "partial"
_DUAL = {CUT: CUT, SHARED: PARTIAL, PARTIAL: SHARED}
#: Words of second order that are tried on one sample.
SECONDS = 2


def partitioned(j: Judgement, sample: Sample) -> None:
    """Values, first derivatives, and some second ones, of a partition that the sample decides."""
    ranks = j.op.ranks
    assert ranks is not None
    rng = sample.generator(8)
    size = ranks.size(sample.args, rng)
    rows = int(sample.args[0].shape[0]) if ranks.homes is None else 0
    bounds = (0, *sorted(int(c) for c in rng.integers(0, rows + 1, size - 1)), rows)
    for word in some_words(rng, j.subject_name):
        _judge_word(j, sample, word, bounds)


def some_words(rng: Any, subject: str) -> list[Word]:
    """The op itself, first derivatives, and some second ones; of peers, the op and its adjoint."""
    if subject != OWN:
        return [(), ("vjp",)]
    seconds = rng.choice(len(SECOND), SECONDS, replace=False)
    return [(), *FIRST, *(SECOND[i] for i in sorted(seconds))]


def _judge_word(j: Judgement, sample: Sample, word: Word, bounds: Sequence[int]) -> None:
    ranks, problem = j.op.ranks, Problem(j.op, sample.args)
    assert ranks is not None
    call, engine = (ranks.call, "func") if j.subject_name == OWN else (ranks.peers[j.subject_name], "eager")
    sizes = [b - a for a, b in itertools.pairwise(bounds)]
    path = f"{word_name(word)} on parts {sizes}" if ranks.homes is None else f"{word_name(word)} on {len(sizes)} ranks"
    with torch.no_grad():
        primal = j.call(problem.operation(j.op.subject(OWN)), *problem.passive, *problem.inputs, what="forward")
    passive, own = len(problem.fixed), len(problem.wrt)
    given, results = _at_home(ranks, problem, len(primal))
    kinds, outputs = _kinds(word, given[passive:], results)
    likes = signature_of(word, problem.inputs, primal, problem.passive)
    operands = [*problem.passive, *problem.inputs, *draw_directions(likes[passive + own :], sample.seed, j.device)]

    def program(comm: Any) -> Any:
        rows = slice(bounds[comm.rank], bounds[comm.rank + 1])

        def local(*args: Any) -> Any:
            return call(comm, *args)

        mine = [_part(t, kind, comm.rank, rows) for t, kind in zip(operands, [*given[:passive], *kinds], strict=True)]
        f = problem.operation(j.op.functional(local))
        return [t.detach() for t in along(ENGINES[engine], word, f, own, len(primal), passive)(*mine)]

    found = j.call(ranks.run, len(sizes), program, what=path)
    names = output_names(j.op, word, problem.wrt, len(primal))
    columns = list(zip(*found, strict=True))
    order = derivative_order(word)
    formula, arrays = problem.formula(word, len(primal)), [to_array(t) for t in operands]
    finite = all(np.isfinite(a).all() for a in arrays)
    with j.clock("reference"):
        read = balls(formula, arrays, j.terms_of(order))
    for i, (parts, kind, name, ball) in enumerate(zip(columns, outputs, names, read, strict=True)):
        with j.clock("compare"):
            if kind == PARTIAL:
                _sum_within(j, parts, ball, name, path)
            else:
                whole = _whole(j, parts, kind, name, path)
                j.output(whole, ball, None, name, path, finite, order, (formula, arrays, i))


def _at_home(ranks: Ranks, problem: Problem, outputs: int) -> tuple[list[Kind], list[Kind]]:
    """What the operands of the op are to the ranks, and its outputs."""
    positions = (*problem.fixed, *problem.wrt)
    if ranks.homes is None:
        return [CUT if i == 0 else SHARED for i in positions], [CUT, *(SHARED for _ in range(outputs - 1))]
    homes = ranks.homes(problem.args)
    tensors = [i for i, a in enumerate(problem.args) if isinstance(a, Tensor)]
    return [homes.arguments[tensors.index(i)] for i in positions], list(homes.outputs)


def _kinds(word: Word, inputs: Sequence[Kind], outputs: Sequence[Kind]) -> tuple[list[Kind], list[Kind]]:
    """What the operands of a word are to the ranks, and its results."""
    ins, outs = list(inputs), list(outputs)
    for step in word:
        if step == "jvp":
            ins, outs = ins + ins, outs
        else:
            ins, outs = [*ins, *map(_dual, outs)], [*map(_dual, ins)]
    return ins, outs


def _dual(kind: Kind) -> Kind:
    return kind if isinstance(kind, int) else _DUAL[kind]


def _part(t: Tensor, kind: Kind, rank: int, rows: slice) -> Tensor:
    """A rank's share of an operand; of a partial one, the first rank has all."""
    if isinstance(kind, int):
        return t if kind == rank else torch.full_like(t, torch.nan)
    if kind == CUT:
        return t[rows]
    return t if kind == SHARED or rank == 0 else torch.zeros_like(t)


def _whole(j: Judgement, parts: Sequence[Tensor], kind: Kind, name: str, path: str) -> Tensor:
    if isinstance(kind, int):
        # The rest of the matrix is zeros. Torch leaves undefined what a rank gets that asks for nothing.
        others = [rank for rank, t in enumerate(parts) if rank != kind and not bool((t == 0).all())]
        if others and j.subject_name == OWN:
            title = f"{j.op.name} {path}: {name} is at home on rank {kind}, but not zero on rank {others[0]}"
            raise Violation(Code.VALUE, title, path=path)
        return parts[kind]
    if kind == CUT:
        return torch.cat(list(parts))
    if not all(same_bits(t, parts[0]) for t in parts):
        raise Violation(Code.BITS, f"{j.op.name} {path}: {name} differs between ranks", path=path)
    return parts[0]


def _sum_within(j: Judgement, parts: Sequence[Tensor], ball: Ball, name: str, path: str) -> None:
    """The sum over ranks, which nobody rounds, may be off as one process may be, and by the rounding of each part."""
    fmt = FORMATS[dtype_name(parts[0].dtype)]
    values = [to_array(t) for t in parts]
    centre, radii = np.asarray(ball.centre, dtype=np.float64), np.asarray(ball.radii(), dtype=np.float64)
    known = np.isfinite(centre) & np.isfinite(radii)  # what the subject gives has no say in it
    with np.errstate(all="ignore"):
        total = np.sum(values, axis=0)
        bound = radii + sum(0.5 * ulp_array(fmt, np.abs(v)) for v in values)
        bound = bound + len(parts) * 2.0**-53 * np.sum(np.abs(values), axis=0)  # of this very sum
        error = np.abs(total - centre)
        ratios = np.where(known & (error != 0), error / bound, 0.0)
    ratios = np.where(known & ~np.isfinite(total), np.inf, ratios)
    if np.any(ratios > 1.0):
        at = np.unravel_index(int(np.argmax(ratios)), ratios.shape)
        lines = [f"at {[int(i) for i in at]}: got {total[at]!r}, need {float(centre[at])!r} to {bound[at]:.4g}"]
        title = f"{j.op.name} {path}: sum of {name} over ranks, {ratios[at]:.4g}x bound"
        raise Violation(Code.VALUE, title, lines, path)
    j.max_ratio = max(j.max_ratio, float(np.max(ratios, initial=0.0)))
    j.judged += int(np.count_nonzero(known))
    j.not_judged += int(known.size - np.count_nonzero(known))
