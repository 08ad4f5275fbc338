"""`opassay gate update`: budgets become what a run has reached."""

from __future__ import annotations

from pathlib import Path

import click

from ....oracles.verdicts.verdict import counted
from ... import baseline
from ...store.files import write_atomically
from ..reading import FILE, as_usage, load_run
from .files import BUDGET, read_optional, say_changes


@click.command("update")
@click.argument("record", type=FILE)
@click.option("--budget", type=FILE, default=BUDGET, show_default=True)
@click.option("--allow-raise", multiple=True, metavar="CELL", help="This cell's budget may go up.")
@click.option("--reason", default="", help="Why budgets go up.")
def update_command(record: Path, budget: Path, allow_raise: tuple[str, ...], reason: str) -> int:
    """Lower budgets to what the run reached; enter new cells."""
    before = read_optional(None, budget, baseline.load_budget) or {}
    run = load_run(record)
    with as_usage(ValueError):
        after, changes = baseline.update(run, before, allow_raise=allow_raise, reason=reason)
        write_atomically(budget, baseline.dump_budget(after))
    return say_changes(changes, f"{counted(len(changes), 'change')} in {budget}")
