"""`opassay run`: plan, session, collection, report files, exit code; in this order, always."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from ..oracles.verdict import Cell
from ..properties import environment as surroundings
from ..properties.plan import Selection, SelectionError
from ..properties.plugin import default_seed
from ..properties.profiles import PROFILES
from ..properties.worlds import World
from . import exit_codes
from .cli import Host, Stop
from .cli_files import planned, selection_of, selection_options
from .cli_session import Request, fresh_folder, run_session, select, worker_count
from .cli_summary import print_end, print_summary, write_step_summary
from .cli_world import serves, together, workers_in, world_of, world_options
from .collect import read_events, verdicts
from .exit_codes import Reason
from .progress import Teller, is_live, make_console, output
from .record import Run, plan_digest, save, write_atomically
from .text import one_line


@click.command("run")
@selection_options
@click.option("--profile", type=click.Choice(tuple(PROFILES)), default="commit", show_default=True)
@click.option("--seed", type=int, help="Base seed; by default 0 for commit, else random.")
@click.option("--max-examples", type=click.IntRange(min=1), help="Samples per cell.")
@click.option("-n", "--workers", default="auto", show_default=True, metavar="N", help="Processes; 0: this one.")
@click.option("--report-dir", type=click.Path(path_type=Path), default=Path("opassay-report"), show_default=True)
@click.option("--maxfail", type=click.IntRange(min=0), default=0, help="Stop after this many failures.")
@click.option("-x", "maxfail", flag_value=1, type=int, help="Stop after the first failure.")
@click.option("-k", "keyword", default="", metavar="EXPR", help="Only cells whose name matches.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=1200.0, show_default=True, help="Seconds per cell.")
@click.option("--shard", metavar="I/N", help="Only part I of N of the cells.")
@world_options
@click.option("--exit-zero", is_flag=True, help="Exit 0 also if cells failed or are incomplete.")
@click.option("--allow-incomplete", is_flag=True, help="Exit 0 also if cells are incomplete.")
@click.pass_obj
def run_command(host: Host, /, ops: tuple[str, ...], **options: Any) -> int:
    """Run cells and write run.json, report.html, junit.xml and cases/ to the report folder."""
    selection = selection_of(ops, options)
    cells = planned(selection)
    world = world_of(options)
    if serves(world):
        return exit_codes.OK
    request = _request(selection, cells, world, options, host)
    folder: Path = options["report_dir"]
    console = make_console(output())
    mine = _shard(cells, request.shard)
    if not mine:
        raise Stop(exit_codes.NOTHING, "nothing selected: the plan has no cell")
    _prepare(folder, cells, request)
    console.print(_first_line(request, len(mine)), soft_wrap=True)
    start, started = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    github = bool(os.environ.get("GITHUB_ACTIONS"))
    with Teller(console, len(mine), live=is_live(console), github=github) as teller, together(world):
        reasons = run_session(request, folder / "events", teller)
    run = _collect(request, cells, mine, folder, reasons, started, time.perf_counter() - start, options)
    _write_reports(folder, run)
    print_summary(console, run)
    write_step_summary(run)
    print_end(console, run, folder)
    return run.exit_code


def _request(selection: Selection, cells: Sequence[Cell], world: World, options: dict[str, Any], host: Host) -> Request:
    profile, seed = options["profile"], options["seed"]
    try:
        workers = worker_count(workers_in(world, options["workers"]), len(cells))
    except ValueError as err:
        raise Stop(exit_codes.USAGE, f"workers: got {options['workers']!r}, need a count or 'auto'") from err
    return Request(
        selection=selection,
        profile=profile,
        seed=default_seed(profile) if seed is None else seed,
        max_examples=options["max_examples"],
        workers=workers,
        maxfail=options["maxfail"],
        keyword=options["keyword"],
        timeout=options["timeout"],
        shard=options["shard"],
        world=world,
        pytest_args=host.pytest_args,
    )


def _shard(cells: Sequence[Cell], shard: str | None) -> list[Cell]:
    try:
        return select(cells, shard)
    except SelectionError as err:
        raise Stop(exit_codes.USAGE, str(err)) from err


def _prepare(folder: Path, cells: Sequence[Cell], request: Request) -> None:
    try:
        fresh_folder(folder / "events")
    except (ValueError, OSError) as err:
        raise Stop(exit_codes.USAGE, f"--report-dir: {err}") from err
    lines = ",\n".join(f'  "{cell.key}"' for cell in cells)
    head = f'"plan_digest": "{plan_digest(cells)}", "seed": {request.seed}, "profile": "{request.profile}"'
    write_atomically(folder / "plan.json", f'{{{head}, "cells": [\n{lines}\n]}}\n'.encode())


def _first_line(request: Request, cells: int) -> str:
    versions = surroundings.versions()
    shown = ", ".join(f"{name} {versions[name]}" for name in ("opassay", "torch", "python") if name in versions)
    where = f"{request.workers} workers" if request.workers else "this process"
    return f"opassay run: profile {request.profile}, seed {request.seed}; {cells} cells, {where}; {shown}"


def _collect(
    request: Request,
    cells: Sequence[Cell],
    mine: Sequence[Cell],
    folder: Path,
    reasons: list[Reason],
    started: str,
    seconds: float,
    options: dict[str, Any],
) -> Run:
    events = read_events(folder / "events")
    stopped = "interrupted before the end" if any(c == exit_codes.INTERRUPT for c, _ in reasons) else ""
    elsewhere = {cell.key for cell in cells} - {cell.key for cell in mine}
    found = verdicts(cells, events, interrupted=stopped, elsewhere=elsewhere)
    reasons = [*reasons, *exit_codes.run_reasons(found)]
    commit, dirty = _git()
    return Run(
        version=surroundings.versions().get("opassay", "unknown"),
        profile=request.profile,
        seed=request.seed,
        plan_digest=plan_digest(cells),
        started=started,
        verdicts=found,
        commit=commit,
        dirty=dirty,
        command=tuple(shlex.split(_command(request))),
        max_examples=request.max_examples,
        settings=_settings(request, options),
        environment=events.environment or surroundings.versions(),
        seconds=seconds,
        notes=tuple(events.notes),
        exit_code=exit_codes.choose(
            reasons, exit_zero=options["exit_zero"], allow_incomplete=options["allow_incomplete"]
        ),
        exit_reasons=tuple(text for _, text in reasons),
    )


def _settings(request: Request, options: dict[str, Any]) -> dict[str, str]:
    found = {"workers": str(request.workers), "timeout": f"{request.timeout:g} s"}
    if request.world != World():
        found["several places"] = str(request.world)
    for name in ("keyword", "maxfail", "shard"):
        if options[name]:
            found[name] = str(options[name])
    for name in ("exit_zero", "allow_incomplete"):
        if options[name]:
            found[name.replace("_", " ")] = "yes"
    return found


def _command(request: Request) -> str:
    chosen, words = request.selection, ["opassay", "run", *request.selection.ops]
    axes = {"property": chosen.properties, "dtype": chosen.dtypes}
    axes |= {"device": chosen.devices, "subject": chosen.subjects}
    words += [f"--{axis}={name}" for axis, names in axes.items() for name in names]
    words += [f"--profile={request.profile}", f"--seed={request.seed}"]
    usual, world = World(), request.world
    words += [f"--comm={world.comm}"] if world.comm != usual.comm else []
    words += [f"--fabric={world.fabric}"] if world.fabric != usual.fabric else []
    words += [f"--ranks={world.size}"] if world.size != usual.size else []
    if request.max_examples:
        words.append(f"--max-examples={request.max_examples}")
    if request.keyword:
        words += ["-k", request.keyword]
    return shlex.join(words)


def _write_reports(folder: Path, run: Run) -> None:
    """Cases first, then the record, then its renderings: what is lost in a fault is the least."""
    from .html import render
    from .junit import to_xml

    write_cases(folder / "cases", run)
    save(folder / "run.json", run)
    write_atomically(folder / "junit.xml", to_xml(run))
    write_atomically(folder / "report.html", render(run).encode("utf-8", "replace"))


def write_cases(folder: Path, run: Run) -> None:
    """One file per failure, named by its case id."""
    for verdict in run.verdicts:
        failure = verdict.failure
        if failure is None or not failure.case or not failure.case_id:
            continue
        name = "".join(sign for sign in failure.case_id if sign.isalnum() or sign in "-_")[:80]
        write_atomically(folder / f"{name}.json", failure.case.encode("utf-8", "replace"))


def _git() -> tuple[str, bool]:
    """Commit of the working directory and whether it differs; empty outside a repository."""
    head = _git_output("rev-parse", "HEAD")
    return head, bool(head) and bool(_git_output("status", "--porcelain", "--untracked-files=no"))


def _git_output(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return one_line(done.stdout, 100) if done.returncode == 0 else ""
