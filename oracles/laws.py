"""LAW: metamorphic relations, bit for bit where the declaration says exact, else within the sum of both bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..reference.formats import FORMATS, ulp_array
from .judgement import Judgement, Unsupported, Violation
from .op import Law, Sample, Tensor, dtype_name, flat_outputs, to_array
from .purity import require_same
from .rounding import balls
from .transforms import Problem
from .verdict import Code


def laws(j: Judgement, sample: Sample) -> None:
    """LAW: every declared relation, on finite results."""
    if not j.op.laws:
        raise Unsupported(Code.NOT_APPLICABLE, f"{j.op.name} declares no laws")
    for i, law in enumerate(j.op.laws):
        args = law.transform(sample.args, np.random.default_rng([sample.seed, 17, i]))
        if args is None:
            continue
        first = flat_outputs(j.call(j.subject, *sample.args, what=law.name))
        second = flat_outputs(j.call(j.subject, *args, what=law.name))
        expected = flat_outputs(law.relate(first))
        if not all(bool(torch.isfinite(y).all()) for y in expected):
            j.not_judged += sum(y.numel() for y in expected)
        elif law.exact:
            # +0 and −0 are one number: a law between values does not tell them apart.
            require_same(j, [y + 0.0 for y in second], [y + 0.0 for y in expected], f"law: {law.name}")
        else:
            _within_bounds(j, law, sample.args, args, first, second)


def _half_widths(j: Judgement, args: Sequence[Any], outputs: Sequence[Tensor]) -> list[Any]:
    """Half-width of the accept set of every output element of a call, from the rounding reading."""
    problem = Problem(j.op, args)
    with j.clock("reference"):
        read = balls(problem.formula((), len(outputs)), problem.arrays(), j.terms_of(0))
    widths = []
    for ball, y in zip(read, outputs, strict=True):
        radius = np.asarray(ball.radii(), dtype=np.float64)
        size = np.abs(np.asarray(ball.centre, dtype=np.float64)) + radius
        widths.append(radius + 0.5 * ulp_array(FORMATS[dtype_name(y.dtype)], size))
    return widths


def _within_bounds(
    j: Judgement, law: Law, before: Sequence[Any], after: Sequence[Any], first: Sequence[Any], second: Sequence[Any]
) -> None:
    """|second − relate(first)| at most the bound of `second`, and what `relate` makes of the bound of `first`."""
    wide = tuple(y.double() for y in first)
    shifted = [tuple(y + s * torch.from_numpy(w) for y, w in zip(wide, _half_widths(j, before, first), strict=True))
               for s in (-1.0, 1.0)]  # fmt: skip
    middle, low, high = (flat_outputs(law.relate(ys)) for ys in (wide, *shifted))
    own = _half_widths(j, after, second)
    for i, (y, m, a, b, width) in enumerate(zip(second, middle, low, high, own, strict=True)):
        moved = np.maximum(np.abs(to_array(a) - to_array(m)), np.abs(to_array(b) - to_array(m)))
        bound, error = width + moved, np.abs(to_array(y) - to_array(m))
        judged = np.isfinite(bound)
        j.judged += int(judged.sum())
        j.not_judged += int((~judged).sum())
        ratio = float(np.max(np.where(judged, error / bound, 0.0), initial=0.0))
        j.max_ratio = max(j.max_ratio, min(ratio, 1.0))
        if ratio > 1:
            title = f"{j.op.name} law: {law.name}: out[{i}] off by {ratio:.4g} times both bounds"
            raise Violation(Code.VALUE, title, path=f"law: {law.name}")
