"""AGREE: without a formula, whether the ways to one result agree with each other.

Where nothing tells the exact result there is no bound on an error either. What can be told is whether two ways agree:
jvp with vjp, vmap with the loop it stands for, eager autograd with torch.func, second derivatives with each other. They
are evaluated in float64, and must agree as far as float32 could tell, on the scale of the largest element: rounding
takes as much only where it is amplified 2^29 times; a missing term, a wrong sign, a slice of another sample takes all.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from ....reference.formats import FORMATS
from ...judgement import Judgement, Unsupported, Violation
from ...op import Sample, Tensor
from ...transforms import (
    ENGINES,
    Engine,
    Problem,
    Vmap,
    Word,
    along,
    batch,
    draw_directions,
    loop,
    output_names,
    signature,
    word_name,
)
from ...verdict import Code
from .vmap import nestings

#: What float32 could tell apart.
AGREEMENT = FORMATS["float32"].unit_roundoff


class Opaque:
    """Stands for a formula that nobody knows: every reading of it says that the question does not apply."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __call__(self, *args: Any) -> Any:
        raise Unsupported(Code.NOT_APPLICABLE, self.reason)


LOOP = Engine(ENGINES["func"].jvp, ENGINES["func"].vjp, functools.partial(loop, stack=torch.stack))


def agreeing(j: Judgement, sample: Sample) -> None:
    """AGREE: vmap with loops, autograd with torch.func, jvp with vjp, second derivatives with each other."""
    if not isinstance(j.op.reference, Opaque):
        raise Unsupported(Code.NOT_APPLICABLE, f"{j.op.name} has a formula, which it is judged against")
    problem = Problem(j.op, sample.args)
    f = problem.operation(j.subject)
    with torch.no_grad():
        primal = j.call(f, *problem.passive, *problem.inputs, what="forward")
    without = j.op.promises.without
    forward_mode = "jvp" not in without
    if "vmap" not in without:
        for word in (w for w in j.offered(nestings(3)) if any(isinstance(step, Vmap) for step in w)):
            _compare(j, sample, problem, primal, word, (ENGINES["func"], LOOP), "the loop that vmap stands for")
    for word in (("vjp",), ("vjp", "vjp"), *((("jvp",),) if forward_mode else ())):
        _compare(j, sample, problem, primal, word, (ENGINES["eager"], ENGINES["func"]), "torch.func")
    if problem.wrt:
        _adjoint(j, sample, problem, primal, forward_mode)


def _operands(problem: Problem, sample: Sample, primal: Sequence[Tensor], word: Word) -> list[Tensor]:
    """What T(f) takes: the inputs, batched where the word says so, and directions."""
    likes = signature(word, problem.inputs, primal, problem.passive)
    own = len(problem.fixed) + len(problem.wrt)
    return [*batch(problem, sample, likes[:own]), *draw_directions(likes[own:], sample.seed)]


def _outputs(
    j: Judgement, problem: Problem, primal: Sequence[Tensor], word: Word, engine: Engine, operands: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    f = problem.operation(j.subject)
    taken = along(engine, word, f, len(problem.wrt), len(primal), len(problem.fixed))
    outputs: tuple[Tensor, ...] = j.call(taken, *operands, what=word_name(word))
    return outputs


def _compare(
    j: Judgement, sample: Sample, problem: Problem, primal: Sequence[Tensor], word: Word, ways: Sequence[Engine],
    other: str,
) -> None:  # fmt: skip
    """One word taken in two ways."""
    operands = _operands(problem, sample, primal, word)
    mine, theirs = (_outputs(j, problem, primal, word, way, operands) for way in ways)
    for a, b, name in zip(mine, theirs, output_names(j.op, word, problem.wrt, len(primal)), strict=True):
        _agree(j, a, b, f"{word_name(word)}: {name} differs from {other}", word_name(word))


def _agree(j: Judgement, a: Tensor, b: Tensor, what: str, path: str) -> None:
    if a.shape != b.shape or a.dtype != b.dtype:
        lines = [f"got shape={tuple(a.shape)}, {a.dtype}; need shape={tuple(b.shape)}, {b.dtype}"]
        raise Violation(Code.ATTRIBUTE, f"{j.op.name} {what}", lines, path)
    if not a.numel():
        j.judged += 1
        return
    scale = float(torch.maximum(a.abs().nan_to_num().max(), b.abs().nan_to_num().max()))
    both = torch.isfinite(a) & torch.isfinite(b)
    same = torch.where(both, (a - b).abs() <= AGREEMENT * scale, (a == b) | (a.isnan() & b.isnan()))
    if not bool(same.all()):
        at = tuple(int(k) for k in (~same).nonzero()[0])
        lines = [
            f"{int((~same).sum())} of {same.numel()} elements differ, first at {list(at)}:",
            f"got {float(a[at])!r}, there {float(b[at])!r}; they must agree to 2^-24 of {scale:.4g}",
        ]
        raise Violation(Code.VALUE, f"{j.op.name} {what}", lines, path)
    j.judged += same.numel()


def _adjoint(j: Judgement, sample: Sample, problem: Problem, primal: Sequence[Tensor], forward_mode: bool) -> None:
    """<g, J t> = <J^T g, t>, and the second derivatives of <g, f> are symmetric."""
    k, m, own = len(problem.wrt), len(primal), len(problem.fixed) + len(problem.wrt)
    reverse = _operands(problem, sample, primal, ("vjp",))
    tangents = draw_directions(signature(("jvp",), problem.inputs, primal)[k:], sample.seed + 1)
    others = draw_directions(signature(("jvp",), problem.inputs, primal)[k:], sample.seed + 2)
    pulled = _outputs(j, problem, primal, ("vjp",), ENGINES["func"], reverse)
    if forward_mode:
        moved = _outputs(j, problem, primal, ("jvp",), ENGINES["func"], [*reverse[:own], *tangents])
        _balanced(j, reverse[own:], moved, pulled, tangents, "jvp and vjp are not adjoint")

    def second(direction: Sequence[Tensor]) -> Sequence[Tensor]:
        operands = [*reverse, *direction]
        return _outputs(j, problem, primal, ("vjp", "vjp"), ENGINES["func"], operands)[:k]

    _balanced(j, others, second(tangents), second(others), tangents, "second derivatives are not symmetric")
    if forward_mode:
        still = [torch.zeros_like(g) for g in reverse[own : own + m]]
        operands = [*reverse, *tangents, *still]
        forward = _outputs(j, problem, primal, ("vjp", "jvp"), ENGINES["func"], operands)
        for a, b in zip(forward, second(tangents), strict=True):
            _agree(j, a, b, "jvp∘vjp differs from vjp∘vjp", "jvp∘vjp")


def _balanced(
    j: Judgement, a: Sequence[Tensor], b: Sequence[Tensor], c: Sequence[Tensor], d: Sequence[Tensor], what: str
) -> None:
    """<a, b> = <c, d>."""
    left, right = (torch.cat([(x * y).ravel() for x, y in zip(*pair, strict=True)]) for pair in ((a, b), (c, d)))
    scale = float(left.abs().sum() + right.abs().sum())
    difference = abs(float(left.sum()) - float(right.sum()))
    if not difference <= AGREEMENT * scale and difference == difference:
        lines = [f"{float(left.sum())!r} and {float(right.sum())!r}; they must agree to 2^-24 of {scale:.4g}"]
        raise Violation(Code.ADJOINT, f"{j.op.name}: {what}", lines, "adjoint")
    j.judged += 1
