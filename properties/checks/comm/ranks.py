"""COMM: an op over ranks has the same values on any partition of its batch as on the whole; so has every derivative.

What this is for: each rank runs a whole word of transforms on its part, and the joined results of the ranks are judged
as if one process had computed them.

What is hard here: how the ranks' tensors are joined follows from the word, for every operand and result. There are four
kinds. An operand is *cut* along axis 0, and so are its tangents and its cotangents. Or it is *shared*, equal on every
rank; then its tangents are shared, but its cotangents are *partial*: each rank has a term, and only the sum over
ranks counts. The cotangent of a partial operand is shared again. Or it is at *home* on one rank, as its tangents and
cotangents are; the other ranks have NaNs in its place, which show where an op reads them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ....oracles.bound.rounding import Ball
from ....oracles.judge.judge import Judge
from ....oracles.op.bits import same_results
from ....oracles.op.declaration import OWN, Sample, Stream, Tensor, dtype_name, to_array
from ....oracles.op.paths import Problem
from ....oracles.op.placement import Ranks
from ....oracles.op.transforms import FIRST, SECOND, Word, word_name
from ....oracles.verdicts.verdict import Code
from ....reference.formats import FORMATS, ulp_array
from .failing import check_failures

#: How an operand or a result is spread over the ranks: one of the three words, or the rank that is its home.
Kind = str | int
CUT, SHARED, PARTIAL = "cut", "shared", "partial"
_DUAL = {CUT: CUT, SHARED: PARTIAL, PARTIAL: SHARED}
#: How many words of second order are tried on one sample.
SECONDS = 2


def check_partition(judge: Judge, sample: Sample) -> None:
    """Judge values, first derivatives, and some second ones, on a partition that the sample decides."""
    ranks = judge.op.production.ranks
    assert ranks is not None
    rng = sample.generator(Stream.RANKS)
    size = ranks.size(sample.args, rng)
    rows = int(sample.args[0].shape[0]) if ranks.homes is None else 0
    # Cuts may coincide, so that some rank has no rows at all, which an op over ranks must bear.
    bounds = (0, *sorted(int(c) for c in rng.integers(0, rows + 1, size - 1)), rows)
    for word in some_words(rng, judge.subject_name):
        _judge_word(judge, sample, word, bounds)
    # An op of a batch in parts may make no call at all, and then no rank can disagree with its calls.
    if judge.subject_name == OWN and ranks.homes is not None and ranks.may_fail():
        check_failures(judge, ranks, size, int(rng.integers(size)), lambda comm: ranks.call(comm, *sample.args))


def some_words(rng: Any, subject: str) -> list[Word]:
    """The words of the op, of first derivatives, and of some second ones; of other subjects, the op and its vjp."""
    if subject != OWN:
        return [(), ("vjp",)]
    seconds = rng.choice(len(SECOND), SECONDS, replace=False)
    return [(), *FIRST, *(SECOND[i] for i in sorted(seconds))]


def _judge_word(judge: Judge, sample: Sample, word: Word, bounds: Sequence[int]) -> None:
    ranks = judge.op.production.ranks
    assert ranks is not None
    call, engine = (ranks.call, "func") if judge.subject_name == OWN else (ranks.peers[judge.subject_name], "eager")
    sizes = [b - a for a, b in itertools.pairwise(bounds)]
    name = f"{word_name(word)} on parts {sizes}" if ranks.homes is None else f"{word_name(word)} on {len(sizes)} ranks"
    with torch.no_grad():
        # Directions are drawn for the whole and then split among the ranks, so the shapes of the outputs must be those
        # of the op in one process, not those of a rank's part.
        primal = judge.primal(sample, judge.op.subject(OWN))
    path = judge.path(sample, word, primal, engine)
    passive = len(path.problem.fixed)
    arguments, results = _kinds_of_op(ranks, path.problem, len(primal))
    kinds, outputs = _kinds_of_word(word, arguments[passive:], results)

    def program(comm: Any) -> Any:
        rows = slice(bounds[comm.rank], bounds[comm.rank + 1])

        def local(*args: Any) -> Any:
            return call(comm, *args)

        every = zip(path.operands, [*arguments[:passive], *kinds], strict=True)
        mine = [_part(t, kind, comm.rank, rows) for t, kind in every]
        operation = path.problem.operation(judge.op.functional(local))
        return [t.detach() for t in path.transformed(operation)(*mine)]

    by_rank = judge.call(ranks.run, len(sizes), program, what=name)
    for computed in by_rank:
        judge.require_dtypes(path, computed)
    columns = list(zip(*by_rank, strict=True))
    expected = path.expected(name)
    readings = judge.read(expected)
    for i, (parts, kind, ball) in enumerate(zip(columns, outputs, readings, strict=True)):
        with judge.tally.clock("compare"):
            if kind == PARTIAL:
                _judge_sum(judge, parts, ball, expected.names[i], name)
            else:
                judge.output(expected, i, _join_parts(judge, parts, kind, expected.names[i], name), ball)


def _kinds_of_op(ranks: Ranks, problem: Problem, outputs: int) -> tuple[list[Kind], list[Kind]]:
    """The kinds of the op's operands, and those of its outputs."""
    positions = (*problem.fixed, *problem.wrt)
    if ranks.homes is None:
        return [CUT if i == 0 else SHARED for i in positions], [CUT, *(SHARED for _ in range(outputs - 1))]
    homes = ranks.homes(problem.args)
    tensors = [i for i, a in enumerate(problem.args) if isinstance(a, Tensor)]
    return [homes.arguments[tensors.index(i)] for i in positions], list(homes.outputs)


