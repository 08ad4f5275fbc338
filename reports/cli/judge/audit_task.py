"""`opassay audit-task`: which trivial programs a check of somebody else's choice would let through."""

from __future__ import annotations

import json

import click

from ... import exit_codes
from ..addresses import require_in_file
from ..host import require
from .judge import parse_inputs, run_on_user_files


@click.command("audit-task")
@click.argument("reference")
@click.option("--rtol", "relative", type=float, default=1e-5, show_default=True, help="Of your check.")
@click.option("--atol", "absolute", type=float, default=1e-8, show_default=True, help="Of your check.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of parameters and inputs.")
@click.option("--input", "given", multiple=True, metavar="NAME=VALUE", help="For what gives the inputs.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def audit_task_command(
    reference: str, relative: float, absolute: float, seed: int, given: tuple[str, ...], as_json: bool
) -> int:
    """Say which trivial programs pass |out - right| <= atol + rtol |right| on the inputs of REFERENCE.

    Tried are zeros, a constant, the input, half precision, and the spec with one operation left out.
    Exit codes: 0 none passes, 1 some do or the right output is constant, 2 usage.
    \f

    Args:
        reference: a file, or MODULE:NAME. relative, absolute: the tolerance of the check.
        seed: of what is drawn. given: NAME=VALUE words. as_json: whether a program reads this.
    """
    require_in_file(reference)
    require("torch", "mpmath", "msgspec")
    from ....properties.candidates import tasks

    audit = run_on_user_files(
        lambda: tasks.audit_task(reference, relative, absolute, seed=seed, values=parse_inputs(given))
    )
    summary = {
        "spec": audit.spec,
        "check": audit.tolerance,
        "passing": [row.name for row in audit.passing],
        "tried": len(audit.rows),
        "constant": list(audit.constant),
    }
    click.echo(json.dumps(summary) if as_json else str(audit))
    return exit_codes.FAILED if audit.passing or audit.constant else exit_codes.OK
