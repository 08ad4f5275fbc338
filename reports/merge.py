"""Several records of one plan in, one record out: the shards of a run, or a run and its completion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..oracles.verdict import CHECKED, Code, Outcome, Verdict
from . import exit_codes
from .collect import OTHER_SHARD, worse
from .record import RecordError, Run


def merge(runs: Sequence[Run]) -> Run:
    """The union; where two records judged one cell, the worse verdict counts and a note says so.

    Raises:
        RecordError: no record, or records of different plans, commits, profiles or major versions.
    """
    if not runs:
        raise RecordError("merge: got no record, need at least one")
    first = runs[0]
    for name in ("plan_digest", "commit", "profile", "seed"):
        values = {getattr(run, name) for run in runs}
        if len(values) > 1:
            raise RecordError(f"merge: got different {name}: {', '.join(sorted(map(str, values)))}")
    if len({run.version.split(".")[0] for run in runs}) > 1:
        raise RecordError("merge: got records of different major versions")
    notes = [note for run in runs for note in run.notes]
    verdicts = tuple(_one(found, notes) for found in _by_cell(runs))
    reasons = exit_codes.run_reasons(verdicts)
    return replace(
        first,
        verdicts=verdicts,
        started=min(run.started for run in runs),
        seconds=sum(run.seconds for run in runs),
        dirty=any(run.dirty for run in runs),
        settings=first.settings | {"merged records": str(len(runs))},
        notes=tuple(notes),
        exit_code=exit_codes.choose(reasons),
        exit_reasons=tuple(text for _, text in reasons),
    )


def _by_cell(runs: Sequence[Run]) -> list[list[Verdict]]:
    found: dict[str, list[Verdict]] = {}
    for run in runs:
        for verdict in run.verdicts:
            found.setdefault(verdict.cell.key, []).append(verdict)
    return list(found.values())


def _one(found: Sequence[Verdict], notes: list[str]) -> Verdict:
    ran = [verdict for verdict in found if verdict.outcome is not Outcome.NOT_RUN]
    if not ran:
        here = [verdict for verdict in found if verdict.reason != OTHER_SHARD]
        lost = Verdict(found[0].cell, Outcome.NOT_RUN, Code.INTERRUPTED, "its shard is missing")
        return here[0] if here else lost
    if sum(verdict.outcome in CHECKED for verdict in ran) > 1:
        notes.append(f"{ran[0].cell.key}: {len(ran)} verdicts, the worst one counts")
    chosen = ran[0]
    for verdict in ran[1:]:
        chosen = worse(chosen, verdict)
    return chosen
