"""The options that `run` and `campaign` share, and the one record of what they ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ...properties.engine.plan import Selection
from ...properties.engine.profiles import PROFILES, default_seed
from ...properties.places.pool import PoolTerms
from ...properties.programs.command import WORKER
from ...properties.worlds import World
from .. import exit_codes
from .host import Host, Stop
from .project.hints import HintedChoice
from .session import Request, worker_count

_GIB = 2**30


def asking_options(*, workers: str, item: str) -> Callable[[Any], Any]:
    """Adds the options that a run and a campaign share to a command.

    Args:
        workers: what the help says of -n. item: what --timeout is the limit of.
    """
    memory = "Memory per process.  [default: a fair share of the machine's]"
    options = (
        click.option("--profile", type=HintedChoice(tuple(PROFILES)), default="commit", show_default=True,
                     help="How much is asked; `opassay explain brief` says what one costs."),
        click.option("--seed", type=int, help="Base seed; by default 0 for commit and brief, else random."),
        click.option("--max-examples", type=click.IntRange(min=1), help="Samples per cell."),
        click.option("-n", "--workers", default="auto", show_default=True, metavar="N", help=workers),
        click.option("--report-dir", type=click.Path(path_type=Path), default=Path("opassay-report"),
                     show_default=True),
        click.option("--maxfail", type=click.IntRange(min=0), default=0, help="Stop after this many failures."),
        click.option("-x", "maxfail", flag_value=1, type=int, help="Stop after the first failure."),
        click.option("--timeout", type=click.FloatRange(min=0.1), default=1200.0, show_default=True,
                     help=f"Seconds per {item}."),
        click.option("--memory", type=click.FloatRange(min=0.5), metavar="GIB", help=memory),
    )  # fmt: skip

    def add(command: Any) -> Any:
        # Decorators are applied from the last to the first, so this gives the options in the order above.
        for option in reversed(options):
            command = option(command)
        return command

    return add


def forgiving_options(command: Any) -> Any:
    """Adds --exit-zero and --allow-incomplete to a command."""
    incomplete = click.option("--allow-incomplete", is_flag=True, help="Exit 0 also if cells are incomplete.")
    failed = click.option("--exit-zero", is_flag=True, help="Exit 0 also if cells failed or are incomplete.")
    return failed(incomplete(command))


def make_request(
    selection: Selection, options: dict[str, Any], host: Host, *, most: int, world: World | None = None, **more: Any
) -> Request:
    """What was asked for, as one record.

    Args:
        selection: names on each axis. options: those of the command line, by name. host: what surrounds the command.
        most: how many workers would have something to do. world: where ops over several places are judged.
        more: fields of the record that one command alone has.

    Raises:
        Stop: --workers is no number.
    """
    profile, seed, memory = options["profile"], options["seed"], options["memory"]
    try:
        workers = worker_count(options["workers"], most)
    except ValueError as err:
        raise Stop(exit_codes.USAGE, f"workers: got {options['workers']!r}, need a count or 'auto'") from err
    settings = {
        "profile": profile,
        "seed": default_seed(profile) if seed is None else seed,
        "max_examples": options["max_examples"],
    }
    places = tuple(asdict(world or World()).values())
    memory = 0 if memory is None else int(memory * _GIB)
    terms = PoolTerms(settings, places, host.worker or WORKER, workers, options["timeout"], memory)
    shared = {name: options[name] for name in ("maxfail", "keyword", "exit_zero", "allow_incomplete")}
    return Request(selection, terms, **shared, worker=host.worker, **more)
