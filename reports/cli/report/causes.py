"""`opassay report causes`: the causes of a run's failures, and a page about each."""

from __future__ import annotations

import re
from pathlib import Path

import click

from ... import exit_codes
from ...causes.grouping import Cause, causes_of
from ...causes.page import index, page
from ...store.files import write_atomically
from ...text import one_line
from ..reading import FILE, as_usage, load_run

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command("causes")
@click.argument("run_json", type=FILE)
@click.option("--out", type=_FOLDER, help="Write a page per cause, and a list of them, to this folder.")
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
