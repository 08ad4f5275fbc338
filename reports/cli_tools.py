"""Commands for a person at a terminal: replay, explain, doctor, plugins."""

from __future__ import annotations

import importlib
import os
import shutil
from importlib.metadata import EntryPoint
from pathlib import Path

import click

from ..oracles.verdict import MAX_CASE, Code, Outcome
from ..properties.catalog import CATALOG
from ..properties.plan import plugin_entry_points
from . import exit_codes
from .cli import Stop
from .explain import explain
from .record import RecordError, read_capped
from .text import clean, failure_text, one_line, verdict_line

_MAX_CASE = 2 * MAX_CASE  # bytes


@click.command("replay")
@click.argument("case")
@click.option("--report-dir", type=click.Path(path_type=Path), default=Path("opassay-report"), show_default=True)
def replay_command(case: str, report_dir: Path) -> int:
    """Run a case again; CASE is a file, or an id (or its beginning) of the report folder's cases."""
    path = _case_file(case, report_dir)
    try:
        text = read_capped(path, _MAX_CASE).decode("utf-8")
    except (RecordError, OSError, UnicodeDecodeError) as err:
        raise Stop(exit_codes.USAGE, f"{path.name}: {err}") from err
    cells = importlib.import_module("opassay.properties.cells")
    broken: type[Exception] = getattr(cells, "CaseError", ValueError)
    try:
        verdict = cells.replay_case(text)
    except broken as err:
        raise Stop(exit_codes.USAGE, f"{path.name}: {one_line(str(err), 500)}") from err
    bad = verdict.outcome not in (Outcome.VERIFIED, Outcome.WEAK)
    click.echo(failure_text(verdict) if bad else verdict_line(verdict))
    return exit_codes.choose(exit_codes.run_reasons([verdict]))


@click.command("explain")
@click.argument("code", required=False)
def explain_command(code: str | None) -> int:
    """Say what a reason code means; without CODE, list all."""
    if code is None:
        for known in Code:
            click.echo(f"{known}  {explain(known).splitlines()[0].partition(': ')[2]}")
        return exit_codes.OK
    found = [known for known in Code if code.upper() in (known.value, known.name)]
    if not found:
        raise Stop(exit_codes.USAGE, f"unknown code: got code={code!r}, need one of {', '.join(Code)}")
    click.echo(explain(found[0]))
    return exit_codes.OK


@click.command("doctor")
def doctor_command() -> int:
    """Show the environment that decides verdicts, and what it lacks."""
    surroundings = importlib.import_module("opassay.properties.environment")
    found = surroundings.environment()
    width = max(map(len, found))
    for name, value in found.items():
        click.echo(f"{name:<{width}}  {clean(value)}")
    for line in _lacks(found):
        click.echo(f"note: {line}")
    return exit_codes.OK


@click.command("plugins")
def plugins_command() -> int:
    """List where ops come from; nothing is imported. Loading a plugin runs its code: it must be trusted."""
    click.echo(f"built in: {', '.join(CATALOG)}")
    if os.environ.get("OPASSAY_DISABLE_PLUGIN_AUTOLOAD"):
        click.echo("plugins are off: OPASSAY_DISABLE_PLUGIN_AUTOLOAD is set")
    for point in plugin_entry_points():
        taken = "  (refused: the name is built in)" if point.name in CATALOG else ""
        click.echo(clean(f"{point.name}: {_origin(point)}, {point.value}{taken}"))
    return exit_codes.OK


def _case_file(case: str, report_dir: Path) -> Path:
    path = Path(case)
    if path.is_file():
        return path
    folder = report_dir / "cases"
    safe = all(sign.isalnum() or sign in "-_" for sign in case)
    found = sorted(folder.glob(f"{case}*.json")) if safe and case else []
    exact = [entry for entry in found if entry.stem == case]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if found:
        raise Stop(
            exit_codes.USAGE, f"case {case!r}: {len(found)} cases begin so: {', '.join(p.stem for p in found[:5])}"
        )
    raise Stop(exit_codes.USAGE, f"case {case!r}: no such file, and no such id in {folder} (see --report-dir)")


def _origin(point: EntryPoint) -> str:
    if point.dist is None:
        return "unknown distribution"
    return f"{point.dist.name} {point.dist.version}"


def _lacks(found: dict[str, str]) -> list[str]:
    lines = []
    if shutil.which("c++") is None and shutil.which("g++") is None and shutil.which("clang++") is None:
        lines.append("no C++ compiler: torch.compile cells on the CPU cannot run")
    if found.get("cuda", "not available") == "not available":
        lines.append("no CUDA device: cells of device cuda are not run")
    if "gmpy2" not in found:
        lines.append("no gmpy2: the exact reading is several times slower")
    return lines
