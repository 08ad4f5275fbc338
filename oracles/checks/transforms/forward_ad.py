"""FWAD: forward AD of an op that torch ships, with whatever decompositions this process has for it."""

from __future__ import annotations

from ...judgement import Judgement
from ...op import Sample
from ..purity import primal_with_tangents
from .values import tangent


def forward_ad(j: Judgement, sample: Sample) -> None:
    """FWAD: tangents in their accept sets; values, dtypes and missing outputs as without a tangent.

    A sample that torch's op refuses even without a tangent is not judged: no decomposition makes it accept more.
    """
    try:
        j.subject(*sample.args)
    except (RuntimeError, TypeError, ValueError):
        j.not_judged += 1
        return
    primal_with_tangents(j, sample)
    tangent(j, sample)
