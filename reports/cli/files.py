"""Commands that read and write files only: list, report, merge, schema."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ...oracles.verdicts.verdict import AXES, Cell, counted
from ...properties.engine.plan import DTYPES, Selection, in_shard, plan
from ...properties.names import DEVICES, PluginError, SelectionError
from .. import exit_codes
from ..collect import DESELECTED, OTHER_SHARD
from ..keyword import KeywordError, matcher
from ..merge import MissingShards, merge
from ..record import RecordError, Run, encode, load, plan_digest
from ..schemas.documents import NAMES, text_of
from ..store.files import read_capped
from ..store.output import CTRF, JUNIT, PAGE, RECORD, replaceable, write_output
from ..text import headline, one_line
from .host import Stop
from .project.hints import HintedChoice

# What the user can put right ends with 2; a full or broken disk is another matter and ends with 3.
_REFUSED = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP}
    | {errno.ENAMETOOLONG}
)
_FILE = click.Path(path_type=Path, dir_okay=False)


#: What the help of an option says besides, where its values are few or are listed elsewhere.
_VALUES = {
    "property": " `opassay explain` lists them.",
    "dtype": f" One of {', '.join(DTYPES)}.",
    "device": f" One of {', '.join(DEVICES)}.",
    "subject": " `opassay explain` lists them.",
}


def selection_options(command: Any) -> Any:
    """Adds OPS and --op, --property, --dtype, --device, --subject to a command."""
    # Decorators are applied from the last to the first, so this gives the options in the order of AXES.
    for axis in reversed(AXES):
        text = f"Only this {axis}; may be repeated.{_VALUES.get(axis, '')}"
        command = click.option(f"--{axis}", multiple=True, metavar=axis.upper(), help=text)(command)
    return click.argument("ops", nargs=-1)(command)


def selection_of(ops: tuple[str, ...], chosen: dict[str, Any]) -> Selection:
    """The selection that the options name; cpu and opassay where they name no device or subject."""
    context = click.get_current_context(silent=True)
    # Ops that the command line names take the place of those that the project's settings name, as every option does.
    if ops and context is not None and context.get_parameter_source("op") is ParameterSource.DEFAULT_MAP:
        chosen = {**chosen, "op": ()}
    return Selection.of({**chosen, "op": (*ops, *chosen["op"])})


def planned(selection: Selection) -> list[Cell]:
    """The cells of a selection; ends the command with 2 for an unknown name or a broken plugin."""
    try:
        return plan(selection)
    except (SelectionError, PluginError) as err:
        raise Stop(exit_codes.USAGE, str(err)) from err


def load_run(path: Path) -> Run:
    """The record of a file; ends the command with 2 for one that cannot be read."""
    with as_usage():
        return load(path)


def narrowing_options(command: Any) -> Any:
    """Adds -k and --shard to a command."""
    shard = click.option("--shard", metavar="I/N", help="Only part I of N of the cells.")(command)
    return click.option("-k", "keyword", default="", metavar="EXPR", help="Only cells whose name matches.")(shard)


def left_out_by(cells: Sequence[Cell], shard: str | None, keyword: str) -> dict[str, str]:
    """Key of a cell that the two options leave out -> why; ends the command with 2 where they cannot be read."""
    try:
        # Shards are cut from the whole plan, before -k, so that all shards of a run agree on who has which cell.
        here = {cell.key for cell in in_shard(cells, shard)}
        wanted = matcher(keyword) if keyword else lambda name: True
    except (SelectionError, KeywordError) as err:
        raise Stop(exit_codes.USAGE, str(err)) from err
    found = {cell.key: OTHER_SHARD for cell in cells if cell.key not in here}
    return found | {key: DESELECTED for key in here if not wanted(key)}


@contextmanager
def as_usage(*wrong: type[Exception]) -> Iterator[None]:
    """Ends the command with 2 and a sentence for a file that cannot be read, or may not be replaced.

    Args:
        wrong: further exceptions that say what is wrong with what the user has given.
    """
    refused: tuple[type[Exception], ...] = (RecordError, *wrong)
    try:
        yield
    except refused as err:
        raise Stop(exit_codes.USAGE, str(err)) from err
    except OSError as err:
        if err.errno not in _REFUSED:
            raise  # a full or broken disk is no fault of the user
        raise Stop(exit_codes.USAGE, str(err)) from err


@click.command("list")
@selection_options
@narrowing_options
@click.option("--json", "as_json", is_flag=True, help="Cells and the digest of the plan, of all shards, as JSON.")
def list_command(ops: tuple[str, ...], as_json: bool, keyword: str, shard: str | None, **chosen: Any) -> int:
    """Show which cells a run with the same options would ask."""
    selection = selection_of(ops, chosen)
    whole = planned(selection)
    left_out = left_out_by(whole, shard, keyword)
    cells = [cell for cell in whole if cell.key not in left_out]
    if as_json:
        click.echo(json.dumps({"plan_digest": plan_digest(whole), "cells": [_data(cell) for cell in cells]}, indent=1))
    else:
        for cell in cells:
            click.echo(f"{cell.id}  {one_line(cell.key, 600)}")
        # Devices and subjects have defaults, so cells of others are not what a filter of the user removed.
        removed = len(planned(Selection(devices=selection.devices, subjects=selection.subjects))) - len(cells)
        click.echo(f"{counted(len(cells), 'cell')}; the filters removed {removed}", err=True)
    return exit_codes.OK if cells else exit_codes.NOTHING


@click.command("report")
@click.argument("record", type=_FILE)
@click.option("-o", "--output", type=_FILE, default=Path("report.html"), show_default=True)
@click.option("--junit", type=_FILE, help="Write JUnit XML here, too.")
@click.option("--ctrf", type=_FILE, help="Write JSON in the Common Test Report Format here, too.")
@click.option(
    "--history", type=_FILE, help="Database of `opassay history`: cards tell since when a cell fails. RECORD is added."
)
def report_command(record: Path, output: Path, junit: Path | None, ctrf: Path | None, history: Path | None) -> int:
    """Render a run record as one HTML file."""
    from ..exporting.ctrf import to_ctrf
    from ..junit import to_xml
    from ..page.html import render

    run = load_run(record)
    with as_usage():  # all names are looked at before anything is written
        replaceable(output, PAGE)
        others = ((junit, JUNIT, to_xml), (ctrf, CTRF, to_ctrf))
        for path, kind, _ in others:
            if path is not None:
                replaceable(path, kind)
        told = {} if history is None else _histories(record, history)
        write_output(output, PAGE, render(run, None, told).encode("utf-8", "replace"))
        for path, kind, rendered in others:
            if path is not None:
                write_output(path, kind, rendered(run))
    click.echo(str(output))
    return exit_codes.OK


def _histories(path: Path, database: Path) -> dict[str, str]:
    """Key of each cell that fails in a record -> its history, of the runs of the same profile up to this one."""
    from ..over_time.failures import failures_of, sentences
    from ..over_time.history import digest_of, opened
    from ..over_time.trends import runs_of

    if not database.is_file():
        raise RecordError(f"{database}: no such file; need a database that `opassay history` wrote")
    with opened(database) as history:
        history.gather([path])
        runs, own = runs_of(history), digest_of(read_capped(path))
        place = [run.digest for run in runs].index(own)
        return sentences(failures_of(history, [run for run in runs[: place + 1] if run.profile == runs[place].profile]))


@click.command("accuracy")
@click.argument("record", type=_FILE)
def accuracy_command(record: Path) -> int:
    """Print the measured accuracy of each op of a run record, as a table in markdown."""
    from ..accuracy import accuracy, markdown_table

    click.echo(markdown_table(accuracy(load_run(record).verdicts)), nl=False)
    return exit_codes.OK


@click.command("merge")
@click.argument("records", type=_FILE, nargs=-1, required=True)
@click.option("-o", "--output", type=_FILE, default=Path("run.json"), show_default=True)
@click.option("--partial", is_flag=True, help="Write the record also if shards are missing; the exit code stays 4.")
def merge_command(records: tuple[Path, ...], output: Path, partial: bool) -> int:
    """Merge the records of one plan; the exit code is that of the whole."""
    runs = [load_run(path) for path in records]
    with as_usage():
        # Looked at first, so that a target that may not be replaced is told before the records are merged.
        replaceable(output, RECORD)
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


@click.command("schema")
@click.argument("name", type=HintedChoice(NAMES), default="run")
def schema_command(name: str) -> int:
    """Print the JSON Schema of a file: of run.json, or of known.json or budget.json."""
    click.echo(text_of(name), nl=False)
    return exit_codes.OK


def _data(cell: Cell) -> dict[str, str]:
    return {"id": cell.id, "key": cell.key, **{axis: getattr(cell, axis) for axis in AXES}}
