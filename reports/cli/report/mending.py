"""`opassay report merge` and `recover`: one record of those of several shards, or of the log of a run without one."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ... import exit_codes
from ...collect import Account
from ...merge import MissingShards, merge
from ...progress import make_console
from ...record import RecordError, encode
from ...store import log
from ...store.files import RECORD, require_replaceable, write_output
from ...store.folder import Folder, FolderError
from ...text import headline, one_line
from ..host import Stop
from ..reading import FILE, RECORD_PATH, as_usage, load_run
from ..summary import tell_run
from ..write import keep_case, write_reports

_LOST = "the run ended without its record"


@click.command("merge")
@click.argument("records", type=RECORD_PATH, nargs=-1, required=True)
@click.option("-o", "--output", type=FILE, default=Path("run.json"), show_default=True)
@click.option("--partial", is_flag=True, help="Write the record also if shards are missing; the exit code stays 4.")
def merge_command(records: tuple[Path, ...], output: Path, partial: bool) -> int:
    """Merge the records of one plan; the exit code is that of the whole."""
    runs = [load_run(path) for path in records]
    with as_usage():
        # Looked at first, so that a target that may not be replaced is told before the records are merged.
        require_replaceable(output, RECORD)
        try:
            run = merge(runs, partial=partial)
        except MissingShards as err:
            raise Stop(exit_codes.INCOMPLETE, str(err)) from err
        write_output(output, RECORD, encode(run))
    for note in run.notes[-5:]:
        click.echo(f"note: {one_line(note)}")
    click.echo(headline(run.verdicts))
    click.echo(str(output))
    return run.exit_code


@click.command("recover")
@click.argument("report_dir", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--run", "run", metavar="ID", help="Which run; by default the newest one without a record.")
def recover_command(report_dir: Path, run: str | None) -> int:
    """Make run.json, report.html and junit.xml of a run that was killed, from the log in its report folder."""
    with as_usage(FolderError):
        folder = Folder.reopen(report_dir, run)
    with folder:
        # Cases were written during the run, too. They are written again, because the kill may have
        # come before the last of them.
        account = Account(on_case=keep_case(folder))
        with folder.log.open("rb") as file:
            for event in log.read_events(file):
                account.take(event)
        # Where the last event is missing, which holds the seconds of the run, nobody knows how long it took.
        ended = account.ended or log.Ended(0.0, [(exit_codes.INCOMPLETE, _LOST)])
        try:
            record = account.run(ended.reasons, seconds=ended.seconds)
        except RecordError as err:
            raise Stop(exit_codes.USAGE, f"{folder.log}: {err}") from err
        fault = write_reports(folder, record)
        return tell_run(make_console(sys.stdout), record, folder.path, fault)
