"""`python -m workshop upstream`: findings in the form that the maintainers of a library act on."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from opassay.reports import exit_codes
from opassay.reports.cli.host import Stop
from opassay.reports.cli.reading import FOLDER, as_usage

from ..upstream.dossier import BROKEN, DOSSIERS, Dossier, DossierError, list_dossiers, read_dossier, store_attempt
from ..upstream.form import find_faults
from ..upstream.issue import write_issue
from ..upstream.trying import try_program


@click.command("upstream")
@click.argument("cause", required=False)
@click.option("--tree", type=FOLDER, default=Path(), show_default=True, help="The checkout that has the dossiers.")
@click.option("--run", "run_programs", is_flag=True, help="Run the programs, and keep what came with version and date.")
@click.option("--python", default=sys.executable, metavar="PATH", help="The interpreter that runs them.")
@click.option("--check", "check_form", is_flag=True, help="Say what each lacks; exit code 1 if one does.")
def upstream_command(cause: str | None, tree: Path, run_programs: bool, python: str, check_form: bool) -> int:
    """Print the issue to file with a library about CAUSE, a finding; without it, list all.

    An issue has a program of at most 15 lines, what comes and what is right, who is hurt, a regression test, and what
    others reported.
    """
    with as_usage(DossierError):
        causes = [cause] if cause else list_dossiers(tree)
        if not causes:
            raise Stop(exit_codes.USAGE, f"--tree={tree} has no dossiers: need a checkout with {DOSSIERS}")
        dossiers = [read_dossier(tree, name) for name in causes]
        if run_programs:
            return _run(tree, dossiers, python)
    if check_form:
        return _check(dossiers)
    if cause:
        click.echo(write_issue(dossiers[0]), nl=False)
    else:
        click.echo("\n".join(map(_line, dossiers)))
    return exit_codes.OK


def _run(tree: Path, dossiers: list[Dossier], python: str) -> int:
    code = exit_codes.OK
    for dossier in dossiers:
        attempt = try_program(dossier, python)
        click.echo(f"{dossier.name:28} {attempt.version or '-':10} {attempt.outcome}")
        if attempt.outcome == BROKEN:
            code = exit_codes.INCOMPLETE
            click.echo(attempt.output, err=True)
        else:
            store_attempt(tree, dossier.name, attempt)
    return code


def _check(dossiers: list[Dossier]) -> int:
    lines = [f"{dossier.name}: {fault}" for dossier in dossiers for fault in find_faults(dossier)]
    click.echo("\n".join([*lines, f"{len(dossiers)} dossiers, {len(lines)} faults of form"]))
    return exit_codes.FAILED if lines else exit_codes.OK


def _line(dossier: Dossier) -> str:
    outcomes = ", ".join(f"{each.version} {each.outcome}" for each in dossier.attempts if each.version) or "not tried"
    return f"{dossier.name:28} {dossier.heading.library:12} {outcomes:32} {dossier.heading.title}"
