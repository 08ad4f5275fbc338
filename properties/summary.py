"""Verdicts as a text table, and whether they hold. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..oracles.verdicts.verdict import HELD, Outcome, Verdict, failure_text

#: Outcomes that do not speak against what was judged.
_FINE = HELD | {Outcome.UNSUPPORTED, Outcome.NOT_RUN}


def ok(verdicts: Iterable[Verdict]) -> bool:
    """Whether none of the verdicts is a failure, an error or a crash, and one at least is "verified".

    What was not asked, because it does not apply or is not offered, speaks against nothing; nor does "weak".
    """
    found = [verdict.outcome for verdict in verdicts]
    return Outcome.VERIFIED in found and all(outcome in _FINE for outcome in found)


def table(verdicts: Sequence[Verdict]) -> str:
    """A line for every verdict: what was asked, the outcome, the largest error as a share of its bound, and why."""
    rows = [("property", "dtype", "outcome", "error/bound", "")]
    for verdict in verdicts:
        cell, measure = verdict.cell, verdict.measure
        ratio = f"{measure.max_ratio:.3g}" if measure.judged else ""
        rows.append((cell.property, cell.dtype, str(verdict.outcome), ratio, verdict.reason))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = ["  ".join([*(text.ljust(w) for text, w in zip(row, widths, strict=False)), row[4]]) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def cards(verdicts: Iterable[Verdict]) -> str:
    """One card for each verdict that does not hold: the cell, the outcome, what is wrong and where."""
    return "\n\n".join(failure_text(_without_case(v)) for v in verdicts if v.outcome not in _FINE)


def _without_case(verdict: Verdict) -> Verdict:
    """A verdict that names no case file: none is written where there is no report."""
    failure = verdict.failure
    return verdict if failure is None else replace(verdict, failure=replace(failure, case_id=""))
