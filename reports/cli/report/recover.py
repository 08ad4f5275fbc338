"""`opassay report recover`: the record and the report of a run that ended without them, made from its log."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ... import exit_codes
from ...collect import Account
from ...progress import make_console
from ...record import RecordError, Run
from ...store import log
from ...store.folder import Folder, FolderError
from ..host import Stop
from ..summary import print_end, print_summary
from ..write import keep_case, write_reports

_LOST = "the run ended without its record"


@click.command("recover")
@click.argument("report_dir", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--run", "run", metavar="ID", help="Which run; by default the newest one without a record.")
def recover_command(report_dir: Path, run: str | None) -> int:
    """Make run.json, report.html and junit.xml of a run that was killed, from the log in its report folder."""
    try:
        folder = Folder.reopen(report_dir, run)
    except FolderError as err:
        raise Stop(exit_codes.USAGE, str(err)) from err
    with folder:
        # Cases were written during the run, too. They are written again, because the kill may have
        # come before the last of them.
        account = Account(on_case=keep_case(folder))
        with folder.log.open("rb") as file:
            for event in log.read_events(file):
                account.take(event)
        try:
            record = _recover_run(account)
        except RecordError as err:
            raise Stop(exit_codes.USAGE, f"{folder.log}: {err}") from err
        fault = write_reports(folder, record)
        console = make_console(sys.stdout)
        print_summary(console, record)
        print_end(console, record, folder.path, fault)
        return fault[0] if fault else record.exit_code


def _recover_run(account: Account) -> Run:
    ended = account.ended
    # The event that is missing holds the seconds of the run, so nobody knows how long it took.
    if ended is None:
        return account.run([(exit_codes.INCOMPLETE, _LOST)], seconds=0.0)
    return account.run([(code, text) for code, text in ended.reasons], seconds=ended.seconds)
