"""What became of the mutants, for a terminal, a page and a file."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from opassay.oracles.verdicts.verdict import Outcome
from opassay.reports.text import TextTable

from .mutant_log import Fate

#: How a mutant is refused whose process ended: it is noticed, and no judge has seen a value of it.
_ENDS = (Outcome.CRASH, Outcome.TIMEOUT)
_OUTCOMES = ("killed", "survived", "equivalent", "same", "not reached", "not planted")


def score_of(fates: Sequence[Fate]) -> float:
    """The share of refused mutants among those that could have been: killed over killed and survived; 1 for none."""
    counts = Counter(fate.outcome for fate in fates)
    decided_count = counts["killed"] + counts["survived"]
    return counts["killed"] / decided_count if decided_count else 1.0


def family_table(fates: Sequence[Fate]) -> TextTable:
    """A row for every family, and one for all: how many, what became of them, the score, and who refused most."""
    families = defaultdict[str, list[Fate]](list)
    for fate in fates:
        families[fate.mutant.family].append(fate)
    rows = [_row(family, members) for family, members in sorted(families.items())]
    headings = (
        "family",
        "mutants",
        "killed",
        "survived",
        "equivalent",
        "same code",
        "not reached",
        "not planted",
        "score",
    )
    return TextTable((*headings, "killed by"), [*rows, _row("all", fates)], [])


def _row(name: str, fates: Sequence[Fate]) -> tuple[str, ...]:
    counts = Counter(fate.outcome for fate in fates)
    by = Counter(fate.by for fate in fates if fate.outcome == "killed")
    killers = ", ".join(f"{code} {count}" for code, count in by.most_common(6))
    ends = Counter(fate.how for fate in fates if fate.how in _ENDS)
    killers += "".join(f"; {count} by a {how}" for how, count in sorted(ends.items()))
    decided_count = counts["killed"] + counts["survived"]
    score = f"{score_of(fates):.2%}" if decided_count else "none"
    return (name, str(len(fates)), *(str(counts[outcome]) for outcome in _OUTCOMES), score, killers)


def survivor_lines(fates: Sequence[Fate]) -> list[str]:
    """Every survivor with its place, what was changed, and how much it was asked."""
    return [
        f"{fate.mutant.file}:{fate.mutant.line} {fate.mutant.function} [{fate.mutant.key}]\n"
        f"  {fate.mutant.kind}: {fate.mutant.old}  ->  {fate.mutant.new}{_asker(fate)}\n"
        f"  asked {fate.questions} questions of {fate.of} cells{', out of its time' * fate.short}"
        for fate in fates
        if fate.outcome == "survived"
    ]


def _asker(fate: Fate) -> str:
    """Of a mutant of the graph, the text that asks for its operation, which the operation alone does not tell."""
    return f", asked for by {fate.mutant.statement}" if fate.mutant.in_graph else ""


def exclusion_lines(exclusions: Sequence[Mapping[str, Any]]) -> list[str]:
    """The cells that no mutant was asked, with the reason, from their records in the log."""
    lines = [f"  {one['excluded']} ({one['outcome']}): {one['reason']}" for one in exclusions]
    return [f"not asked, because they do not hold without a mutant: {len(lines)} cells", *lines] if lines else []


def contradictions(fates: Sequence[Fate]) -> list[str]:
    """Mutants that the table calls equivalent and that a question refused."""
    return [
        f"{fate.mutant.file}:{fate.mutant.line} [{fate.mutant.key}] {fate.mutant.old} -> {fate.mutant.new}: "
        f"the table says {fate.why!r}, and {fate.cell} refused it"
        for fate in fates
        if fate.outcome == "killed" and fate.why
    ]


def as_data(heading: dict[str, Any], fates: Sequence[Fate], exclusions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The heading, the score, the cells that were not asked and the fate of every mutant, as data for a file."""
    return {
        **heading,
        "score": score_of(fates),
        "excluded": [
            {"cell": one["excluded"], "outcome": one["outcome"], "reason": one["reason"]} for one in exclusions
        ],
        "mutants": [
            {"key": fate.mutant.key, **fate.mutant.data(), "outcome": fate.outcome, "by": fate.by, "cell": fate.cell,
             "how": fate.how, "why": fate.why, "asked": fate.questions, "of": fate.of}
            for fate in fates
        ],
    }  # fmt: skip
