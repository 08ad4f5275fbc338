"""Verdicts as a text table, and whether all of them hold. This module imports the standard library alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..oracles.verdicts.verdict import HELD, Code, Outcome, Verdict, failure_text

#: Outcomes that are no evidence against the implementation.
_FINE = HELD | {Outcome.UNSUPPORTED, Outcome.NOT_RUN}


def ok(verdicts: Verdict | Iterable[Verdict]) -> bool:
    """Whether none of the verdicts is a failure, an error or a crash, and one at least is "verified".

    A question that was not asked, because it does not apply or the op does not offer it, is no failure; nor is "weak".
    One that there is not, or of a subject that there is not, is none that was asked.
    """
    each = [verdicts] if isinstance(verdicts, Verdict) else list(verdicts)
    return any(verdict.outcome == Outcome.VERIFIED for verdict in each) and all(map(is_fine, each))


def is_fine(verdict: Verdict) -> bool:
    """Whether a verdict is no evidence against the implementation, and answers a question that there is."""
    return verdict.outcome in _FINE and verdict.code not in (Code.NOT_BUILT, Code.NO_SUBJECT)


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
    return "\n\n".join(failure_text(_without_case(v)) for v in verdicts if not is_fine(v))


def _without_case(verdict: Verdict) -> Verdict:
    """The verdict without the name of its case file, because no case file is written where there is no report."""
    failure = verdict.failure
    return verdict if failure is None else replace(verdict, failure=replace(failure, case_id=""))
