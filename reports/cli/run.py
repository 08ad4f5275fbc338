"""`opassay run`: plan, folder, session, report files, exit code; in this order, always."""

from __future__ import annotations

import contextlib
import os
import shlex
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
from ..merge import QUESTION_SETTINGS
from ..progress import Teller, is_live, make_console
from ..record import plan_digest
from ..store import log
from ..store.folder import Folder, FolderError
from ..text import one_line
from .host import Host, Stop, is_installed, require
from .options import (
    asking_options,
    find_exclusions,
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
from .reading import as_usage, forgiving_options
from .session import Ending, Request, RunSession
from .summary import tell_run, write_step_summary
from .write import claim_folder, keep_case, read_commit, write_plan, write_reports

#: What a run that goes on has in common with its beginning, besides some settings.
_SAME = ("version", "profile", "seed", "max_examples", "plan_digest")


@click.command("run")
@selection_options
@asking_options
@click.option("-q", "--quiet", is_flag=True, help="Print no failure as it is found, but their causes at the end.")
@click.option("--ctrf", is_flag=True, help="Write ctrf.json, too: the Common Test Report Format.")
@narrowing_options
@world_options
@forgiving_options
@click.pass_obj
def run_command(host: Host, /, ops: tuple[str, ...], **options: Any) -> int:
    """Run cells and write run.json, report.html, junit.xml and cases/ to the report folder.

    The folder is created, or must be one of an earlier run. Ops run in processes apart from this one. With --resume the
    last run in the folder goes on, however it ended: only cells without a verdict are judged.
    """
    require("torch", "mpmath", "hypothesis")  # of the processes that judge
    if options["scheduler"] and not is_installed("distributed"):
        raise Stop(exit_codes.USAGE, 'distributed is not installed; pip install "opassay[verify,cluster]"')
    selection = selection_of(ops, options)
    cells = plan_cells(selection)
    world = world_of(options)
    # Under torchrun every rank runs this command. Rank 0 owns the run; the others serve it and have nothing to report.
    if serve_as_rank(world):
        return exit_codes.OK
    options["workers"] = workers_in(world, options["workers"])
    with Ending() as ending, contextlib.ExitStack() as stack:
        earlier = _reopen_run(options["report_dir"], stack) if options["resume"] else None
        if earlier is not None and options["seed"] is None:
            options["seed"] = earlier[-1].seed
        request = make_request(selection, options, host, cells=len(cells), world=world)
        exclusions = exclude_cells(cells, request, ending)
        if earlier is not None:
            folder, account, began = earlier
            _require_same(folder, began, beginning(folder.run, request, cells))
            return _run(folder, request, account, ending, ctrf=options["ctrf"], quiet=options["quiet"])
        folder = stack.enter_context(claim_folder(options["report_dir"]))
        # Case files are written while the run goes on: a failure must be replayable even if the run is killed after it.
        account = Account(on_case=keep_case(folder))
        # To the log first, to the account afterwards: whatever the record says can then be had from the log, too.
        events: list[log.Event] = [beginning(folder.run, request, cells), *log.plan_events(cells, exclusions)]
        with contextlib.closing(log.LineFile(folder.open_log())) as records:
            for event in events:
                records.write(event)
                account.take(event)
        return _run(folder, request, account, ending, ctrf=options["ctrf"], quiet=options["quiet"])


def _run(folder: Folder, request: Request, account: Account, ending: Ending, *, ctrf: bool, quiet: bool) -> int:
    """The exit code of a run in a folder that is claimed.

    Args:
        folder: where everything is written. request: what was asked for.
        account: the plan, and the verdicts of cells that an earlier session has judged.
        ending: whether the user has asked for the end. ctrf: whether the Common Test Report Format is written, too.
        quiet: whether failures are told by their causes alone.
    """
    console = make_console(sys.stdout)
    mine = [cell for cell in account.cells if cell.key not in account.exclusions]
    missing = [cell for cell in mine if cell.key not in account.finished]
    console.print(_first_line(request, quantity(len(mine), "cell")), soft_wrap=True)
    if len(missing) < len(mine):
        console.print(f"{len(mine) - len(missing)} of {quantity(len(mine), 'cell')} have their verdicts already")
    for earlier in folder.unrecorded()[-3:]:
        again = f"opassay report recover {folder.path} --run {earlier}"
        text = f"an earlier run in this folder ended without its record: {again}"
        console.print(one_line(text, 400), soft_wrap=True)
    records = log.LineFile(folder.open_log())
    write_plan(folder, account)
    github = bool(os.environ.get("GITHUB_ACTIONS"))
    with Teller(console, len(missing), live=is_live(console), github=github, quiet=quiet) as teller:
        session = RunSession(request, account, records, teller, ending)
        reasons = session.run(missing)
        if ending():
            teller.say("interrupted: the report of what is known is being written")
    records.close()
    if records.broken:
        reasons.append((exit_codes.INTERNAL, f"the log could not be written: {records.broken}"))
    forgiven = {"exit_zero": request.exit_zero, "allow_incomplete": request.allow_incomplete}
    run = account.run(reasons, seconds=session.seconds, **forgiven)
    fault = write_reports(folder, run, ctrf=ctrf)
    write_step_summary(run)
    return tell_run(console, run, folder.path, fault)


def _reopen_run(path: Path, stack: contextlib.ExitStack) -> tuple[Folder, Account, log.Began] | None:
    """The last run of a report folder, which is claimed, and its log; None for none, or one that had asked nothing."""
    with as_usage(FolderError), contextlib.ExitStack() as inner:
        run = Folder.last_run(path)
        if run is None:
            return None
        folder = inner.enter_context(Folder.reopen(path, run))
        account = Account(on_case=keep_case(folder))
        with folder.log.open("rb") as file:
            for event in log.read_events(file):
                account.take(event)
        if account.began is None or plan_digest(account.cells) != account.began.plan_digest:
            return None
        stack.push(inner.pop_all())
        return folder, account, account.began


def _require_same(folder: Folder, earlier: log.Began, now: log.Began) -> None:
    """Ends the command where a run would go on with other questions than it was begun with."""
    pairs = [(what, str(getattr(earlier, what)), str(getattr(now, what))) for what in _SAME]
    before, after = earlier.settings, now.settings
    pairs += [(what, before.get(what, "none"), after.get(what, "none")) for what in ("shard", *QUESTION_SETTINGS)]
    for what, old, new in pairs:
        if old != new:
            rule = "need the same, or no --resume"
            text = f"{folder.path}: run {now.run} was begun with other {what}, {one_line(old, 100)}; {rule}"
            raise Stop(exit_codes.USAGE, text)


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


def _first_line(request: Request, what: str) -> str:
    """The first line on the terminal: what is asked, such as `3 cells`, by how many workers, with which versions."""
    versions = surroundings.versions()  # from the metadata of what is installed: this process imports no torch
    text = ", ".join(f"{name} {versions[name]}" for name in ("opassay", "torch", "python") if name in versions)
    settings, workers = request.terms.settings, request.terms.workers
    where = quantity(workers, "worker") if workers else "1 worker at this terminal"
    where = f"the workers of {request.scheduler}" if request.scheduler else where
    return f"opassay run: profile {settings['profile']}, seed {settings['seed']}; {what}, {where}; {text}"


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
    workers = {} if request.scheduler else {"workers": str(request.terms.workers)}
    settings = {**workers, "timeout": f"{request.terms.timeout:g} s"}
    if request.world != World():
        settings["several places"] = str(request.world)
    settings |= {
        name: str(value) for name in ("keyword", "maxfail", "shard", "scheduler") if (value := getattr(request, name))
    }
    forgiven = [name for name in ("exit_zero", "allow_incomplete") if getattr(request, name)]
    return settings | {name.replace("_", " "): "yes" for name in forgiven}


def _command_line(request: Request) -> str:
    # The command is made from what was asked and not from `sys.argv`, so that a seed that was drawn is named in it:
    # typed again, it asks the same questions.
    selection, words = request.selection, ["opassay", "run", *request.selection.ops]
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
    return shlex.join(words)
