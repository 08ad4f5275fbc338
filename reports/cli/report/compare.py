"""`opassay report compare`: what has changed from one run to another, on the terminal and as a page."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import click
from rich.console import Console

from ... import exit_codes
from ...over_time.comparison import Comparison, Kind, Limits, compare, exit_reasons
from ...progress import make_console, print_wrapped
from ...record import Run
from ...text import duration, number, one_line
from ..reading import FILE, RECORD_PATH, load_run, write_page

_SIGNS = {Kind.NEW: "✕", Kind.WORSE: "▲", Kind.LOST: "–", Kind.FIXED: "■", Kind.BETTER: "▼", Kind.SLOWER: "◷"}
_STYLES = {Kind.NEW: "bold red", Kind.WORSE: "red", Kind.LOST: "yellow", Kind.FIXED: "green", Kind.BETTER: "green"}
_USUAL = Limits()


@click.command("compare")
@click.argument("before", type=RECORD_PATH)
@click.argument("now", type=RECORD_PATH)
@click.option("--html", type=FILE, help="Write the comparison as one HTML file, too.")
@click.option(
    "--worse", type=click.FloatRange(min=1), default=_USUAL.error, show_default=True, metavar="FACTOR",
    help="Tell an error/bound that has become so many times as large.",
)  # fmt: skip
@click.option(
    "--slower", type=click.FloatRange(min=1), default=_USUAL.time, show_default=True, metavar="FACTOR",
    help="Tell a cell that took so many times as long, beside what all cells have changed.",
)  # fmt: skip
@click.option("--most", type=click.IntRange(min=1), default=20, show_default=True, help="Cells shown of each kind.")
@click.option("--partial", is_flag=True, help="NOW was of a selection: other cells are no loss.")
@click.option("--exit-zero", is_flag=True, help="Exit 0 also if cells are new, worse, lost or incomplete.")
def compare_command(
    before: Path, now: Path, html: Path | None, worse: float, slower: float, most: int, partial: bool, exit_zero: bool
) -> int:
    """Say what has changed from the run record BEFORE to the run record NOW.

    New failures, larger errors and lost cells end with 1; cells that crashed, or were not asked, with 4. Slower cells
    and other versions are told and change no exit code.
    \f

    Args:
        before, now: two run.json. html: the page that is written, if any.
        worse, slower: factors from which on a difference is told. most: cells shown of each kind on the terminal.
        partial: cells that only `before` has are no loss. exit_zero: forgives 1 and 4.

    Raises:
        Stop: a record cannot be read, or the page cannot be written.
    """
    runs = load_run(before), load_run(now)
    comparison = compare(*runs, Limits(worse, slower))
    if html is not None:
        from ...over_time.pages import comparison_page

        write_page(html, comparison_page(comparison, *runs))
    console = make_console(sys.stdout)
    _print_head(console, comparison, runs)
    _print_changes(console, comparison, most)
    if html is not None:
        console.print(f"page    {html}", soft_wrap=True)
    reasons = exit_reasons(comparison, partial=partial)
    code = exit_codes.most_urgent(reasons, exit_zero=exit_zero)
    word = "ok" if code == exit_codes.OK else "FAIL"
    print_wrapped(console, f"compare: {word} (exit {code}), {_count_changes(comparison)}")
    for urgent, text in reasons:
        if urgent in (exit_codes.NOTHING, exit_codes.INCOMPLETE) and code == urgent:
            print_wrapped(console, f"exit {urgent}: {one_line(text, 400)}")
            break
    return code


def _print_head(console: Console, comparison: Comparison, runs: tuple[Run, Run]) -> None:
    for name, run in zip(("before", "now"), runs, strict=True):
        commit = f", commit {run.commit[:12]}" if run.commit else ""
        text = f"{run.started}{commit}, profile {run.profile}, seed {run.seed}; {duration(run.seconds)}"
        console.print(f"{name:<6}  {one_line(text, 400)}", soft_wrap=True)
    for difference in comparison.differences:
        values = f"{one_line(difference.before, 80) or 'none'} -> {one_line(difference.now, 80) or 'none'}"
        print_wrapped(console, f"differs {one_line(difference.name, 60)}: {values}")
    if comparison.other_inputs:
        text = f"other inputs ({', '.join(comparison.other_inputs)}): the largest errors may differ by chance"
        print_wrapped(console, text, "yellow")


def _print_changes(console: Console, comparison: Comparison, most: int) -> None:
    for kind in Kind:
        changes = comparison.of(kind)
        for change in changes[:most]:
            again = f"; {one_line(change.again, 600)}" if change.again else ""
            text = f"{_SIGNS[kind]} {kind:<6}  {one_line(change.cell, 600)}  {one_line(change.text)}{again}"
            print_wrapped(console, text, _STYLES.get(kind, ""))
        if len(changes) > most:
            console.print(f"  and {len(changes) - most} more {kind}; --most {len(changes)} shows all", soft_wrap=True)
    before, now = (sum(getattr(time, name) for time in comparison.times) for name in ("before", "now"))
    if comparison.times:
        ratio = number(comparison.pace)
        pace = "as long as before" if ratio == "1" else f"{ratio} times as long"
        pace = "" if math.isnan(comparison.pace) else f"; a typical cell took {pace}"
        console.print(f"time    {duration(before)} -> {duration(now)} for the cells that both checked{pace}")


def _count_changes(comparison: Comparison) -> str:
    counts = [f"{len(comparison.of(kind))} {kind}" for kind in Kind if comparison.of(kind)] or ["nothing has changed"]
    counts += [f"{comparison.added} added"] if comparison.added else []
    counts += [f"{len(comparison.absent)} not asked any more"] if comparison.absent else []
    return f"{', '.join(counts)}; {comparison.both} cells in both"
