"""`opassay gate accept`: failures that are accepted until a day."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from ....oracles.verdicts.verdict import counted
from ... import baseline
from ...accept_failures import accept
from ...store.files import write_atomically
from ..reading import FILE, as_usage, load_run
from .files import KNOWN, read_optional, say_changes


@click.command("accept")
@click.argument("record", type=FILE)
@click.argument("cells", metavar="CELL...", nargs=-1, required=True)
@click.option("--reason", required=True, help="Why the failure is accepted for now.")
@click.option("--issue", required=True, help="Where it is tracked.")
@click.option("--owner", required=True, help="Who sees to it.")
@click.option("--expires", required=True, type=click.DateTime(["%Y-%m-%d"]), help="The last day of the entry.")
@click.option("--known", type=FILE, default=KNOWN, show_default=True)
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
    return say_changes(changes, f"{counted(len(changes), 'change')} in {known}")
