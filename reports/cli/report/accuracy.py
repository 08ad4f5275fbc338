"""`opassay report accuracy`: the measured accuracy of each op of a run record."""

from __future__ import annotations

from pathlib import Path

import click

from ... import exit_codes
from ...accuracy import accuracy, markdown_table
from ..reading import FILE, load_run


@click.command("accuracy")
@click.argument("record", type=FILE)
def accuracy_command(record: Path) -> int:
    """Print the measured accuracy of each op of a run record, as a table in markdown."""
    click.echo(markdown_table(accuracy(load_run(record).verdicts)), nl=False)
    return exit_codes.OK
