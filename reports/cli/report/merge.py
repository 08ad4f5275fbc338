"""`opassay report merge`: one record of those of several shards."""

from __future__ import annotations

from pathlib import Path

import click

from ... import exit_codes
from ...merge import MissingShards, merge
from ...record import encode
from ...store.output import RECORD, require_replaceable, write_output
from ...text import headline, one_line
from ..host import Stop
from ..reading import FILE, as_usage, load_run


@click.command("merge")
@click.argument("records", type=FILE, nargs=-1, required=True)
@click.option("-o", "--output", type=FILE, default=Path("run.json"), show_default=True)
@click.option("--partial", is_flag=True, help="Write the record also if shards are missing; the exit code stays 4.")
def merge_command(records: tuple[Path, ...], output: Path, partial: bool) -> int:
    """Merge the records of one plan; the exit code is that of the whole."""
    runs = [load_run(path) for path in records]
    with as_usage():
        # Looked at first, so that a target that may not be replaced is told before the records are merged.
        require_replaceable(output, RECORD)
        try:
            run = merge(runs, partial=partial)
        except MissingShards as err:
            raise Stop(exit_codes.INCOMPLETE, str(err)) from err
        write_output(output, RECORD, encode(run))
    for note in run.notes[-5:]:
        click.echo(f"note: {one_line(note)}")
    click.echo(headline(run.verdicts))
    click.echo(str(output))
    return run.exit_code