def _kinds_of_word(word: Word, inputs: Sequence[Kind], outputs: Sequence[Kind]) -> tuple[list[Kind], list[Kind]]:
    """The kinds of a word's operands, and those of its results."""
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
    """A rank's share of an operand.

    The shares of a partial operand must add up to it, so the first rank has all of it and the others have zeros.
    """
    if isinstance(kind, int):
        return t if kind == rank else torch.full_like(t, torch.nan)
    if kind == CUT:
        return t[rows]
    return t if kind == SHARED or rank == 0 else torch.zeros_like(t)


def _join_parts(judge: Judge, parts: Sequence[Tensor], kind: Kind, name: str, path: str) -> Tensor:
    """The whole of a result that is not partial, of the parts that the ranks have."""
    if isinstance(kind, int):
        # A result that is at home on one rank does not exist on the others, so our op gives zeros there. Torch's
        # functions leave the tensor of such a rank undefined, so it is not judged.
        others = [rank for rank, t in enumerate(parts) if rank != kind and not bool((t == 0).all())]
        if others and judge.subject_name == OWN:
            wrong = f"{name} is at home on rank {kind}, but not zero on rank {others[0]}"
            raise judge.violation(Code.VALUE, wrong, where=path)
        return parts[kind]
    if kind == CUT:
        return torch.cat(list(parts))
    if not all(same_results(t, parts[0]) for t in parts):
        raise judge.violation(Code.BITS, f"{name} differs between ranks", where=path)
    return parts[0]


def _judge_sum(judge: Judge, parts: Sequence[Tensor], ball: Ball, name: str, path: str) -> None:
    """Judge a partial result by its sum over ranks, whose rounding reading is `ball`.

    No rank forms that sum, so it is formed here, in float64. It may be off by what one process may be off, and by the
    rounding of each rank's part to its dtype.
    """
    fmt = FORMATS[dtype_name(parts[0].dtype)]
    values = [to_array(t) for t in parts]
    centre, radii = np.asarray(ball.centre, dtype=np.float64), np.asarray(ball.radii(), dtype=np.float64)
    # The reading alone decides whether an element can be judged, not the result of the subject.
    judgeable = np.isfinite(centre) & np.isfinite(radii)
    with np.errstate(all="ignore"):
        total = np.sum(values, axis=0)
        bound = radii + sum(0.5 * ulp_array(fmt, np.abs(v)) for v in values)
        bound = bound + len(parts) * 2.0**-53 * np.sum(np.abs(values), axis=0)  # the sum's own rounding
        error = np.abs(total - centre)
        ratios = np.where(judgeable & (error != 0), error / bound, 0.0)
    ratios = np.where(judgeable & ~np.isfinite(total), np.inf, ratios)
    if np.any(ratios > 1.0):
        at = np.unravel_index(int(np.argmax(ratios)), ratios.shape)
        lines = [f"at {[int(i) for i in at]}: got {total[at]!r}, need {float(centre[at])!r} to {bound[at]:.4g}"]
        raise judge.violation(Code.VALUE, f"sum of {name} over ranks, {ratios[at]:.4g}x bound", lines, where=path)
    judge.tally.ratio(float(np.max(ratios, initial=0.0)))
    judge.tally.count(int(np.count_nonzero(judgeable)), int(judgeable.size - np.count_nonzero(judgeable)))
