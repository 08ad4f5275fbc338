"""`python -m workshop mutate`: mistakes planted in the production ops, one by one, and how many are refused."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.status import Status

from opassay.properties.catalog import CATALOG
from opassay.properties.catalog.loading import op_names
from opassay.properties.names import PluginError
from opassay.properties.places.process import AnswerError, EndedError
from opassay.reports import exit_codes
from opassay.reports.cli.host import Stop
from opassay.reports.progress import is_live, make_console
from opassay.reports.store.files import write_atomically

from ..functions import FUNCTION
from ..mutation import campaign as campaigns
from ..mutation.equivalents import Equivalent, read_equivalents, stale
from ..mutation.mutants import Mutant
from . import mutant_tables
from .mutant_log import Record, exclusions_of, fates, graph_mutants_of, heading_of, open_log

#: Seconds between two lines about progress where there is no terminal.
_EVERY = 20.0


@click.command("mutate")
@click.option("--op", "ops", multiple=True, help="An op whose questions are asked; may be repeated; all.")
@click.option("--file", "files", multiple=True, help="Only mutants of these files of impl/, or folders; all.")
@click.option("--most", type=click.IntRange(0), default=40, show_default=True, help="Mutants per family; 0 for all.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Which mutants are chosen.")
@click.option("--seconds", type=click.FloatRange(1), default=30.0, show_default=True,
              help="CPU seconds that a mutant is asked by the ops of one module.")  # fmt: skip
@click.option("-n", "workers", type=click.IntRange(1), default=1, show_default=True, help="Mutants asked at once.")
@click.option("--log", "path", type=click.Path(dir_okay=False, path_type=Path), default=Path("mutants.jsonl"),
              show_default=True, help="A line for every trial.")  # fmt: skip
@click.option(
    "--resume", is_flag=True, help="Go on with the campaign of the log; with more --seconds, also where they were over."
)
@click.option("--graph", is_flag=True, help="Mutants of the graph: operations of torch changed, and not the text.")
@click.option("--table", is_flag=True, help="Ask nothing: the table of what is in the log.")
@click.option("--json", "into", type=click.Path(dir_okay=False, path_type=Path), help="Write all of it to a file.")
@click.option("--least", type=click.FloatRange(0, 1), default=0.98, show_default=True, help="The score that is needed.")
@click.option("--equivalents", is_flag=True, help="Ask those that the table calls equivalent, too.")
def mutate_command(**options: Any) -> int:
    """Plant mistakes in the ops one by one, and see which questions refuse them.

    A mutant is a changed operator, constant, condition, argument, call or statement in code that an op runs on this
    machine. With --graph it is a changed operation of torch where an op asks for it: another operation, operand, axis,
    constant, format or mask, or a dropped term; --most is then of each family per module of ops. Exit code 1 where the
    score, of mutants that are not equivalent, is below what is needed; 2 where the table of equivalent ones is stale or
    wrong.
    """
    ops, settings = (
        require_ops(options["ops"]),
        campaigns.Settings(**{name: options[name] for name in campaigns.SETTINGS}),
    )
    table = read_equivalents()
    _require_present(table)
    files = options["files"] or ("",)
    within = [] if settings.graph else campaigns.every_mutant(files)
    if not within and not settings.graph:
        raise Stop(exit_codes.NOTHING, f"--file: no mutant in {', '.join(options['files'])}")
    mutants = campaigns.choose_mutants(within, settings)
    heading = heading_of(ops, settings)
    records = open_log(options["path"], heading, options["resume"] or options["table"])
    interrupted = False
    if not options["table"]:
        is_candidate = campaigns.MutantFilter(files, () if options["equivalents"] else table)
        candidates = [m for m in mutants if is_candidate(m)]
        interrupted = not _carry_out(ops, candidates, settings, records, options["path"], is_candidate)
    mutants += graph_mutants_of(records)
    return (
        _report(mutants, records, table, heading, options)
        if not interrupted
        else _report_part(mutants, records, table, heading, options)
    )


def _require_present(table: Sequence[Equivalent]) -> None:
    absent = stale(table, campaigns.every_mutant(sorted({one.file for one in table})) if table else [])
    if absent:
        place = f"{absent[0].file}: {absent[0].function}"
        raise Stop(exit_codes.USAGE, f"equivalent_changes: {place} has no more {absent[0].old!r} -> {absent[0].new}")


def require_ops(names: Sequence[str]) -> tuple[str, ...]:
    """The ops of these names, all without names; Stop where there is no such op."""
    try:
        every = (*op_names(), FUNCTION)
    except PluginError as err:
        raise Stop(exit_codes.USAGE, str(err)) from None
    catalog = (*CATALOG, FUNCTION)
    unknown = [name for name in names if name not in catalog]
    if unknown:
        raise Stop(exit_codes.USAGE, f"unknown op: got op={unknown[0]!r}, need one of {', '.join(catalog)}")
    return tuple(name for name in every if name in (names or catalog))


def _carry_out(
    ops: Sequence[str], mutants: Sequence[Mutant], settings: campaigns.Settings, records: list[Record], path: Path,
    is_candidate: campaigns.MutantFilter,
) -> bool:  # fmt: skip
    """Ask what is left to ask, a line of the log for each; whether it came to its end."""
    console = make_console(sys.stdout)
    count = "mutants of the graph" if settings.graph else f"{len(mutants)} mutants"
    console.print(f"opassay mutate: {count}, seed {settings.seed}, {settings.workers} at once; log {path}")
    progress = _Progress(console)
    with path.open("a", encoding="utf-8") as log, progress:
        try:
            for record in campaigns.campaign(ops, mutants, settings, list(records), progress.say, is_candidate):
                log.write(json.dumps(record) + "\n")
                log.flush()
                records.append(record)
                progress.count(record)
        except KeyboardInterrupt:
            return False
        except (EndedError, AnswerError) as err:
            raise Stop(exit_codes.INTERNAL, f"the process that tries mutants {err}; go on with --resume") from None
    return True


class _Progress:
    """What is shown while mutants are asked: a line that changes on a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console, self._counts = console, dict[str, int]()
        self._status: Status | None = console.status("") if is_live(console) else None
        self._line_time = 0.0

    def __enter__(self) -> _Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    def count(self, record: Record) -> None:
        if "outcome" not in record:
            return
        self._counts[record["outcome"]] = self._counts.get(record["outcome"], 0) + 1
        counted = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self._counts.items()))
        text = f"{record['group']}: {counted}"
        if self._status is not None:
            self._status.update(text)
        elif time.monotonic() - self._line_time > _EVERY:
            self._line_time = time.monotonic()
            self.say(text)


