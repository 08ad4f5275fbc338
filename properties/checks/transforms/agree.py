"""AGREE: of an op without a formula, whether the ways to compute one result agree with each other.

Without a formula there is neither an exact result nor a bound on the error. But two ways can be compared: jvp with vjp,
vmap with the loop that it stands for, eager autograd with torch.func, second derivatives with each other. They are
evaluated in float64, and may differ by half an ulp of float32 at the scale of the largest element. Rounding in float64
makes so large a difference only where the op amplifies it 2^29 times, while a missing term, a wrong sign or a slice of
another sample changes the result as a whole.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ....oracles.judge.judge import Judge
from ....oracles.op.declaration import Sample, Tensor
from ....oracles.op.paths import Path
from ....oracles.op.transforms import ENGINES, Engine, Vmap, Word, loop, nestings, word_name
from ....oracles.verdicts.violation import Code, Unsupported, Violation
from ....reference.formats import FORMATS

#: Two results agree if their difference is at most this share of the largest element.
AGREEMENT = FORMATS["float32"].unit_roundoff


class Opaque:
    """Stands for the formula of an op that has none: every reading raises `Unsupported`, "not applicable"."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __call__(self, *args: Any) -> Any:
        raise Unsupported(Code.NOT_APPLICABLE, self.reason)


LOOP = Engine(ENGINES["func"].jvp, ENGINES["func"].vjp, functools.partial(loop, stack=torch.stack))


def check_agreement(judge: Judge, sample: Sample) -> None:
    """AGREE: vmap with loops, autograd with torch.func, jvp with vjp, second derivatives with each other."""
    if not isinstance(judge.op.reference, Opaque):
        raise Unsupported(Code.NOT_APPLICABLE, f"{judge.op.name} has a formula, which it is judged against")
    with torch.no_grad():
        primal = judge.primal(sample)
    without = judge.op.promises.without
    forward_mode = "jvp" not in without
    if "vmap" not in without:
        for word in (w for w in judge.offered(nestings(3)) if any(isinstance(step, Vmap) for step in w)):
            path = judge.path(sample, word, primal)
            _compare(judge, path, (ENGINES["func"], LOOP), "the loop that vmap stands for")
    for word in (("vjp",), ("vjp", "vjp"), *((("jvp",),) if forward_mode else ())):
        _compare(judge, judge.path(sample, word, primal), (ENGINES["eager"], ENGINES["func"]), "torch.func")
    if judge.op.differentiable_positions(sample.args):
        _judge_adjointness(judge, sample, primal, forward_mode)


def _run_path(judge: Judge, path: Path, engine: Engine) -> tuple[Tensor, ...]:
    """The subject's outputs along a path, with the transforms of an engine."""
    function = path.transformed(path.problem.operation(judge.subject), engine)
    outputs: tuple[Tensor, ...] = judge.call(function, *path.operands, what=word_name(path.word))
    return outputs


def _compare(judge: Judge, path: Path, ways: Sequence[Engine], other: str) -> None:
    """Violation unless two engines agree along a path; `other` names the second one in messages."""
    name = word_name(path.word)
    mine, theirs = (_run_path(judge, path, way) for way in ways)
    judge.require_alike(mine, theirs, "shape", "dtype", names=path.names(), where=f"{name} beside {other}", path=name)
    for a, b, output in zip(mine, theirs, path.names(), strict=True):
        _require_agreement(judge, a, b, f"{name}: {output} differs from {other}", name)


def _require_agreement(judge: Judge, a: Tensor, b: Tensor, what: str, path: str) -> None:
    """Violation unless two results agree to `AGREEMENT` of their largest element."""
    if not a.numel():
        judge.tally.count(1)
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
        raise Violation(Code.VALUE, f"{judge.op.name} {what}", lines, path)
    judge.tally.count(same.numel())


def _judge_adjointness(judge: Judge, sample: Sample, primal: Sequence[Tensor], forward_mode: bool) -> None:
    """<g, J t> = <J^T g, t>, and the second derivatives of <g, f> are symmetric."""
    reverse = judge.path(sample, ("vjp",), primal)
    cotangents = reverse.directions
    # Each of the two tangents has a seed of its own, so that they are independent of each other and of the cotangents.
    tangents, others = (judge.path(replace(sample, seed=sample.seed + k), ("jvp",), primal).directions for k in (1, 2))

    def along(word: Word, *directions: Tensor) -> tuple[Tensor, ...]:
        return _run_path(judge, reverse.along(word, directions), ENGINES["func"])

    pulled = along(("vjp",), *cotangents)
    if forward_mode:
        moved = along(("jvp",), *tangents)
        _require_balance(judge, cotangents, moved, pulled, tangents, "jvp and vjp are not adjoint")

    def second(direction: Sequence[Tensor]) -> Sequence[Tensor]:
        # The outer vjp returns gradients in the inputs, which are second derivatives, and in the inner cotangents,
        # which are first derivatives.
        return along(("vjp", "vjp"), *cotangents, *direction)[: len(tangents)]

    _require_balance(judge, others, second(tangents), second(others), tangents, "second derivatives are not symmetric")
    if forward_mode:
        # A jvp step takes tangents of the directions before it as well. They are zero, because only second derivatives
        # in the inputs are compared.
        still, unmoved = ([torch.zeros_like(t) for t in directions] for directions in (cotangents, tangents))
        right = second(tangents)
        for word, computed in (
            ("jvp∘vjp", along(("vjp", "jvp"), *cotangents, *tangents, *still)),
            ("vjp∘jvp", along(("jvp", "vjp"), *tangents, *cotangents)[: len(tangents)]),
        ):
            for a, b in zip(computed, right, strict=True):
                _require_agreement(judge, a, b, f"{word} differs from vjp∘vjp", word)
        twice = along(("jvp", "jvp"), *tangents, *others, *unmoved)
        _require_balance(judge, cotangents, twice, right, others, "jvp∘jvp differs from vjp∘vjp")


def _require_balance(
    judge: Judge, a: Sequence[Tensor], b: Sequence[Tensor], c: Sequence[Tensor], d: Sequence[Tensor], what: str
) -> None:
    """Violation unless <a, b> = <c, d> to `AGREEMENT` of the sum of all magnitudes."""
    left, right = (torch.cat([(x * y).ravel() for x, y in zip(*pair, strict=True)]) for pair in ((a, b), (c, d)))
    scale = float(left.abs().sum() + right.abs().sum())
    difference = abs(float(left.sum()) - float(right.sum()))
    # The difference is NaN where a result is not finite. Then the two sums cannot be compared.
    if not difference <= AGREEMENT * scale and difference == difference:
        lines = [f"{float(left.sum())!r} and {float(right.sum())!r}; they must agree to 2^-24 of {scale:.4g}"]
        raise judge.violation(Code.ADJOINT, what, lines, path="adjoint")
    judge.tally.count(1)
