"""The end of a run on the terminal and in the step summary of a CI service."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ...oracles.verdicts.verdict import FAILED, Outcome, Verdict, quantity, replaying
from ..causes.grouping import causes_of
from ..exit_codes import Reason
from ..progress import print_wrapped
from ..record import Run
from ..templates import templates_of
from ..text import (
    BAD,
    GLYPHS,
    by_key,
    clean,
    complaints,
    counts,
    duration,
    headline,
    is_measured,
    number,
    one_line,
    replay_of,
    standings,
    what_of,
)

_STYLES = {
    Outcome.VERIFIED: "green",
    Outcome.WEAK: "green",
    Outcome.FAIL: "bold red",
    Outcome.UNSTABLE: "magenta",
    Outcome.CRASH: "yellow",
    Outcome.TIMEOUT: "yellow",
    Outcome.ERROR: "yellow",
}
_TONES = {"good": "bold green", "poor": "bold red", "open": "bold yellow"}
_ROWS = 10  # failures listed in a summary; all are in the report


def print_summary(console: Console, run: Run) -> None:
    """One row per op with a count per outcome, the causes of failures, then what was found about each subject."""
    console.print()
    console.print(_counts_by_op(run))
    causes = causes_of(run.verdicts)
    for cause in causes[:_ROWS]:
        cell, case_id = cause.example.verdict.cell, cause.example.failure.case_id
        again = f"; {replaying(cell.op, case_id)}" if case_id else ""
        outcome = cause.example.verdict.outcome
        example = f"{outcome} {cause.example.failure.code}, {one_line(cell.key)}{one_line(again, 1000)}"
        line = f"{GLYPHS[outcome]} {cause.line}; {example}"
        print_wrapped(console, line, _STYLES[outcome])
    if len(causes) > _ROWS:
        print_wrapped(console, f"… and {len(causes) - _ROWS} causes more in the report")
    # What ended a process, or the framework, is no cause of a failure, and is told by itself.
    groups = [group for group in complaints(run.verdicts) if group[0].outcome not in FAILED]
    for group in groups[:_ROWS]:
        print_wrapped(console, _complaint_line(group), _STYLES[group[0].outcome])
    if len(groups) > _ROWS:
        print_wrapped(console, f"… and {len(groups) - _ROWS} more in the report")
    for note in run.notes[:5]:
        print_wrapped(console, f"note: {one_line(note)}")
    for standing in standings(run.verdicts):
        print_wrapped(console, standing.line, _TONES[standing.tone])
    print_wrapped(console, f"{headline(run.verdicts)}; {duration(run.seconds)}")


def tell_run(console: Console, run: Run, folder: Path, unwritten: Reason | None) -> int:
    """The summary, the path of the report, and under it why the exit code is not 0; the exit code.

    Args:
        unwritten: the exit code, and which files could not be written; the summary is all that is left of them. It
            outweighs every verdict: who reads the exit code alone would look for the files.
    """
    print_summary(console, run)
    if unwritten is None:
        console.print(f"report  {folder / 'report.html'}", soft_wrap=True)
    code = run.exit_code if unwritten is None else unwritten[0]
    reasons = (*run.exit_reasons, *(() if unwritten is None else unwritten[1:]))
    if reasons:
        print_wrapped(console, f"exit {code}: {'; '.join(one_line(str(reason), 300) for reason in reasons)}")
    return code


def _complaint_line(group: list[Verdict]) -> str:
    """The first of the verdicts of one complaint, the other dtypes, and how to see it again."""
    first = group[0]
    what = one_line(what_of(first), 200)
    more = f" and {', '.join(one_line(v.cell.dtype, 20) for v in group[1:])}" if len(group) > 1 else ""
    again = f"; {replay_of(first)}" if replay_of(first) else ""
    key = one_line(first.cell.key)
    return f"{GLYPHS[first.outcome]} {key}{more}: {first.outcome} {first.code}, {what}{one_line(again, 1000)}"


def write_step_summary(run: Run) -> None:
    """Appends to the file that GITHUB_STEP_SUMMARY names, if any."""
    # A CI service names a file here and shows it beside the job; elsewhere the variable is not set.
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return
    # Appended, because other commands of the same step write there too. It is a courtesy: the reports are written.
    with contextlib.suppress(OSError), Path(target).open("a", encoding="utf-8", errors="replace") as file:
        file.write(step_summary(run))


def step_summary(run: Run) -> str:
    """The run as markdown: the headline, the first failures, counts per op; below 60 000 characters."""
    templates = templates_of(__package__, escaped=False, quantity=quantity, what=what_of, replay=replay_of)
    return templates.get_template("step_summary.txt").render(
        run=run,
        standings=standings(run.verdicts),
        headline=headline(run.verdicts),
        causes=causes_of(run.verdicts),
        bad=[verdict for verdict in run.verdicts if verdict.outcome in BAD],
        most=_ROWS,
    )


def _counts_by_op(run: Run) -> Table:
    """One row per op; per op and subject where there are several."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    # Only outcomes that occur get a column: nine of them do not fit beside the names of ops.
    present = counts(run.verdicts)
    several = len({verdict.cell.subject for verdict in run.verdicts}) > 1
    for name in ("op", "subject") if several else ("op",):
        table.add_column(name)
    for outcome in present:
        table.add_column(f"{GLYPHS[outcome]} {outcome}", justify="right", style=_STYLES.get(outcome, ""))
    table.add_column("error/bound", justify="right")
    table.add_column("time", justify="right")
    rows = by_key(run.verdicts, lambda verdict: (verdict.cell.op, verdict.cell.subject))
    for (op, subject), mine in rows.items():
        tally = counts(mine)
        cells = [str(tally[outcome]) if outcome in tally else "" for outcome in present]
        ratios = [v.measure.max_ratio for v in mine if is_measured(v)]
        worst = number(max(ratios)) if ratios else ""
        names = (clean(op), clean(subject)) if several else (clean(op),)
        table.add_row(*names, *cells, worst, duration(sum(v.seconds for v in mine)))
    return table
