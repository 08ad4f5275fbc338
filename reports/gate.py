"""The gate: a run, the known failures and the budgets in; findings and an exit code out; and the accepting of failures.

Pure: the same run and the same files give the same answer, on any machine and at any time, for the
date that entries expire against is the date of the run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Literal

from ..oracles.verdicts.verdict import CHECKED, FAILED, HELD, Code, Outcome, Verdict
from . import exit_codes
from .baseline import (
    Budget,
    BudgetEntry,
    Known,
    KnownEntry,
    can_have_budget,
    device_class,
    round_up,
    size_of,
    why_not_covered,
)
from .merge import shard_of
from .record import Run
from .text import clean, number, one_line, replay_of, what_of

# An entry whose end is far away turns an accepted failure into a permanent one that nobody looks at again.
LONGEST_EXPIRY = timedelta(days=180)
#: Judged elements may vary from run to run; fewer than this share of the budgeted count is a loss.
LEAST_EFFORT = 0.5


@dataclass(frozen=True)
class GateFinding:
    """One thing the gate has to say about a cell; blocking if its exit code is not 0."""

    kind: str
    cell: str
    text: str
    code: int = exit_codes.OK


@dataclass(frozen=True)
class Files:
    """What the repository holds; None: the repository has no such file."""

    known: Known = field(default_factory=dict)
    budget: Budget | None = None
    base: Budget | None = None  # the budget file of the base branch


def find_regressions(run: Run, files: Files, *, partial: bool = False) -> list[GateFinding]:
    """All findings, blocking ones first; of a `partial` run, one of a selection, cells that it lacks are no loss."""
    verdicts = {verdict.cell.key: verdict for verdict in run.verdicts}
    findings = [
        *_of_the_run(run, partial),
        *_verdicts(run, files.known),
        *_known_findings(run, files.known, verdicts, partial),
        *(_budgets(run, files, files.budget, verdicts, partial) if files.budget is not None else ()),
        *_raises(files),
    ]
    # A gate that is open because nothing was asked would guard nothing, and nobody would notice.
    if not any(verdict.outcome in CHECKED for verdict in run.verdicts):
        findings.append(GateFinding("nothing", "", "no cell was checked", exit_codes.NOTHING))
    # Exit code 130 would tell a shell that this command was interrupted. It was the run, so
    # the gate calls it incomplete.
    if run.exit_code == exit_codes.INTERRUPT:
        findings.append(GateFinding("interrupted", "", "the run was interrupted", exit_codes.INCOMPLETE))
    return sorted(findings, key=lambda finding: (finding.code == exit_codes.OK, finding.kind, finding.cell))


def exit_code(findings: Iterable[GateFinding], *, exit_zero: bool = False, allow_incomplete: bool = False) -> int:
    reasons = [(finding.code, finding.text) for finding in findings if finding.code]
    return exit_codes.most_urgent(reasons, exit_zero=exit_zero, allow_incomplete=allow_incomplete)


def finding_line(finding: GateFinding) -> str:
    sign = "✕" if finding.code else "·"
    return one_line(f"{sign} {finding.kind:<9} {finding.cell}  {finding.text}", 1200)


def _of_the_run(run: Run, partial: bool) -> Iterator[GateFinding]:
    """What is not in the record although it was planned, and a run that the framework itself broke."""
    if is_shard(run):
        text = f"the record is of shard {run.settings['shard']} alone; merge all shards first"
        yield GateFinding("incomplete", "", text, exit_codes.INCOMPLETE)
    keys = [v.cell.key for v in run.verdicts if v.outcome is Outcome.NOT_RUN and v.code is Code.DESELECTED]
    if keys and not partial:
        text = f"{len(keys)} planned cells were deselected, among them {keys[0]}; is that meant? see --partial"
        yield GateFinding("incomplete", "", text, exit_codes.INCOMPLETE)
    # Where a verdict is an error, `_verdicts` tells it together with its cell. Only a fault that left no such verdict,
    # such as a worker that cannot start, has to be told here.
    broken = run.exit_code in (exit_codes.INTERNAL, exit_codes.USAGE)
    if broken and not any(verdict.outcome is Outcome.ERROR for verdict in run.verdicts):
        text = f"the run itself ended with {run.exit_code}: {'; '.join(run.exit_reasons[:3])}"
        yield GateFinding("error", "", text, run.exit_code)


def is_shard(run: Run) -> bool:
    """Whether the record is of one part of several: it says nothing of the other cells."""
    shard = shard_of(run)
    return shard is not None and shard[1] > 1


def _verdicts(run: Run, known: Known) -> Iterator[GateFinding]:
    today = _day(run)
    for verdict in run.verdicts:
        key = verdict.cell.key
        listed = known.get(key)
        if verdict.outcome in FAILED:
            changed = "" if listed is None else why_not_covered(listed, verdict)
            if listed is not None and listed.expires >= today and not changed:
                yield GateFinding("known", key, f"{listed.reason} ({listed.issue})")
            else:
                yield GateFinding(
                    "new", key, f"{changed}; {_failure_finding(verdict)}".removeprefix("; "), exit_codes.FAILED
                )
        elif verdict.outcome is Outcome.ERROR:
            code = exit_codes.USAGE if exit_codes.is_declared_wrong(verdict) else exit_codes.INTERNAL
            yield GateFinding("error", key, verdict.reason, code)
        elif exit_codes.is_incomplete(verdict):
            yield GateFinding("incomplete", key, f"{verdict.outcome}: {verdict.reason}", exit_codes.INCOMPLETE)


def _known_findings(run: Run, known: Known, verdicts: dict[str, Verdict], partial: bool) -> Iterator[GateFinding]:
    today = _day(run)
    for key, entry in sorted(known.items()):
        holds = key in verdicts and verdicts[key].outcome in HELD
        if entry.expires < today and not holds:
            yield GateFinding("expired", key, f"the entry expired on {entry.expires}", exit_codes.FAILED)
        elif entry.expires > today + LONGEST_EXPIRY:
            text = f"expires on {entry.expires}, more than {LONGEST_EXPIRY.days} days after the run"
            yield GateFinding("expiry", key, text, exit_codes.FAILED)
        # An entry of a cell that was renamed or removed can neither heal nor fail. If nobody were told, such
        # entries would collect in the file.
        if key not in verdicts:
            if not partial:
                yield GateFinding("unknown", key, "known.json lists a cell that the plan lacks", exit_codes.FAILED)
        elif holds:
            strict = run.profile == "commit"  # its inputs are the same every time
            text = "listed as a known failure, but holds; run `opassay gate prune`"
            yield GateFinding("healed", key, text, exit_codes.FAILED if strict else exit_codes.OK)


def _budgets(
    run: Run, files: Files, budget: Budget, verdicts: dict[str, Verdict], partial: bool
) -> Iterator[GateFinding]:
    """Cells beyond their budget, cells without one, and cells that have left the plan.

    Args:
        run: the record. files: those of the repository, for known failures. budget: the budgets among them.
        verdicts: those of the run, by key of their cell.
        partial: whether the run was of a selection, so that a cell it does not plan is no loss.
    """
    classes = {device_class(verdict.cell, run.environment) for verdict in run.verdicts}
    for verdict in run.verdicts:
        entry = budget.get((verdict.cell.key, device_class(verdict.cell, run.environment)))
        if entry is not None:
            yield from _against(run, verdict, entry, files.known)
        elif can_have_budget(verdict):
            text = "no entry in budget.json; run `opassay gate update`"
            yield GateFinding("missing", verdict.cell.key, text, exit_codes.FAILED)
    # A budget is kept per class of device. Entries of a class that this run did not use are of another machine's run.
    for (key, where), _ in sorted(budget.items()):
        # A known failure is left out here, because `_known_findings` says already that the plan lacks it.
        if key not in verdicts and where in classes and not partial and key not in files.known:
            yield GateFinding("coverage", key, "no longer in the plan", exit_codes.FAILED)


def _against(run: Run, verdict: Verdict, entry: BudgetEntry, known: Known) -> Iterator[GateFinding]:
    key, measure = verdict.cell.key, verdict.measure
    # Only the same profile and seed draw the same inputs. With other inputs a larger error is no sign of a worse
    # kernel, so it is told and blocks nothing.
    same = (run.profile, run.seed) == (entry.profile, entry.seed)
    accepted = key in known and not why_not_covered(known[key], verdict)
    if verdict.outcome not in CHECKED:
        if not accepted:
            text = f"was checked, is now {verdict.outcome}: {verdict.reason}"
            yield GateFinding("coverage", key, text, exit_codes.FAILED)
        return
    if not can_have_budget(verdict):
        if verdict.outcome in HELD:
            text = f"held, but its error/bound is {number(measure.max_ratio)}: nothing to compare with the budget"
            yield GateFinding("coverage", key, text, exit_codes.FAILED)
        return
    if measure.judged < LEAST_EFFORT * entry.judged and not accepted:
        text = f"{measure.judged} elements judged, {entry.judged} before"
        yield GateFinding("coverage", key, text, exit_codes.FAILED if same else exit_codes.OK)
    if measure.max_ratio > entry.budget:
        text = f"error/bound {number(measure.max_ratio, 4)}, budget {number(entry.budget, 4)}"
        if not same:
            text += "; other inputs than the budget's, and inside the bound"
        yield GateFinding("budget", key, text, exit_codes.FAILED if same else exit_codes.OK)
    # Only an improvement by half is told. A hint at each small one would come in nearly every
    # run, and then nobody reads it.
    elif measure.max_ratio < 0.5 * entry.budget and same:
        text = f"error/bound {number(measure.max_ratio)}, budget {number(entry.budget)}; run `opassay gate update`"
        yield GateFinding("improved", key, text)


def _raises(files: Files) -> Iterator[GateFinding]:
    if files.base is None or files.budget is None:
        return
    for key, entry in sorted(files.budget.items()):
        before = files.base.get(key)
        # The reason of an earlier raise stays in the entry. It must differ from the one on the base branch, or one
        # reason would excuse every raise that follows.
        explained = entry.raised and before is not None and entry.raised != before.raised
        if before is not None and entry.budget > before.budget and not explained:
            text = f"budget raised from {before.budget:g} to {entry.budget:g} without a reason"
            yield GateFinding("raise", key[0], text, exit_codes.FAILED)


def _failure_finding(verdict: Verdict) -> str:
    again = f"; {replay_of(verdict)}" if replay_of(verdict) else ""
    return f"{verdict.outcome}: {what_of(verdict)}{again}"


def _day(run: Run) -> date:
    return date.fromisoformat(run.started[:10])


# The limit of these fields in `known.json`: a longer text would be written, and then no command could read the file.
_MOST_TEXT = 2000


def accept(
    run: Run, known: Known, cells: Iterable[str], *, reason: str, issue: str, owner: str, expires: date
) -> tuple[Known, list[str]]:
    """The known failures after a run, and the changes in words.

    Args:
        run: its failures are accepted, each for its code and no larger than it is.
        known: before; an entry of a cell that is accepted again is replaced.
        cells: keys, or patterns in which `*` stands for any characters; a pattern takes failures only, a key also
            a cell that is refused or unsupported now, whose loss of coverage is accepted then.
        reason: why the failure is accepted.
        issue: where it is tracked.
        owner: who sees to it.
        expires: the last day on which the entry holds.

    Raises:
        ValueError: what the gate would refuse: an empty text, an expiry before the run or too far off, a pattern
            that no failure matches, a cell that did not fail.
    """
    texts = {"reason": reason, "issue": issue, "owner": owner}
    for name, text in texts.items():
        if not clean(text).strip() or len(text) > _MOST_TEXT:
            raise ValueError(f"gate accept: got --{name}={text[:50]!r}, need 1 to {_MOST_TEXT} characters")
    _check_expiry(run, expires)
    after, changes = dict(known), []
    for verdict in _choose_verdicts(run.verdicts, cells):
        key = verdict.cell.key
        # The gate prints these texts in every run from now on, so control characters must not get into the file.
        words = {name: clean(text).strip() for name, text in texts.items()}
        entry = KnownEntry(key, verdict.code, _round_size(size_of(verdict)), expires=expires, **words)
        size = "" if entry.at_most is None else f", at most {number(float(entry.at_most), 4)} times its bound"
        changes.append(f"{key}: {'replaced' if key in after else 'accepted'}, {entry.code}{size}")
        after[key] = entry
    return after, changes


def _check_expiry(run: Run, expires: date) -> None:
    # The gate counts from the day of the run, so this does too. Counted from today, the entry for an old record could
    # expire later than the gate admits.
    today = date.fromisoformat(run.started[:10])
    if not today <= expires <= today + LONGEST_EXPIRY:
        last = today + timedelta(days=LONGEST_EXPIRY.days)
        raise ValueError(f"gate accept: got --expires={expires}, need a day from {today}, that of the run, to {last}")


def _choose_verdicts(verdicts: Sequence[Verdict], cells: Iterable[str]) -> list[Verdict]:
    by_key = {verdict.cell.key: verdict for verdict in verdicts}
    selection: dict[str, Verdict] = {}
    for name in cells:
        if name in by_key:
            verdict = by_key[name]
            if verdict.outcome not in (*FAILED, Outcome.REFUSED, Outcome.UNSUPPORTED):
                raise ValueError(f"gate accept: {name} is {verdict.outcome}, need a cell that failed")
            selection[name] = verdict
            continue
        # Only `*` is special, and several in a row count as one: `.*.*.*` would try every way to share a long key.
        pattern = re.compile(".*?".join(map(re.escape, re.split(r"\*+", name))), re.DOTALL)
        failed = {k: v for k, v in by_key.items() if v.outcome in FAILED and pattern.fullmatch(k)}
        if not failed:
            text = "no failure of the run matches" if "*" in name else "the run has no such cell"
            raise ValueError(f"gate accept: got CELL={name[:200]!r}, but {text}")
        selection |= failed
    return list(selection.values())


def _round_size(size: float | None) -> float | Literal["inf"] | None:
    """Four significant digits, upwards: the same run must pass the gate with its own entry."""
    rounded = None if size is None else round_up(size)
    # Rounded upwards, one of the largest doubles becomes infinite, too. JSON has no number for that.
    return "inf" if rounded == math.inf else rounded
