"""FWAD: forward AD of an op of torch, with the decompositions that this process has installed for the op."""

from __future__ import annotations

from ....oracles.judge.judge import Judge
from ....oracles.op.declaration import Sample
from ..purity import check_primal_with_tangents
from .values import check_jvp

#: The note of a cell where torch's own op refuses samples.
REFUSED = "torch's op refuses some samples without a tangent, too; of these nothing was asked"


def check_forward_ad(judge: Judge, sample: Sample) -> None:
    """FWAD: tangents in their accept sets; values, dtypes and missing outputs as without a tangent.

    A sample that torch's op refuses even without a tangent is not judged: no decomposition makes it accept more.
    """
    try:
        judge.subject(*sample.args)
    except (RuntimeError, TypeError, ValueError):
        if REFUSED not in judge.tally.notes:
            judge.tally.note(REFUSED)
        return
    check_primal_with_tangents(judge, sample)
    check_jvp(judge, sample)
