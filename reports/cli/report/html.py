"""`opassay report html`: the page of a run record, and other renderings of it."""

from __future__ import annotations

from pathlib import Path

import click

from ... import exit_codes
from ...record import RecordError
from ...store.files import CTRF, JUNIT, PAGE, read_capped, require_replaceable, write_output
from ..reading import FILE, RECORD_PATH, as_usage, load_run


@click.command("html")
@click.argument("record", type=RECORD_PATH)
@click.option("-o", "--output", type=FILE, default=Path("report.html"), show_default=True)
@click.option("--junit", type=FILE, help="Write JUnit XML here, too.")
@click.option("--ctrf", type=FILE, help="Write JSON in the Common Test Report Format here, too.")
@click.option(
    "--history",
    type=FILE,
    help="Database of `opassay report history`: cards tell since when a cell fails. RECORD is added.",
)
def html_command(record: Path, output: Path, junit: Path | None, ctrf: Path | None, history: Path | None) -> int:
    """Render a run record as one HTML file."""
    from ...exporting import to_ctrf, to_xml
    from ...page.html import render

    run = load_run(record)
    with as_usage():  # all names are looked at before anything is written
        require_replaceable(output, PAGE)
        others = ((junit, JUNIT, to_xml), (ctrf, CTRF, to_ctrf))
        for path, kind, _ in others:
            if path is not None:
                require_replaceable(path, kind)
        histories = {} if history is None else _histories(record, history)
        write_output(output, PAGE, render(run, None, histories).encode("utf-8", "replace"))
        for path, kind, rendered in others:
            if path is not None:
                write_output(path, kind, rendered(run))
    click.echo(str(output))
    return exit_codes.OK


def _histories(path: Path, database: Path) -> dict[str, str]:
    """Key of each cell that fails in a record -> its history, of the runs of the same profile up to this one."""
    from ...over_time.history import digest_of, open_history
    from ...over_time.trends import failures_of, runs_of, sentences

    if not database.is_file():
        raise RecordError(f"{database}: no such file; need a database that `opassay report history` wrote")
    with open_history(database) as history:
        history.gather([path])
        runs, own = runs_of(history), digest_of(read_capped(path))
        place = [run.digest for run in runs].index(own)
        return sentences(failures_of(history, [run for run in runs[: place + 1] if run.profile == runs[place].profile]))
