"""`opassay gate prune`: entries that are not needed any more go."""

from __future__ import annotations

from pathlib import Path

import click

from ... import baseline
from ...store.files import write_atomically
from ..reading import FILE, as_usage, load_run
from .files import BUDGET, KNOWN, read_optional, say_changes


@click.command("prune")
@click.argument("record", type=FILE)
@click.option("--budget", type=FILE, default=BUDGET, show_default=True)
@click.option("--known", type=FILE, default=KNOWN, show_default=True)
def prune_command(record: Path, budget: Path, known: Path) -> int:
    """Remove entries of cells that the plan lacks, and known failures that hold now."""
    # A file that is not there is no mistake: a repository may keep budgets and no known failures, or the reverse.
    budgets = read_optional(None, budget, baseline.load_budget)
    accepted = read_optional(None, known, baseline.load_known)
    remaining_budgets, remaining_failures, changes = baseline.prune(load_run(record), budgets or {}, accepted or {})
    with as_usage():
        if budgets is not None:
            write_atomically(budget, baseline.dump_budget(remaining_budgets))
        if accepted is not None:
            write_atomically(known, baseline.dump_known(remaining_failures))
    return say_changes(changes, f"{len(changes)} entries removed")
