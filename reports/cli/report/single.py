"""`opassay report accuracy`, `causes` and `schema`: what is known of one record, and the form of the files."""

from __future__ import annotations

import re
from pathlib import Path

import click

from ... import exit_codes
from ...accuracy import accuracy, markdown_table, text_table
from ...causes.grouping import Cause, causes_of
from ...causes.page import index, page
from ...schemas.documents import NAMES, text_of
from ...store.files import write_atomically
from ...text import one_line
from ..project.hints import HintedChoice
from ..reading import FOLDER, RECORD_PATH, as_usage, load_run


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
@click.option(
    "--out",
    type=FOLDER,
    help="Write a page per cause, and a list of them, to this folder.",
)
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
