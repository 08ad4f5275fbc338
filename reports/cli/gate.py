"""`opassay gate`: a run beside known.json and budget.json, and the commands that tend these two files."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import click

from ...oracles.verdicts.verdict import quantity
from .. import baseline, exit_codes
from ..gate import Files, GateFinding, accept, exit_code, find_regressions, finding_line, is_shard
from ..record import Run
from ..store.files import PAGE, require_replaceable, write_atomically
from ..text import github_command, number, one_line
from .addresses import line_of
from .host import Stop
from .reading import FILE, RECORD_PATH, as_usage, forgiving_options, load_run, write_page

KNOWN = Path("known.json")
BUDGET = Path("budget.json")
_T = TypeVar("_T")

_budget_option = click.option("--budget", type=FILE, default=BUDGET, show_default=True)
_known_option = click.option("--known", type=FILE, default=KNOWN, show_default=True)


def read_optional(path: Path | None, usual: Path | None, reader: Callable[[Path], _T]) -> _T | None:
    """The content of a file that was named, or of the usual one if it exists."""
    file = path if path is not None else usual if usual is not None and usual.exists() else None
    if file is None:
        return None
    with as_usage():
        return reader(file)


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
@click.argument("record", type=RECORD_PATH)
@_budget_option
@click.option("--allow-raise", multiple=True, metavar="CELL", help="This cell's budget may go up.")
@click.option("--reason", default="", help="Why budgets go up.")
def update_command(record: Path, budget: Path, allow_raise: tuple[str, ...], reason: str) -> int:
    """Lower budgets to what the run reached; enter new cells."""
    before = read_optional(None, budget, baseline.load_budget) or {}
    run = load_run(record)
    with as_usage(ValueError):
        after, changes = baseline.update(run, before, allow_raise=allow_raise, reason=reason)
        if not after and not budget.exists():  # An empty file would block the gate of every later run.
            return _say_changes(changes, f"no cell has held, so {budget} is not written")
        write_atomically(budget, baseline.dump_budget(after))
    return _say_changes(changes, f"{quantity(len(changes), 'change')} in {budget}")


@click.command("accept")
@click.argument("record", type=RECORD_PATH)
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

    CELL is a cell as `opassay gate` prints it, or a pattern with *, as "softmax::*[float16-cpu-torch]" or "mine.py:*".
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
    return _say_changes(changes, f"{quantity(len(changes), 'change')} in {known}")


@click.command("prune")
@click.argument("record", type=RECORD_PATH)
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


@click.command("check")
@click.argument("record", type=RECORD_PATH)
@click.option("--known", type=FILE, help="Accepted failures; by default known.json, if there is one.")
@click.option("--budget", type=FILE, help="Accuracy budgets; by default budget.json, if there is one.")
@click.option("--base", type=FILE, help="The budget file of the base branch: budgets may not be raised.")
@click.option("--partial", is_flag=True, help="The run was of a selection: other cells are no loss.")
@click.option("--report", is_flag=True, help="Write report.html beside the record again, with what the gate found.")
@forgiving_options
def check_command(
    record: Path, partial: bool, report: bool, exit_zero: bool, allow_incomplete: bool, **paths: Path | None
) -> int:
    """Compare a run with the known failures and the accuracy budgets; reads files only.
    \f

    Args:
        record: run.json of the run. partial: the run was of a selection, so cells that it does not plan are no loss.
        report: whether the page beside the record is written again.
        exit_zero, allow_incomplete: what is forgiven, as in `exit_codes.most_urgent`.
        paths: `known`, `budget` and `base`; None for a file that was not named.

    Raises:
        Stop: the record is of one shard, a file cannot be read or written, or there is no budget to compare.
    """
    run = load_run(record)
    _refuse_shard(run)
    # The target is looked at before the gate judges: findings must not be followed by an
    # exit code that is about a file.
    target = record.parent / "report.html"
    if report:
        with as_usage():
            require_replaceable(target, PAGE)
    files = Files(
        known=read_optional(paths["known"], KNOWN, baseline.load_known) or {},
        budget=read_optional(paths["budget"], BUDGET, baseline.load_budget),
        base=read_optional(paths["base"], None, baseline.load_budget),
    )
    if files.base is not None and files.budget is None:
        raise Stop(exit_codes.USAGE, "--base: needs budget.json (or --budget FILE) to compare with; there is none")
    findings = find_regressions(run, files, partial=partial)
    for finding in findings:
        click.echo(finding_line(finding))
    code = exit_code(findings, exit_zero=exit_zero, allow_incomplete=allow_incomplete)
    if report:
        from ..page.html import render
        from ..page.matrix import Gated

        write_page(target, render(run, Gated(tuple(findings), code)))
    blocking = [finding for finding in findings if finding.code]
    _annotate(blocking)
    click.echo(
        f"gate: {'ok' if code == exit_codes.OK else 'FAIL'} (exit {code}), "
        f"{quantity(len(blocking), 'blocking finding')}"
    )
    return code


def _refuse_shard(run: Run) -> None:
    """A part of a run is no run: neither --partial nor --allow-incomplete makes it one."""
    with as_usage():
        if not is_shard(run):
            return
    text = f"the record is of shard {run.settings['shard']} alone; need that of all, see `opassay report merge`"
    raise Stop(exit_codes.INCOMPLETE, f"gate: {text}")


def _annotate(findings: list[GateFinding]) -> None:
    if os.environ.get("GITHUB_ACTIONS"):
        # GitHub shows no more than ten annotations of a step.
        for finding in findings[:10]:
            text, at = f"{finding.cell}: {finding.text}", line_of(finding.cell.partition("::")[0])
            click.echo(github_command("error", f"opassay {finding.kind}", text, at))
