"""Several records of one plan in, one record out: the shards of a run, or a run and its completion.

Records that were asked different questions, or asked in places whose answers may differ, are refused:
the merged record could name only one of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from ..oracles.verdicts.verdict import CHECKED, Code, Outcome, Verdict
from . import exit_codes
from .collect import OTHER_SHARD, worse
from .exit_codes import Reason
from .record import RecordError, Run
from .text import by_key, one_line

#: Entries of the environment that decide verdicts. A difference in any other entry becomes a note.
DECISIVE = ("torch", "numpy", "mpmath", "hypothesis", "gpu", "gpu capability", "gpu count", "cuda", "cudnn")
#: Settings that decide which questions were asked.
QUESTION_SETTINGS = ("several places", "keyword", "seeds")
LOST = "its shard is missing"
MISSING = "missing shards"

_SHARD = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})")
_FRAMEWORK = (exit_codes.INTERNAL, exit_codes.USAGE)


class MissingShards(RecordError):
    """Parts of the run are not among the records; the text names them."""


def merge(runs: Sequence[Run], *, partial: bool = False) -> Run:
    """The union; where two records judged one cell, the worse verdict counts and a note says so.

    Args:
        runs: records of one plan, in any order.
        partial: merge although shards are missing; their cells are not run, and the exit code is at best 4.

    Raises:
        RecordError: no record, or records that differ in what was asked or where it was answered.
        MissingShards: not all shards are there, and not `partial`.
    """
    if not runs:
        raise RecordError("merge: got no record, need at least one")
    first = runs[0]
    _require_alike(runs)
    missing = _missing(runs)
    if missing and not partial:
        raise MissingShards(
            f"merge: missing shards {_list_shards(missing)}; nothing was written. Give their records too, or --partial"
            " to merge what there is; the exit code stays 4"
        )
    notes = [*(note for run in runs for note in run.notes), *_differences(runs)]
    judged = by_key((verdict for run in runs for verdict in run.verdicts), lambda verdict: verdict.cell.key)
    verdicts = tuple(_merge_verdicts(group, notes) for group in judged.values())
    # The exit code is decided anew. A shard's own code may be 5 although the whole checked many cells, or 0 because its
    # command forgave failures with --exit-zero.
    reasons = [*_reasons(runs, missing), *exit_codes.run_reasons(verdicts)]
    # The whole is no shard. A gate refuses a record whose settings name one of several, so that entry is not taken
    # over.
    whole_settings = {name: value for name, value in first.settings.items() if name not in ("shard", MISSING)}
    settings = (
        whole_settings | {"merged records": str(len(runs))} | ({MISSING: _list_shards(missing)} if missing else {})
    )
    return replace(
        first,
        verdicts=verdicts,
        started=min(run.started for run in runs),
        # The sum is what the run has cost; the shards may have run at the same time or one after the other.
        seconds=sum(run.seconds for run in runs),
        dirty=any(run.dirty for run in runs),
        environment=next((run.environment for run in runs if _ran(run)), first.environment),
        settings=settings,
        notes=tuple(notes),
        exit_code=exit_codes.most_urgent(reasons),
        exit_reasons=tuple(text for _, text in reasons),
    )


def shard_of(run: Run) -> tuple[int, int] | None:
    """(I, N) of a record of part I of N; None of a whole one.

    Raises:
        RecordError: the record names its shard in another way.
    """
    text = run.settings.get("shard")
    if text is None:
        return None
    match = _SHARD.fullmatch(text)
    if match is None or int(match[1]) > int(match[2]):
        raise RecordError(f"run record: got shard={one_line(text, 50)!r}, need I/N with 1 <= I <= N")
    return int(match[1]), int(match[2])


def _require_alike(runs: Sequence[Run]) -> None:
    # The merged record has one value of each. If the parts differed in it, a failure that is replayed by what the
    # record says could be asked another question.
    for name in ("version", "commit", "profile", "seed", "max_examples"):
        _require_one(name, [str(getattr(run, name)) for run in runs])
    for name in QUESTION_SETTINGS:
        _require_one(name, [run.settings.get(name, "none") for run in runs])
    _require_one("plan_digest", [run.plan_digest for run in runs])
    ran = [run for run in runs if _ran(run)]  # a run in which no cell began may not know where it was
    for name in DECISIVE:
        _require_one(name, [run.environment.get(name, "none") for run in ran])
    _require_one(
        "python minor version", [".".join(run.environment.get("python", "none").split(".")[:2]) for run in ran]
    )
    _require_one("platform", [_platform(run) for run in ran])
    _require_one("number of shards", [str(shard[1]) for shard in map(shard_of, runs) if shard is not None])


def _ran(run: Run) -> bool:
    return any(verdict.outcome is not Outcome.NOT_RUN for verdict in run.verdicts)


def _require_one(name: str, values: Sequence[str]) -> None:
    distinct = list(dict.fromkeys(values))
    if len(distinct) < 2:
        return
    text = f"merge: got records of different {name}: {one_line(distinct[0], 100)!r} and {one_line(distinct[1], 100)!r}"
    if name == "seed":
        text += "; the profiles dev and nightly draw a seed per shard: give all shards the same --seed"
    raise RecordError(text)


def _platform(run: Run) -> str:
    """System and machine, `Linux x86_64`, of `Linux 6.1.0 x86_64`: the kernel's version decides nothing."""
    words = run.environment.get("platform", "").split()
    return f"{words[0]} {words[-1]}" if words else "none"


