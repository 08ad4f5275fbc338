"""LAW: metamorphic relations, bit for bit where the declaration says exact, else within the sum of all bounds.

A subject whose documentation promises no equal bits is held to the bounds in every relation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ...oracles.bound.rounding import Ball
from ...oracles.judge.judge import Judge
from ...oracles.op.copies import moved_to
from ...oracles.op.declaration import Law, Sample, Stream, Tensor, dtype_name
from ...oracles.op.paths import Path
from ...oracles.op.transforms import word_name
from ...oracles.verdicts.violation import Code, Unsupported, Violation
from ...reference.formats import FORMATS
from .agreement import require_same


def check_laws(judge: Judge, sample: Sample) -> None:
    """LAW: every declared relation, on finite results."""
    if not judge.op.laws:
        raise Unsupported(Code.NOT_APPLICABLE, f"{judge.op.name} declares no laws")
    # A law sees tensors of the host alone: it draws numbers there, and may take arguments and outputs to NumPy.
    args = moved_to("cpu", sample.args)
    for i, law in enumerate(judge.op.laws):
        # Each law draws from a generator of its own, so one that is declared after the others does not change their
        # choices.
        calls = law.calls(args, sample.seeded(Stream.LAW, i))
        if calls is None:
            continue
        evaluations = [_Call(judge, law, sample.with_args(moved_to(judge.device, changed))) for changed in calls]
        try:
            _judge_relation(judge, law, args, evaluations)
        except Violation:
            raise
        except Exception:
            # A relation may assume outputs of the formula's shapes. If the subject's have others, that is the failure.
            for call in evaluations:
                call.require_outputs()
            raise


def _judge_relation(judge: Judge, law: Law, args: Sequence[Any], evaluations: Sequence[_Call]) -> None:
    left, right = law.relate(args, *(call.outputs for call in evaluations))
    # A relation that adds or subtracts infinite results gives NaN, so it says nothing about them; SPECIAL judges these.
    if not all(bool(torch.isfinite(y).all()) for y in right):
        judge.tally.count(not_judged=sum(y.numel() for y in right))
    elif law.exact and judge.op.documented_by(judge.subject_name).bits:
        # A law is one between numbers, and +0 and −0 are the same number. Adding zero gives both the same bits.
        require_same(judge, [y + 0.0 for y in left], [y + 0.0 for y in right], f"law: {law.name}")
    else:
        _require_within_bounds(judge, law, args, evaluations)


class _Call:
    """One evaluation of a law's path."""

    def __init__(self, judge: Judge, law: Law, sample: Sample) -> None:
        self.judge = judge
        self.what = f"{law.name}, {word_name(law.word)}" if law.word else law.name
        primal = judge.primal(sample, what=law.name)
        self._path: Path = judge.path(sample, law.word, primal)
        self.outputs = moved_to("cpu", judge.run(self._path, what=self.what) if law.word else primal)

    def _read(self) -> tuple[Ball, ...]:
        return self.judge.read(self._path.expected())

    def require_outputs(self) -> None:
        """Violation unless the outputs have the number and the shapes of the formula's outputs."""
        self.judge.require_alike(self.outputs, self._read(), "shape", where=self.what)

    def half_widths(self) -> list[Any]:
        """Half-width of the accept set of every output element, from the rounding reading."""
        pairs = zip(self._read(), self.outputs, strict=True)
        return [ball.half_widths(FORMATS[dtype_name(y.dtype)]) for ball, y in pairs]


def _require_within_bounds(judge: Judge, law: Law, args: Sequence[Any], evaluations: Sequence[_Call]) -> None:
    """Violation unless |left − right| is at most what errors of all outputs within their bounds can add up to."""
    counts = [len(call.outputs) for call in evaluations]
    values = tuple(y.detach().double() for call in evaluations for y in call.outputs)
    widths = [torch.from_numpy(np.asarray(w)) for call in evaluations for w in call.half_widths()]

    def difference(*flat: Tensor) -> tuple[Tensor, ...]:
        rest = iter(flat)
        sides = law.relate(args, *(tuple(next(rest) for _ in range(n)) for n in counts))
        # The jacobian is asked for in every output, and torch raises where a side does not depend on one. Adding zero
        # times every output makes each side depend on all of them, whatever the relation uses.
        none = sum((y.nan_to_num(0.0, 0.0, 0.0).sum() * 0.0 for y in flat), torch.zeros((), dtype=torch.float64))
        return tuple(a.double() - b.double() + none for a, b in zip(*sides, strict=True) if a.numel())

    slopes = torch.autograd.functional.jacobian(difference, values, vectorize=True)
    for i, gap in enumerate(difference(*values)):
        bound = torch.zeros(gap.numel(), dtype=torch.float64)
        for slope, value, width in zip(slopes[i], values, widths, strict=True):
            rows = slope.reshape(gap.numel(), value.numel()).abs()
            own = (value.numel() + 2) * 2.0**-53  # The relation itself is evaluated in float64, which rounds, too.
            bound += torch.where(rows > 0, rows * (width + own * value.abs()).reshape(1, -1), 0.0).sum(1)
        judged = torch.isfinite(bound)
        judge.tally.count(int(judged.sum()), int((~judged).sum()))
        error = gap.reshape(-1).abs()
        ratio = float(torch.where(judged & (error > 0), error / bound, 0.0).max()) if gap.numel() else 0.0
        judge.tally.ratio(min(ratio, 1.0))
        if ratio > 1:
            wrong = f"{law.name}: out[{i}] off by {ratio:.4g} times all bounds together"
            raise judge.violation(Code.VALUE, wrong, where="law", path=f"law: {law.name}")
