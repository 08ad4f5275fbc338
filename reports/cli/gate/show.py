"""`opassay gate show`: the accuracy budgets and the known failures."""

from __future__ import annotations

from pathlib import Path

import click

from ... import baseline, exit_codes
from ...text import number, one_line
from ..reading import FILE
from .files import BUDGET, KNOWN, read_optional


@click.command("show")
@click.option("--budget", type=FILE, default=BUDGET, show_default=True)
@click.option("--known", type=FILE, default=KNOWN, show_default=True)
def show_command(budget: Path, known: Path) -> int:
    """Show both files."""
    for entry in (read_optional(None, budget, baseline.load_budget) or {}).values():
        raised = f"  raised: {entry.raised}" if entry.raised else ""
        _columns(f"budget {entry.budget:<8g} {one_line(entry.cell, 600)}", entry.device_class, f"{entry.date}{raised}")
    for item in (read_optional(None, known, baseline.load_known) or {}).values():
        size = "" if item.at_most is None else f" at most {number(float(item.at_most), 4)}"
        who = f"{item.owner}: {item.reason}"
        _columns("known", item.cell, f"{item.code}{size}", f"until {item.expires}", item.issue, who)
    return exit_codes.OK


def _columns(first: str, *others: str) -> None:
    click.echo("  ".join([first, *(one_line(text, 600) for text in others)]))