def _differences(runs: Sequence[Run]) -> list[str]:
    """Notes on what may differ: cpu, kernel, libc and the like."""
    notes = []
    for name in dict.fromkeys(name for run in runs for name in run.environment):
        values = list(dict.fromkeys(run.environment[name] for run in runs if name in run.environment))
        if len(values) > 1:
            notes.append(f"merged records differ in {name}: {', '.join(one_line(value, 60) for value in values[:4])}")
    return notes


def _missing(runs: Sequence[Run]) -> list[tuple[int, int]]:
    shards = [shard_of(run) for run in runs]
    present = {shard for shard in shards if shard is not None}
    if len(shards) != sum(shard is not None for shard in shards):  # a record of the whole plan completes any other
        return []
    number = next(iter(present))[1]
    return [(i, number) for i in range(1, number + 1) if (i, number) not in present]


def _list_shards(shards: Sequence[tuple[int, int]]) -> str:
    text = ", ".join(f"{i}/{n}" for i, n in shards[:8])
    return text if len(shards) <= 8 else f"{text} and {len(shards) - 8} more"


def _reasons(runs: Sequence[Run], missing: Sequence[tuple[int, int]]) -> list[Reason]:
    """The reasons that no verdict shows: shards that are not there, and a run that the framework itself broke."""
    reasons: list[Reason] = [(exit_codes.INCOMPLETE, f"missing shards {_list_shards(missing)}")] if missing else []
    for run in runs:
        if run.exit_code in _FRAMEWORK and not any(verdict.outcome is Outcome.ERROR for verdict in run.verdicts):
            text = "; ".join(run.exit_reasons[:3])
            reasons.append((run.exit_code, f"a merged run ended with {run.exit_code}: {one_line(text, 300)}"))
    return reasons


def _merge_verdicts(verdicts: Sequence[Verdict], notes: list[str]) -> Verdict:
    ran = [verdict for verdict in verdicts if verdict.outcome is not Outcome.NOT_RUN]
    if not ran:
        # Each shard says of the cells of the others that they are in another shard. If all records say so, the shard
        # that has the cell is missing; any other reason, such as -k, is the one to tell.
        here = [verdict for verdict in verdicts if verdict.reason != OTHER_SHARD]
        lost = Verdict(verdicts[0].cell, Outcome.NOT_RUN, Code.INTERRUPTED, LOST)
        return here[0] if here else lost
    if sum(verdict.outcome in CHECKED for verdict in ran) > 1:
        notes.append(f"{ran[0].cell.key}: {len(ran)} verdicts, the worst one counts")
    return reduce(worse, ran)
