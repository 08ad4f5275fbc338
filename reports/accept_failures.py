"""Accepting failures of a run into known.json: with reason, issue, owner, expiry, and their code and size as limits."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import Literal

from ..oracles.verdicts.verdict import FAILED, Outcome, Verdict
from .baseline import Known, KnownEntry, round_up, size_of
from .gate import LONGEST_EXPIRY
from .record import Run
from .text import clean, number

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
    if size is None:
        return None
    if math.isinf(size):
        return "inf"
    # Rounded upwards, one of the largest doubles becomes infinite. JSON has no number for
    # that, so a word stands for it.
    rounded = round_up(size)
    return "inf" if math.isinf(rounded) else rounded