def _report(
    mutants: Sequence[Mutant], records: Sequence[Record], table: Sequence[Equivalent], heading: dict[str, Any],
    options: dict[str, Any],
) -> int:  # fmt: skip
    """Print the table, write the file; the exit code."""
    all_fates = fates(mutants, records, table)
    click.echo("\n".join(mutant_tables.family_table(all_fates).lines()))
    exclusions = exclusions_of(records)
    lines = [*mutant_tables.survivor_lines(all_fates), *mutant_tables.exclusion_lines(exclusions)]
    click.echo("\n".join(lines))
    if options["into"] is not None:
        write_atomically(
            options["into"], json.dumps(mutant_tables.as_data(heading, all_fates, exclusions), indent=1).encode()
        )
    wrong = mutant_tables.contradictions(all_fates)
    if wrong:
        raise Stop(exit_codes.USAGE, "equivalent_changes: " + "\n".join(wrong))
    if not any(fate.outcome in ("killed", "survived") for fate in all_fates):
        raise Stop(exit_codes.NOTHING, "no mutant was asked")
    return exit_codes.OK if mutant_tables.score_of(all_fates) >= options["least"] else exit_codes.FAILED


def _report_part(
    mutants: Sequence[Mutant], records: Sequence[Record], table: Sequence[Equivalent], heading: dict[str, Any],
    options: dict[str, Any],
) -> int:  # fmt: skip
    _report(mutants, records, table, heading, {**options, "least": 0.0})
    raise Stop(exit_codes.INTERRUPT, "interrupted; --resume goes on")
