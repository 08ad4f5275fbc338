"""`opassay report html`, `accuracy`, `causes` and `schema`: what is known of one record, and the form of the files."""

from __future__ import annotations

import re
from pathlib import Path

import click

from ... import exit_codes
from ...accuracy import accuracy, markdown_table, text_table
from ...causes.grouping import Cause, causes_of
from ...causes.page import index, page
from ...record import RecordError
from ...schemas.documents import NAMES, text_of
from ...store.files import CTRF, JUNIT, PAGE, read_capped, require_replaceable, write_atomically, write_output
from ...text import one_line
from ..addresses import HintedChoice
from ..reading import FILE, FOLDER, RECORD_PATH, as_usage, load_run


@click.command("accuracy")
@click.argument("record", type=RECORD_PATH)
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the table for a page, a row per op.")
def accuracy_command(record: Path, as_markdown: bool) -> int:
    """Print the measured accuracy of each op of a run record, as a table."""
    lines = accuracy(load_run(record).verdicts)
    click.echo(markdown_table(lines).rstrip() if as_markdown else "\n".join(text_table(lines).lines()))
    return exit_codes.OK


@click.command("schema")
@click.argument("name", type=HintedChoice(NAMES), default="run")
def schema_command(name: str) -> int:
    """Print the JSON Schema of run.json, known.json or budget.json, or of the line of `judge --json`."""
    click.echo(text_of(name), nl=False)
    return exit_codes.OK


@click.command("causes")
@click.argument("run_json", type=RECORD_PATH)
@click.option("--out", type=FOLDER, help="Write a page per cause, and a list of them, to this folder.")
def causes_command(run_json: Path, out: Path | None) -> int:
    """Group the failures of a run into causes, the gravest first.

    A page holds what a maintainer needs: the smallest input, a program, what was expected, versions.
    """
    run = load_run(run_json)
    causes = causes_of(run.verdicts)
    for number, cause in enumerate(causes, 1):
        click.echo(one_line(f"{number:3}  {cause.line}", 500))
    click.echo(f"{len(causes)} causes of {len({key for cause in causes for key in cause.cells})} failed cells")
    if out is not None:
        named = [(_file_name(number, cause), cause) for number, cause in enumerate(causes, 1)]
        with as_usage():
            out.mkdir(parents=True, exist_ok=True)
            for name, cause in named:
                write_atomically(out / name, page(cause, run).encode("utf-8", "replace"))
            write_atomically(out / "index.md", index(named, run).encode("utf-8", "replace"))
        click.echo(f"pages   {out / 'index.md'}")
    return exit_codes.OK


def _file_name(number: int, cause: Cause) -> str:
    """A name that is safe whatever the cause is called."""
    words = re.sub(r"[^a-z0-9]+", "-", f"{cause.where} {cause.path}".lower()).strip("-")[:60].strip("-")
    return f"{number:02d}-{words or 'cause'}.md"


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
