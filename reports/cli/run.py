"""`opassay run`: plan, folder, session, report files, exit code; in this order, always."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from ...oracles.verdicts.verdict import Cell, quantity
from ...properties.engine import environment as surroundings
from ...properties.names import PluginError
from ...properties.places.loading import require_loadable
from ...properties.worlds import World
from .. import exit_codes
from ..collect import Account
from ..exit_codes import Reason
from ..progress import Teller, is_live, make_console
from ..record import Run, plan_digest
from ..store import log
from ..store.folder import Folder, FolderError
from ..store.marker import new_run_id
from ..text import one_line
from .host import Host, Stop, require
from .options import (
    asking_options,
    find_exclusions,
    forgiving_options,
    make_request,
    narrowing_options,
    plan_cells,
    selection_of,
    selection_options,
    serve_as_rank,
    workers_in,
    world_of,
    world_options,
)
from .session import Ending, Request, RunSession
from .summary import tell_run, write_step_summary
from .write import keep_case, write_plan, write_reports


@click.command("run")
@selection_options
@asking_options(workers="Processes that judge; 0: one that shares this terminal, for a debugger.", item="cell")
@click.option("--ctrf", is_flag=True, help="Write ctrf.json, too: the Common Test Report Format.")
@narrowing_options
@world_options
@forgiving_options
@click.pass_obj
def run_command(host: Host, /, ops: tuple[str, ...], **options: Any) -> int:
    """Run cells and write run.json, report.html, junit.xml and cases/ to the report folder.

    The folder is created, or must be one of an earlier run. Ops run in processes apart from this one.
    """
    require("torch", "mpmath", "hypothesis")  # of the processes that judge
    selection = selection_of(ops, options)
    cells = plan_cells(selection)
    world = world_of(options)
    # Under torchrun every rank runs this command. Rank 0 owns the run; the others serve it and have nothing to report.
    if serve_as_rank(world):
        return exit_codes.OK
    options["workers"] = workers_in(world, options["workers"])
    request = make_request(selection, options, host, most=len(cells), shard=options["shard"], world=world)
    with Ending() as ending:
        exclusions = exclude_cells(cells, request, ending)
        with claim_folder(options["report_dir"]) as folder:
            return _run(folder, request, cells, exclusions, ending, ctrf=options["ctrf"])


def _run(
    folder: Folder, request: Request, cells: Sequence[Cell], exclusions: dict[str, str], ending: Ending, *, ctrf: bool
) -> int:  # fmt: skip
    """The exit code of a run in a folder that is claimed.

    Args:
        folder: where everything is written. request: what was asked for. cells: the whole plan.
        exclusions: key of a cell -> why it is not asked. ending: whether the user has asked for the end.
        ctrf: whether the Common Test Report Format is written, too.
    """
    console = make_console(sys.stdout)
    mine = [cell for cell in cells if cell.key not in exclusions]
    console.print(first_line(request, quantity(len(mine), "cell")), soft_wrap=True)
    for earlier in folder.unrecorded()[-3:]:
        again = f"opassay report recover {folder.path} --run {earlier}"
        text = f"an earlier run in this folder ended without its record: {again}"
        console.print(one_line(text, 400), soft_wrap=True)
    # Case files are written while the run goes on: a failure must be replayable even if the run is killed after it.
    account = Account(on_case=keep_case(folder))
    records = log.LineFile(folder.open_log())
    # To the log first, to the account afterwards: whatever the record says can then be had from the log, too.
    events: list[log.Event] = [beginning(folder.run, request, cells), *log.plan_events(cells, exclusions)]
    for event in events:
        records.write(event)
        account.take(event)
    write_plan(folder, account)
    github = bool(os.environ.get("GITHUB_ACTIONS"))
    with Teller(console, len(mine), live=is_live(console), github=github) as teller:
        session = RunSession(request, account, records, teller, ending)
        reasons = session.run(mine)
        if ending():
            teller.say("interrupted: the report of what is known is being written")
    records.close()
    if records.broken:
        reasons.append((exit_codes.INTERNAL, f"the log could not be written: {records.broken}"))
    run = make_record(account, request, reasons, session.seconds)
    fault = write_reports(folder, run, ctrf=ctrf)
    write_step_summary(run)
    return tell_run(console, run, folder.path, fault)


def make_record(account: Account, request: Request, reasons: list[Reason], seconds: float) -> Run:
    """The record of a run that has ended, with what the request forgives."""
    return account.run(reasons, seconds=seconds, exit_zero=request.exit_zero, allow_incomplete=request.allow_incomplete)


def exclude_cells(cells: Sequence[Cell], request: Request, ending: Ending) -> dict[str, str]:
    """Key of a planned cell that is not asked -> why; ends the command if no cell remains or an op does not load."""
    exclusions = find_exclusions(cells, request.shard, request.keyword)
    if len(exclusions) == len(cells):
        raise Stop(exit_codes.NOTHING, "nothing selected: no cell was checked")
    # An op that cannot be loaded is the user's mistake, exit code 2, and is told before the first cell. It is loaded in
    # a process of its own, because a module may do anything while it is imported, ending the process included.
    ops = dict.fromkeys(cell.op for cell in cells if cell.key not in exclusions)
    try:
        require_loadable(tuple(ops), command=request.terms.command, stopped=ending)
    except PluginError as err:
        raise Stop(exit_codes.USAGE, str(err)) from err
    except KeyboardInterrupt:
        raise Stop(exit_codes.INTERRUPT, "interrupted before the first cell") from None
    return exclusions


def claim_folder(path: Path) -> Folder:
    """Claim the report folder of a new run; ends the command where that is not possible."""
    try:
        return Folder.claim(path, new_run_id())
    except FolderError as err:
        raise Stop(exit_codes.USAGE, f"--report-dir: {err}") from err
    except OSError as err:
        raise Stop(exit_codes.INTERNAL, f"--report-dir: {type(err).__name__}: {err}") from err


def first_line(request: Request, what: str) -> str:
    """The first line on the terminal: what is asked, such as `3 cells`, by how many workers, with which versions."""
    versions = surroundings.versions()  # from the metadata of what is installed: this process imports no torch
    text = ", ".join(f"{name} {versions[name]}" for name in ("opassay", "torch", "python") if name in versions)
    settings, workers = request.terms.settings, request.terms.workers
    where = quantity(workers, "worker") if workers else "1 worker at this terminal"
    return f"opassay {request.verb}: profile {settings['profile']}, seed {settings['seed']}; {what}, {where}; {text}"


def beginning(run: str, request: Request, cells: Sequence[Cell]) -> log.Began:
    """The first event of the log of the run of an id: all that the record says beside the verdicts and the plan."""
    commit, dirty = read_commit()
    return log.Began(
        run=run,
        version=surroundings.versions().get("opassay", "unknown"),
        **request.terms.settings,
        plan_digest=plan_digest(cells),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        command=shlex.split(_command_line(request)),
        settings=_settings(request),
        commit=commit,
        dirty=dirty,
    )


def _settings(request: Request) -> dict[str, str]:
    settings = {"workers": str(request.terms.workers), "timeout": f"{request.terms.timeout:g} s"}
    if request.world != World():
        settings["several places"] = str(request.world)
    settings |= {name: str(value) for name in ("keyword", "maxfail", "shard") if (value := getattr(request, name))}
    forgiven = [name for name in ("exit_zero", "allow_incomplete") if getattr(request, name)]
    return settings | {name.replace("_", " "): "yes" for name in forgiven}


def _command_line(request: Request) -> str:
    # The command is made from what was asked and not from `sys.argv`, so that a seed that was drawn is named in it:
    # typed again, it asks the same questions.
    selection, words = request.selection, ["opassay", request.verb, *request.selection.ops]
    axes = {"property": selection.properties, "dtype": selection.dtypes}
    axes |= {"device": selection.devices, "subject": selection.subjects}
    words += [f"--{axis}={name}" for axis, names in axes.items() for name in names]
    profile, seed, most = (request.terms.settings[name] for name in ("profile", "seed", "max_examples"))
    words += [f"--profile={profile}", f"--seed={seed}"]
    usual, world = World(), request.world
    words += [f"--comm={world.comm}"] if world.comm != usual.comm else []
    words += [f"--fabric={world.fabric}"] if world.fabric != usual.fabric else []
    words += [f"--ranks={world.size}"] if world.size != usual.size else []
    words += [f"--max-examples={most}"] if most else []
    words += ["-k", request.keyword] if request.keyword else []
    words += request.more
    return shlex.join(words)


def read_commit() -> tuple[str, bool]:
    """Commit of the working directory and whether it differs; empty outside a repository."""
    # Files that git does not track are left out: a report folder or a scratch file would call nearly every run dirty.
    head = _git_output("rev-parse", "HEAD")
    return head, bool(head) and bool(_git_output("status", "--porcelain", "--untracked-files=no"))


def _git_output(*words: str) -> str:
    try:
        process = subprocess.run(["git", *words], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return one_line(process.stdout, 100) if process.returncode == 0 else ""
