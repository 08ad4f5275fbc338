"""LAW: metamorphic relations, bit for bit where the declaration says exact, else within the sum of all bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ...reference.formats import FORMATS, ulp_array
from ..bits import require_same
from ..judgement import Judgement, Unsupported, Violation
from ..op import Law, Sample, Tensor, dtype_name
from ..rounding import Ball, balls
from ..transforms import ENGINES, Problem, along, derivative_order, draw_directions, signature, word_name
from ..verdict import Code


def laws(j: Judgement, sample: Sample) -> None:
    """LAW: every declared relation, on finite results."""
    if not j.op.laws:
        raise Unsupported(Code.NOT_APPLICABLE, f"{j.op.name} declares no laws")
    for i, law in enumerate(j.op.laws):
        calls = law.calls(sample.args, np.random.default_rng([sample.seed, 17, i]))
        if calls is None:
            continue
        made = [_Call(j, law, args, sample.seed) for args in calls]
        try:
            _relation(j, law, sample.args, made)
        except Violation:
            raise
        except Exception:  # a relation is right for outputs of the formula's shapes only
            for call in made:
                call.require_outputs()
            raise


def _relation(j: Judgement, law: Law, args: Sequence[Any], made: Sequence[_Call]) -> None:
    left, right = law.relate(args, *(call.outputs for call in made))
    if not all(bool(torch.isfinite(y).all()) for y in right):
        j.not_judged += sum(y.numel() for y in right)
    elif law.exact:
        # +0 and −0 are one number: a law between values does not tell them apart.
        require_same(j, [y + 0.0 for y in left], [y + 0.0 for y in right], f"law: {law.name}")
    else:
        _within_bounds(j, law, args, made)


class _Call:
    """One evaluation of a law's path."""

    def __init__(self, j: Judgement, law: Law, args: Sequence[Any], seed: int) -> None:
        self.j, self.word, self.problem = j, law.word, Problem(j.op, args)
        f, inputs = self.problem.subject(j.subject), self.problem.inputs
        primal = j.call(f, *inputs, what=law.name)
        self.directions: list[Tensor] = []
        self.outputs: tuple[Tensor, ...] = tuple(primal)
        self.primal_outputs = len(primal)
        self.what = f"{law.name}, {word_name(law.word)}" if law.word else law.name
        if law.word:
            likes = signature(law.word, inputs, primal)[len(inputs) :]
            self.directions = draw_directions(likes, seed, j.device)
            path = along(ENGINES["func"], law.word, f, len(inputs), len(primal))
            self.outputs = tuple(j.call(path, *inputs, *self.directions, what=self.what))

    def _read(self) -> list[Ball]:
        formula = self.problem.formula(self.word, self.primal_outputs)
        with self.j.clock("reference"):
            return list(
                balls(formula, self.problem.arrays(self.directions), self.j.terms_of(derivative_order(self.word)))
            )

    def require_outputs(self) -> None:
        """Violation unless the outputs are as many, and shaped, as the formula's."""
        self.j.require_outputs(self.outputs, self._read(), self.what)

    def half_widths(self) -> list[Any]:
        """Half-width of the accept set of every output element, from the rounding reading."""
        widths = []
        for ball, y in zip(self._read(), self.outputs, strict=True):
            radius = np.asarray(ball.radii(), dtype=np.float64)
            size = np.abs(np.asarray(ball.centre, dtype=np.float64)) + radius
            widths.append(radius + 0.5 * ulp_array(FORMATS[dtype_name(y.dtype)], size))
        return widths


def _within_bounds(j: Judgement, law: Law, args: Sequence[Any], made: Sequence[_Call]) -> None:
    """|left − right| at most what errors of all outputs within their bounds can make of it."""
    counts = [len(call.outputs) for call in made]
    values = tuple(y.detach().double().cpu() for call in made for y in call.outputs)
    widths = [torch.from_numpy(np.asarray(w)) for call in made for w in call.half_widths()]

    def difference(*flat: Tensor) -> tuple[Tensor, ...]:
        rest = iter(flat)
        sides = law.relate(args, *(tuple(next(rest) for _ in range(n)) for n in counts))
        # A column of zeros ties every side to every output, whatever the relation uses.
        none = sum((y.nan_to_num(0.0, 0.0, 0.0).sum() * 0.0 for y in flat), torch.zeros((), dtype=torch.float64))
        return tuple(a.double() - b.double() + none for a, b in zip(*sides, strict=True) if a.numel())

    slopes = torch.autograd.functional.jacobian(difference, values, vectorize=True)
    for i, gap in enumerate(difference(*values)):
        bound = torch.zeros(gap.numel(), dtype=torch.float64)
        for slope, value, width in zip(slopes[i], values, widths, strict=True):
            rows = slope.reshape(gap.numel(), value.numel()).abs()
            own = (value.numel() + 2) * 2.0**-53  # the relation itself is evaluated in binary64
            bound += torch.where(rows > 0, rows * (width + own * value.abs()).reshape(1, -1), 0.0).sum(1)
        judged = torch.isfinite(bound)
        j.judged += int(judged.sum())
        j.not_judged += int((~judged).sum())
        error = gap.reshape(-1).abs()
        ratio = float(torch.where(judged & (error > 0), error / bound, 0.0).max()) if gap.numel() else 0.0
        j.max_ratio = max(j.max_ratio, min(ratio, 1.0))
        if ratio > 1:
            title = f"{j.op.name} law: {law.name}: out[{i}] off by {ratio:.4g} times all bounds together"
            raise Violation(Code.VALUE, title, path=f"law: {law.name}")
