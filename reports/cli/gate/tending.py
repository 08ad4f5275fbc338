"""`opassay gate show`, `update`, `accept`, `prune`: what tends known.json and budget.json."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import click

from ....oracles.verdicts.verdict import counted
from ... import baseline, exit_codes
from ...accept_failures import accept
from ...store.files import write_atomically
from ...text import number, one_line
from ..reading import FILE, as_usage, load_run

KNOWN = Path("known.json")
BUDGET = Path("budget.json")
_T = TypeVar("_T")

_budget_option = click.option("--budget", type=FILE, default=BUDGET, show_default=True)
_known_option = click.option("--known", type=FILE, default=KNOWN, show_default=True)


def read_optional(path: Path | None, usual: Path | None, read: Callable[[Path], _T]) -> _T | None:
    """The content of a file that was named, or of the usual one if it exists."""
    chosen = path if path is not None else usual if usual is not None and usual.exists() else None
    if chosen is None:
        return None
    with as_usage():
        return read(chosen)


def _say_changes(lines: list[str], last: str) -> int:
    """The exit code of a command that has changed a file; says what it changed."""
    for line in lines:
        click.echo(one_line(line, 1000))
    click.echo(last)
    return exit_codes.OK


@click.command("show")
@_budget_option
@_known_option
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


@click.command("update")
@click.argument("record", type=FILE)
@_budget_option
@click.option("--allow-raise", multiple=True, metavar="CELL", help="This cell's budget may go up.")
@click.option("--reason", default="", help="Why budgets go up.")
def update_command(record: Path, budget: Path, allow_raise: tuple[str, ...], reason: str) -> int:
    """Lower budgets to what the run reached; enter new cells."""
    before = read_optional(None, budget, baseline.load_budget) or {}
    run = load_run(record)
    with as_usage(ValueError):
        after, changes = baseline.update(run, before, allow_raise=allow_raise, reason=reason)
        write_atomically(budget, baseline.dump_budget(after))
    return _say_changes(changes, f"{counted(len(changes), 'change')} in {budget}")


@click.command("accept")
@click.argument("record", type=FILE)
@click.argument("cells", metavar="CELL...", nargs=-1, required=True)
@click.option("--reason", required=True, help="Why the failure is accepted for now.")
@click.option("--issue", required=True, help="Where it is tracked.")
@click.option("--owner", required=True, help="Who sees to it.")
@click.option("--expires", required=True, type=click.DateTime(["%Y-%m-%d"]), help="The last day of the entry.")
@_known_option
def accept_command(
    record: Path, cells: tuple[str, ...], reason: str, issue: str, owner: str, expires: datetime, known: Path
) -> int:
    """Enter failures of a run into known.json: their code, and their size as the largest that is accepted.

    CELL is a cell as `opassay list OP` shows it, or a pattern with *, such as "softmax::*[float16-cpu-torch]".
    \f

    Args:
        record: run.json of the run that failed. cells: keys of cells, or patterns.
        reason, issue, owner: texts of the entry. expires: its last day, at midnight.
        known: the file that is written; made if absent.

    Raises:
        Stop: what the gate would refuse, a pattern that no failure matches, or a file that cannot be read or written.
    """
    before = read_optional(None, known, baseline.load_known) or {}
    run = load_run(record)
    with as_usage(ValueError):
        after, changes = accept(run, before, cells, reason=reason, issue=issue, owner=owner, expires=expires.date())
        write_atomically(known, baseline.dump_known(after))
    return _say_changes(changes, f"{counted(len(changes), 'change')} in {known}")


@click.command("prune")
@click.argument("record", type=FILE)
@_budget_option
@_known_option
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
    return _say_changes(changes, f"{len(changes)} entries removed")
