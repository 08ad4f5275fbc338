"""Two records in, what has changed between them out: failures that are new, fixed or worse, slower cells, other places.

It compares what the records say, and says only that: nothing is run, and a cell that one of them did not ask is told as
not asked, never as fixed.
"""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from ...oracles.verdicts.verdict import CHECKED, FAILED, HELD, Code, Outcome, Verdict
from ..baseline import size_of
from ..exit_codes import FAILED as EXIT_FAILED
from ..exit_codes import INCOMPLETE, NOTHING, OK, Reason
from ..gate import LEAST_EFFORT
from ..merge import QUESTION_SETTINGS
from ..record import Run
from ..text import by_key, number, replay_of, what_of


class Kind(enum.StrEnum):
    """What may have happened to a cell, in the order in which it is told."""

    NEW = "new"  # it fails now, and did not before, or failed in another way
    WORSE = "worse"  # a larger error, fewer elements judged, or held only weakly
    LOST = "lost"  # it was checked before, and is not now
    FIXED = "fixed"  # it failed, and holds now
    BETTER = "better"  # a smaller error, or checked for the first time
    SLOWER = "slower"  # it took longer than the other cells lead to expect


ABOUT: dict[Kind, str] = {
    Kind.NEW: "fails now; before, it did not fail, or failed in another way",
    Kind.WORSE: "a larger error than before, fewer elements judged, or held only weakly",
    Kind.LOST: "was checked before, and is not now",
    Kind.FIXED: "failed before, and holds now",
    Kind.BETTER: "a smaller error than before, or an answer where there was none",
    Kind.SLOWER: "took longer than the other cells of the same run lead to expect",
}


@dataclass(frozen=True)
class Limits:
    """How large a difference must be to be reported.

    Attributes:
        error: how many times as large the largest error/bound must have become.
        time: how many times as long a cell must have taken, beside what all cells together have changed.
        seconds: how much longer it must have taken besides, because the times of short cells vary by themselves.
    """

    error: float = 1.5
    time: float = 2.0
    seconds: float = 1.0


@dataclass(frozen=True)
class Change:
    """What has happened to one cell; it decides the exit code if its code is not 0."""

    kind: Kind
    cell: str
    text: str
    code: int = OK
    again: str = ""  # the command that judges the failure again, as it is now


@dataclass(frozen=True)
class Difference:
    """A setting, a version or a part of the machine that is not the same; empty where a record does not say."""

    name: str
    before: str
    now: str


@dataclass(frozen=True)
class OpTime:
    """Seconds that the cells of an op took which both runs checked."""

    op: str
    before: float
    now: float


@dataclass(frozen=True)
class Comparison:
    """All that differs.

    Attributes:
        both: cells that both records have. added, absent: cells of one of them alone, those among them that
            were left out by a selection included.
        other_inputs: what makes the two runs draw different inputs; empty if they asked the same.
        pace: how many times as long a typical cell took; NaN where too few took long enough to tell.
    """

    changes: tuple[Change, ...]
    differences: tuple[Difference, ...]
    times: tuple[OpTime, ...]
    both: int
    added: int
    absent: tuple[str, ...]
    other_inputs: tuple[str, ...]
    pace: float

    def of(self, kind: Kind) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.kind is kind)


def compare(before: Run, now: Run, limits: Limits | None = None) -> Comparison:
    """What has changed from one run to a later one, where that is as large as the limits ask, by default `Limits()`."""
    limits = limits or Limits()
    first = {verdict.cell.key: verdict for verdict in before.verdicts if _is_selected(verdict)}
    second = {verdict.cell.key: verdict for verdict in now.verdicts if _is_selected(verdict)}
    both = [key for key in second if key in first]
    unlike = _other_inputs(before, now)
    changes = [change for key in second for change in _changes(first.get(key), second[key], limits, same=not unlike)]
    timed = [(first[key], second[key]) for key in both if {first[key].outcome, second[key].outcome} <= CHECKED]
    pace = _pace(timed, limits)
    changes += _slower(timed, pace, limits)
    order = list(Kind)
    return Comparison(
        changes=tuple(sorted(changes, key=lambda change: (order.index(change.kind), change.code == OK))),
        differences=tuple(_differences(before, now)),
        times=tuple(_times(timed)),
        both=len(both),
        added=len(second) - len(both),
        absent=tuple(key for key in first if key not in second),
        other_inputs=unlike,
        pace=pace,
    )


