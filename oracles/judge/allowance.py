"""What a declaration would have to allow so that a failing output was accepted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...reference.algorithms import names_of
from ..bound.contract import EXP2
from ..op.declaration import Tensor
from ..op.paths import Path
from ..verdicts.violation import Outlier
from .holding import OperandFacts, hold


def allowance(judge: Any, path: Path, computed: Sequence[Tensor], worst: Outlier) -> str:
    """A sentence that names an allowance under which a path's outputs would be accepted; "" if there is none."""
    arithmetic = path.problem.op.promises.arithmetic
    wider = {
        f"algorithms={{{name!r}}}": path.problem.op.changed(algorithms=arithmetic.algorithms | {name})
        for name in (*names_of(judge.op.reference), EXP2)
        if name not in arithmetic.algorithms
    }
    if not arithmetic.flush:
        wider["flush=True"] = path.problem.op.changed(flush=True)
    for what, op in wider.items():
        expected = path.with_op(op).expected()
        facts = OperandFacts.FINITE if expected.finite else OperandFacts.UNKNOWN
        readings = judge.of(op).read(expected, computed)
        standings = [hold("", y, ball, facts) for y, ball in zip(computed, readings, strict=True)]
        # Under a wider bound the element may no longer be judged, which does not mean that it is accepted.
        elements = standings[worst.number].in_sets
        if elements is not None and elements.judged[worst.index] and not any(each.is_outside for each in standings):
            return f"it would be accepted if the declaration allowed {what}"
    return ""
