"""How a run ends: one exit code for the shell, all reasons for the record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..oracles.verdicts.verdict import CHECKED, Code, Outcome, Verdict

OK = 0
FAILED = 1  # a verdict is fail or unstable; for a gate: a budget exceeded, coverage lost
USAGE = 2  # an unknown name, a broken file, a plugin that does not load, a wrong declaration of an op
INTERNAL = 3  # the framework itself broke
INCOMPLETE = 4  # crash, timeout, missing device or shard, interrupted before the end
NOTHING = 5  # nothing selected, or nothing that was selected could be checked
INTERRUPT = 130  # Ctrl-C

#: The first of these that has a reason is the exit code.
#: An interrupt comes first, because after it nothing that is known is complete. A fault of the framework or of a
#: declaration comes before a failed cell, because verdicts of a judge that is broken cannot be trusted.
PRIORITY: tuple[int, ...] = (INTERRUPT, INTERNAL, USAGE, FAILED, INCOMPLETE, NOTHING)

#: verdict -> exit code. A suspect and a weak verdict are incomplete: nothing is wrong, and too little is known.
OF_JUDGEMENTS = {"accepted": OK, "rejected": FAILED, "suspect": INCOMPLETE, "weak": INCOMPLETE, "error": INTERNAL}

Reason = tuple[int, str]

# Other cells that were not run are no loss: somebody deselected them, or no check of them exists yet.
_LOST = frozenset({Code.NO_DEVICE, Code.INTERRUPTED, Code.RETIRED})


def is_incomplete(verdict: Verdict) -> bool:
    """Whether the plan required the cell and nothing was learnt; a deselected cell, or one without a check, is none."""
    if verdict.outcome is Outcome.NOT_RUN:
        return verdict.code in _LOST
    return verdict.outcome in (Outcome.CRASH, Outcome.TIMEOUT)


def run_reasons(verdicts: Sequence[Verdict]) -> list[Reason]:
    """Why these verdicts are not a success; empty if they are."""
    reasons = [
        *_reason_of(FAILED, "failed", [v for v in verdicts if v.outcome is Outcome.FAIL]),
        *_reason_of(FAILED, "unstable", [v for v in verdicts if v.outcome is Outcome.UNSTABLE]),
        *_reason_of(USAGE, "wrong declaration", [v for v in verdicts if is_declared_wrong(v)]),
        *_reason_of(
            INTERNAL, "error", [v for v in verdicts if v.outcome is Outcome.ERROR and not is_declared_wrong(v)]
        ),
        *_reason_of(INCOMPLETE, "incomplete", [v for v in verdicts if is_incomplete(v)]),
    ]
    if not any(v.outcome in CHECKED for v in verdicts):  # beside other reasons too: those may be forgiven, this never
        reasons.append((NOTHING, f"no cell was checked ({len(verdicts)} planned)"))
    return reasons


def is_declared_wrong(verdict: Verdict) -> bool:
    """Whether the author of the op has to mend its declaration, and the framework is not at fault."""
    return verdict.outcome is Outcome.ERROR and verdict.code is Code.DECLARATION


def most_urgent(reasons: Iterable[Reason], *, exit_zero: bool = False, allow_incomplete: bool = False) -> int:
    """The exit code: the most urgent reason; `exit_zero` forgives 1 and 4, `allow_incomplete` 4.

    That nothing was checked is never forgiven: a job that asks nothing must not be green.
    """
    forgiven = {FAILED, INCOMPLETE} if exit_zero else {INCOMPLETE} if allow_incomplete else set()
    codes = {code for code, _ in reasons} - forgiven
    return next((code for code in PRIORITY if code in codes), OK)


def _reason_of(code: int, word: str, verdicts: Sequence[Verdict]) -> list[Reason]:
    if not verdicts:
        return []
    text = ", ".join(verdict.cell.key for verdict in verdicts[:3])
    more = f" and {len(verdicts) - 3} more" if len(verdicts) > 3 else ""
    return [(code, f"{len(verdicts)} {word}: {text}{more}")]
