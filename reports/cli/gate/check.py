"""`opassay gate check`: a run beside the known failures and the accuracy budgets."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ....oracles.verdicts.verdict import counted
from ... import baseline, exit_codes
from ...gate import Files, GateFinding, exit_code, find_regressions, finding_line, is_shard
from ...record import Run
from ...store.output import PAGE, require_replaceable, write_output
from ...text import github_command
from ..host import Stop
from ..options import forgiving_options
from ..reading import FILE, as_usage, load_run
from .tending import BUDGET, KNOWN, read_optional


@click.command("check")
@click.argument("record", type=FILE)
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
        _render(run, findings, code, target)
    blocking = [finding for finding in findings if finding.code]
    _annotate(blocking)
    click.echo(
        f"gate: {'ok' if code == exit_codes.OK else 'FAIL'} (exit {code}), {counted(len(blocking), 'blocking finding')}"
    )
    return code


def _render(run: Run, findings: list[GateFinding], code: int, path: Path) -> None:
    from ...page.html import render
    from ...page.matrix import Gated

    page = render(run, Gated(tuple(findings), code))
    with as_usage():
        write_output(path, PAGE, page.encode("utf-8", "replace"))


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
            click.echo(github_command("error", f"opassay {finding.kind}", f"{finding.cell}: {finding.text}"))