def _is_selected(verdict: Verdict) -> bool:
    """Whether a cell was to be asked; one that a selection or another shard left out counts as not in the plan."""
    return not (verdict.outcome is Outcome.NOT_RUN and verdict.code is Code.DESELECTED)


def _changes(before: Verdict | None, now: Verdict, limits: Limits, *, same: bool) -> Iterator[Change]:
    """What has happened to a cell, which was not asked `before` if that is None; `same`: the inputs of both runs."""
    key = now.cell.key
    if now.outcome in FAILED:
        change = _failure_change(before, now, limits)
        if change is not None:
            yield Change(change.kind, key, change.text, change.code, replay_of(now))
    elif now.outcome in HELD:
        yield from _holding_changes(before, now, limits, same=same)
    elif before is not None and before.outcome in CHECKED:
        outside = now.outcome in (Outcome.UNSUPPORTED, Outcome.REFUSED)
        text = f"was {before.outcome}, is {now.outcome} {now.code}: {now.reason}"
        yield Change(Kind.LOST, key, text, EXIT_FAILED if outside else INCOMPLETE)


def _failure_change(before: Verdict | None, now: Verdict, limits: Limits) -> Change | None:
    key, what = now.cell.key, what_of(now)
    if before is None or before.outcome not in FAILED:
        was = "was not asked" if before is None else f"was {before.outcome}"
        return Change(Kind.NEW, key, f"{was}, is {now.outcome} {now.code}: {what}", EXIT_FAILED)
    if before.code is not now.code:
        text = f"failed with {before.code}, fails with {now.code}: {what}"
        return Change(Kind.NEW, key, text, EXIT_FAILED)
    grown = _growth(size_of(before), size_of(now), limits.error)
    if not grown:
        return None
    text = f"{now.code}, error/bound {_error(before)} -> {_error(now)}: {what}"
    return Change(Kind.WORSE, key, text, EXIT_FAILED) if grown > 0 else Change(Kind.BETTER, key, text)


def _holding_changes(before: Verdict | None, now: Verdict, limits: Limits, *, same: bool) -> Iterator[Change]:
    if before is None:
        return
    key = now.cell.key
    # A larger error inside the bound breaks no promise. It counts where both runs had the same inputs: of others, the
    # largest error that was found may differ by chance.
    code = EXIT_FAILED if same else OK
    if before.outcome in FAILED:
        yield Change(Kind.FIXED, key, f"was {before.outcome} {before.code}, is {now.outcome}: {what_of(before)}")
        return
    if before.outcome not in HELD:
        yield Change(Kind.BETTER, key, f"was {before.outcome}, is {now.outcome}")
        return
    if before.outcome is not now.outcome:
        weaker = now.outcome is Outcome.WEAK
        text = f"was {before.outcome}, is {now.outcome}: {now.reason}"
        yield Change(Kind.WORSE, key, text, code) if weaker else Change(Kind.BETTER, key, text)
    if same and now.measure.judged < LEAST_EFFORT * before.measure.judged:
        text = f"{now.measure.judged} elements judged, {before.measure.judged} before"
        yield Change(Kind.WORSE, key, text, EXIT_FAILED)
    grown = _growth(before.measure.max_ratio, now.measure.max_ratio, limits.error)
    if grown:
        text = f"inside the bound, error/bound {_error(before)} -> {_error(now)}"
        yield Change(Kind.WORSE, key, text, code) if grown > 0 else Change(Kind.BETTER, key, text)


