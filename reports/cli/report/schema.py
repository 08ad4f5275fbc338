"""`opassay report schema`: the JSON Schema of a file."""

from __future__ import annotations

import click

from ... import exit_codes
from ...schemas.documents import NAMES, text_of
from ..project.hints import HintedChoice


@click.command("schema")
@click.argument("name", type=HintedChoice(NAMES), default="run")
def schema_command(name: str) -> int:
    """Print the JSON Schema of a file: of run.json, or of known.json or budget.json."""
    click.echo(text_of(name), nl=False)
    return exit_codes.OK
