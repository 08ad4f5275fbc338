"""`python -m workshop ptx-mutants`: mistakes planted in compiled kernels, one by one, and how many are refused."""

from __future__ import annotations

import importlib.util
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opassay.reference.dtypes import FORMATS
from opassay.reports import exit_codes
from opassay.reports.cli.host import Stop
from opassay.reports.store.files import write_atomically
from opassay.reports.text import TextTable

from .mutate import require_ops

if TYPE_CHECKING:
    from ..mutation.ptx_campaign import PtxCampaign, PtxFate, PtxSettings

_OUTCOMES = ("killed", "survived", "allowed", "equivalent", "without effect")
#: Seconds between two lines about progress.
_EVERY = 20.0


@click.command("ptx-mutants")
@click.option(
    "--op", "ops", multiple=True, help="An op whose kernels are changed; may be repeated; one of each family."
)
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(tuple(FORMATS)), default=("float32",),
              show_default=True, help="Whose cells are asked; may be repeated.")  # fmt: skip
@click.option("--most", type=click.IntRange(0), default=1, show_default=True,
              help="Mutants of each kind of each op; 0 for all.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Which mutants are chosen.")
@click.option("--seconds", type=click.FloatRange(1), default=30.0, show_default=True, help="CPU seconds for a mutant.")
@click.option("-n", "workers", type=click.IntRange(1), default=1, show_default=True, help="Mutants asked at once.")
@click.option("--json", "into", type=click.Path(dir_okay=False, path_type=Path), help="Write all of it to a file.")
@click.option("--least", type=click.FloatRange(0, 1), default=0.95, show_default=True, help="The score that is needed.")
def ptx_mutants_command(**options: Any) -> int:
    """Plant mistakes in what Triton made of the kernels, and see which questions of subject "ptx" refuse them.

    A mutant is one changed instruction of one compiled kernel: a barrier or a predicate dropped, a comparison off by
    one, `.ftz` added or dropped, operands swapped, another rounding, shuffle distance, address or constant. It is asked
    what the cells ask that execute the kernel. Exit code 1 where the score is below what is needed: of the mutants that
    were killed or survived, those that were killed.
    """
    if importlib.util.find_spec("triton") is None:
        raise Stop(exit_codes.USAGE, "ptx-mutants: Triton is not installed, which compiles the kernels")
    from ..mutation.ptx_campaign import USUAL_OPS, PtxCampaign, PtxSettings, cells_of, machine_of_ops

    ops = require_ops(options["ops"]) if options["ops"] else USUAL_OPS
    settings = PtxSettings(options["seed"], options["most"], options["workers"], options["seconds"])
    campaign = PtxCampaign(machine_of_ops(), cells_of(ops, options["dtypes"]), click.echo)
    score = run_campaign(campaign, settings, options["into"])
    return exit_codes.OK if score >= options["least"] else exit_codes.FAILED


def run_campaign(campaign: PtxCampaign, settings: PtxSettings, into: Path | None) -> float:
    """The score of a campaign, whose fates are printed, and written where a path is given.

    Raises:
        Stop: no kernel was executed.
    """
    mutants = campaign.mutants(settings)
    if not mutants:
        raise Stop(exit_codes.NOTHING, "no kernel was executed")
    click.echo(f"{len(mutants)} mutants, seed {settings.seed}, {settings.workers} at once")
    fates: list[PtxFate] = []
    say = _progress()
    try:
        for fate in campaign.fates(mutants, settings):
            fates.append(fate)
            for line in survivor_lines([fate]):
                click.echo(line)  # at once, because a campaign may take an hour
            say(fates)
    except KeyboardInterrupt:
        click.echo(f"interrupted: what is known of {len(fates)} of {len(mutants)} mutants follows")
    score = score_of(fates)
    for title, key in (("op", lambda fate: fate.mutant.family), ("kind", lambda fate: fate.mutant.kind)):
        click.echo("\n".join(["", *table_of(fates, title, key).lines()]))
    click.echo(f"{sum(fate.seconds for fate in fates) + time.process_time():.0f} s of CPU")
    if into is not None:
        data = {"seed": settings.seed, "score": score, "mutants": [{**asdict(fate)} for fate in fates]}
        write_atomically(into, json.dumps(data, indent=1).encode())
    return score


def _progress() -> Callable[[Sequence[PtxFate]], None]:
    """What prints a line now and then about the fates so far."""
    last = time.monotonic()

    def say(fates: Sequence[PtxFate]) -> None:
        nonlocal last
        if time.monotonic() - last > _EVERY:
            last = time.monotonic()
            counts = Counter(fate.outcome for fate in fates)
            click.echo(", ".join(f"{counts[outcome]} {outcome}" for outcome in _OUTCOMES))

    return say


def score_of(fates: Sequence[PtxFate]) -> float:
    """The share of the killed among the killed and the survivors; 1 for none."""
    counts = Counter(fate.outcome for fate in fates)
    decided_count = counts["killed"] + counts["survived"]
    return counts["killed"] / decided_count if decided_count else 1.0


def table_of(fates: Sequence[PtxFate], title: str, key: Callable[[PtxFate], str]) -> TextTable:
    """A row for each value of a key, and one for all: how many, what became of them, the score, who refused most."""
    groups = defaultdict[str, list["PtxFate"]](list)
    for fate in fates:
        groups[key(fate)].append(fate)
    rows = [_row(name, group) for name, group in (*sorted(groups.items()), ("all", list(fates)))]
    return TextTable((title, "mutants", *_OUTCOMES, "score", "killed by"), rows, [])


def _row(name: str, fates: Sequence[PtxFate]) -> tuple[str, ...]:
    counts = Counter(fate.outcome for fate in fates)
    killers = ", ".join(f"{by} {count}" for by, count in Counter(fate.by for fate in fates if fate.by).most_common(5))
    score = f"{score_of(fates):.1%}" if counts["killed"] + counts["survived"] else "none"
    return name, str(len(fates)), *(str(counts[outcome]) for outcome in _OUTCOMES), score, killers


def survivor_lines(fates: Sequence[PtxFate]) -> list[str]:
    """Every survivor with its place, and what was changed."""
    return [
        f"{each.mutant.kernel} {each.mutant.program}, line {each.mutant.line} [{each.mutant.key}]\n"
        f"  {each.mutant.kind}: {each.mutant.old}  ->  {each.mutant.new}\n"
        f"  asked {each.questions} questions of {each.of} cells"
        for each in fates
        if each.outcome == "survived"
    ]