def _growth(before: float | None, now: float | None, factor: float) -> int:
    """1 where a size has grown by more than a factor, -1 where it has shrunk so, else 0; 0 where one is no number."""
    if before is None or now is None or math.isnan(before) or math.isnan(now):
        return 0
    if now > factor * before:
        return 1
    return -1 if before > factor * now else 0


def _slower(timed: list[tuple[Verdict, Verdict]], pace: float, limits: Limits) -> Iterator[Change]:
    # On a machine that is slower as a whole every cell takes longer, and no cell is to blame for it.
    usual = max(1.0, pace) if not math.isnan(pace) else 1.0
    for before, now in timed:
        expected = usual * before.seconds
        if now.seconds > limits.time * expected and now.seconds - expected >= limits.seconds:
            yield Change(Kind.SLOWER, now.cell.key, f"{before.seconds:.2f} s -> {now.seconds:.2f} s")


def _pace(timed: list[tuple[Verdict, Verdict]], limits: Limits) -> float:
    """The median of now / before over cells that took long enough to be compared."""
    long_ones = [(one.seconds, two.seconds) for one, two in timed if one.seconds >= limits.seconds]
    return statistics.median(two / one for one, two in long_ones) if len(long_ones) >= 3 else math.nan


def _times(timed: list[tuple[Verdict, Verdict]]) -> Iterator[OpTime]:
    for op, pairs in by_key(timed, lambda pair: pair[1].cell.op).items():
        yield OpTime(op, sum(one.seconds for one, _ in pairs), sum(two.seconds for _, two in pairs))


def _other_inputs(before: Run, now: Run) -> tuple[str, ...]:
    """The names of what decides which inputs are drawn, where the records differ in it."""
    deciding = ("version", "profile", "seed", "max_examples")
    names = [name for name in deciding if getattr(before, name) != getattr(now, name)]
    # A campaign of several seeds or a world of other ranks asks other questions with the same head.
    names += [
        name for name in QUESTION_SETTINGS if before.settings.get(name) != now.settings.get(name) and name != "keyword"
    ]
    if before.environment.get("hypothesis") != now.environment.get("hypothesis"):
        names.append("hypothesis")
    return tuple(names)


def _differences(before: Run, now: Run) -> Iterator[Difference]:
    tables = [(_head_of(before), _head_of(now)), (before.settings, now.settings), (before.environment, now.environment)]
    earlier: set[str] = set()
    for one, two in tables:
        # The version of opassay stands in the head and in the environment; it is told once.
        for name in [name for name in dict.fromkeys((*one, *two)) if name not in earlier]:
            earlier.add(name)
            if one.get(name, "") != two.get(name, ""):
                yield Difference(name, one.get(name, ""), two.get(name, ""))


def _head_of(run: Run) -> dict[str, str]:
    """What a run was asked for, beside its settings."""
    commit = run.commit[:12] + (" and changes" if run.dirty else "") if run.commit else ""
    most = "" if run.max_examples is None else str(run.max_examples)
    return {"opassay": run.version, "commit": commit, "profile": run.profile, "seed": str(run.seed)} | (
        {"max examples": most} if most else {}
    )


def _error(verdict: Verdict) -> str:
    return number(verdict.measure.max_ratio, 4)


def exit_reasons(comparison: Comparison, *, partial: bool = False) -> list[Reason]:
    """Why the later run is not as good as the earlier one, each reason with its exit code.

    Of a `partial` later run, one of a selection, cells that it did not ask are no loss.
    """
    reasons = [(change.code, f"{change.kind}: {change.cell}") for change in comparison.changes if change.code]
    if comparison.absent and not partial:
        count, first = len(comparison.absent), comparison.absent[0]
        reasons.append((INCOMPLETE, f"{count} cells were not asked, among them {first}; see --partial"))
    if not comparison.both:
        reasons.append((NOTHING, "the records have no cell in common"))
    return reasons
