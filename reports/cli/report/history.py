"""`opassay report history`: the course of each op over the records of a folder."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click
from rich.table import Table

from ....oracles.verdicts.verdict import quantity
from ....properties.names import nearest_of
from ... import exit_codes
from ...over_time.history import Intake, open_history, records_in
from ...over_time.trends import Course, HistoryRun, Trend, bars, describe_state, failures_of, runs_of, trends_of
from ...progress import make_console
from ...text import clean, duration, number, one_line
from ..host import Stop
from ..reading import FILE, FOLDER, as_usage, write_page

_NAME = "history.sqlite"
#: Failures whose history is told in the terminal.
_FAILURES = 20
_STYLES = {"failed": "bold red", "held": "green"}


@click.command("history")
@click.argument("folder", type=FOLDER)
@click.option("--add", multiple=True, type=FILE, metavar="RECORD", help="Read this record, too; may be repeated.")
@click.option("--database", type=FILE, help=f"Where what was read is kept.  [default: FOLDER/{_NAME}]")
@click.option("--op", "ops", multiple=True, metavar="OP", help="Only this op; may be repeated.")
@click.option("--subject", "subjects", multiple=True, metavar="SUBJECT", help="Only this subject; may be repeated.")
@click.option("--profile", help="Only runs of this profile.  [default: that of the newest run]")
@click.option("--last", type=click.IntRange(min=1), default=20, show_default=True, help="Only the newest N runs.")
@click.option("--html", type=FILE, help="Write the history as one HTML file, too.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def history_command(
    folder: Path, add: tuple[Path, ...], database: Path | None, ops: tuple[str, ...], subjects: tuple[str, ...],
    profile: str | None, last: int, html: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Show how each op has fared over the run records below FOLDER.

    Records are read once and kept in a database, so that a record may be removed afterwards. Exit code 5 where there
    is no run to show.
    \f

    Args:
        folder: where records are looked for, in folders below it, too. add: further records.
        database: by default in the folder. ops, subjects: only these; all where none is named.
        profile: of the runs. last: how many runs. html: the page that is written, if any. as_json: print JSON instead.

    Raises:
        Stop: the folder, the database or the page cannot be used, or an op or subject is in no run.
    """
    with ExitStack() as stack:
        with as_usage():
            files = [*records_in(folder), *add]
            history = stack.enter_context(open_history(database or folder / _NAME))
            intake = history.gather(files)
        for line in intake.refusals:
            click.echo(f"note: not read: {one_line(line, 500)}", err=True)
        every = runs_of(history)
        chosen_profile = profile or (every[-1].profile if every else "")
        runs = [run for run in every if run.profile == chosen_profile][-last:]
        trends = _choose_trends(trends_of(history, runs), ops, subjects)
        pairs = {(trend.op, trend.subject) for trend in trends}
        failures = [each for each in failures_of(history, runs) if (each.cell.op, each.cell.subject) in pairs]
    if not runs:
        raise Stop(
            exit_codes.NOTHING, f"{folder}: no run record{f' of profile {chosen_profile!r}' if chosen_profile else ''}"
        )
    if html is not None:
        from ...over_time.pages import history_page

        write_page(html, history_page(trends, runs, failures))
    if as_json:
        click.echo(json.dumps(_as_json(trends, runs, failures), indent=1))
    else:
        _print(trends, runs, failures, intake, hidden_runs=len(every) - len(runs))
    return exit_codes.OK


def _choose_trends(trends: Sequence[Trend], ops: Sequence[str], subjects: Sequence[str]) -> list[Trend]:
    """The trends of these ops and subjects; of all where none is named.

    Raises:
        Stop: a named op or subject is in no trend.
    """
    for kind, names, names_in_runs in (
        ("op", ops, {trend.op for trend in trends}),
        ("subject", subjects, {trend.subject for trend in trends}),
    ):
        for name in names:
            if name not in names_in_runs:
                raise Stop(
                    exit_codes.USAGE, f"unknown {kind}: got {name!r}{nearest_of(name, names_in_runs)}; no run has it"
                )
    return [trend for trend in trends if (not ops or trend.op in ops) and (not subjects or trend.subject in subjects)]


def _print(
    trends: Sequence[Trend], runs: Sequence[HistoryRun], failures: Sequence[Course], intake: Intake, hidden_runs: int
) -> None:
    console = make_console(sys.stdout)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, right in (("op", False), ("subject", False), ("now", False), ("since", False), ("error/bound", False),
                        ("last", True), ("", False), ("time", False), ("last", True), ("", False)):  # fmt: skip
        table.add_column(name, justify="right" if right else "left", no_wrap=name == "op")
    for trend in trends:
        where = trend.subject if trend.device == "cpu" else f"{trend.subject} on {trend.device}"
        since = trend.since.run
        points = trend.points
        table.add_row(
            clean(trend.op), clean(where), describe_state(trend.last),
            f"{since.started[:10]} {clean(since.revision[:8])}".strip(),
            bars([point.ratio for point in points]), number(trend.last.ratio), _word(trend.errors),
            bars([point.seconds for point in points]), duration(trend.last.seconds), _word(trend.pace),
            style=_STYLES.get(trend.last.state, "yellow"),
        )  # fmt: skip
    console.print(table)
    for failure in failures[:_FAILURES]:
        console.print(one_line(f"{failure.cell.key}  {failure.sentence}", 400), soft_wrap=True)
    if len(failures) > _FAILURES:
        console.print(f"… and {len(failures) - _FAILURES} more failures; --json and --html have all of them")
    more = f"; {hidden_runs} left out, older or of other profiles" if hidden_runs else ""
    line = f"{intake.new} new, {intake.old} known"
    head = f"{quantity(len(runs), 'run')} of profile {runs[-1].profile}, {runs[0].started} to {runs[-1].started}"
    text = f"{head} ({line} files){more}"
    console.print(one_line(text, 400), soft_wrap=True)


def _word(course: str) -> str:
    """What the table says of a course of numbers: nothing of one that is steady."""
    return "" if course == "steady" else course


def _as_json(trends: Sequence[Trend], runs: Sequence[HistoryRun], failures: Sequence[Course]) -> dict[str, object]:
    """Runs and, for each op, a list per measure in the order of its runs; what is no number is null; and failures."""

    def measure(value: float) -> float | str | None:
        return None if math.isnan(value) else "inf" if math.isinf(value) else value

    return {
        "runs": [
            {"started": run.started, "commit": run.revision, "version": run.version, "torch": run.torch,
             "profile": run.profile, "seed": run.seed, "seconds": run.seconds, "exit_code": run.exit_code}
            for run in runs
        ],
        "ops": [
            {"op": trend.op, "device": trend.device, "subject": trend.subject,
             "runs": [runs.index(point.run) for point in trend.points],
             "state": [point.state for point in trend.points],
             "held": [point.passing for point in trend.points],
             "failed": [point.failed for point in trend.points],
             "max_ratio": [measure(point.ratio) for point in trend.points],
             "seconds": [point.seconds for point in trend.points],
             "errors": trend.errors, "time": trend.pace, "since": trend.since.run.started}
            for trend in trends
        ],
        "failures": [
            {"cell": each.cell.key, "outcome": each.looks[-1].outcome, "code": each.looks[-1].code,
             "runs": [runs.index(look.run) for look in each.looks],
             "failed": [look.failed for look in each.looks], "since": each.since.run.started}
            for each in failures
        ],
    }  # fmt: skip
