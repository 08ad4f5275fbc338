"""Where a run judges ops over several places: the options for it, and what torchrun has to do with them."""

from __future__ import annotations

import os
from typing import Any

import click

from ...properties.names import COMMS, FABRICS
from ...properties.worlds import World, launched
from .. import exit_codes
from .host import Stop
from .project.hints import HintedChoice

#: Ranks of a team that this program starts itself.
RANKS = 3


def world_options(command: Any) -> Any:
    """Adds --comm, --fabric and --ranks to a command."""
    ranks = f"Ranks and devices of every sample.  [default: 1 to 8; {RANKS} with gloo and nccl]"
    command = click.option("--ranks", type=click.IntRange(min=1, max=64), help=ranks)(command)
    fabric = "What devices are, for ops over several: logical ones, streams of one GPU, or GPUs."
    command = click.option("--fabric", type=HintedChoice(FABRICS), default=FABRICS[0], show_default=True, help=fabric)(
        command
    )
    comm = "What ranks are: threads in lockstep, or processes that talk over gloo or NCCL."
    return click.option("--comm", type=HintedChoice(COMMS), default=COMMS[0], show_default=True, help=comm)(command)


def world_of(options: dict[str, Any]) -> World:
    """The world that the options name; under torchrun, of as many ranks as it started."""
    comm, fabric, size = options["comm"], options["fabric"], options["ranks"]
    if launched():
        # torchrun decides how many ranks there are, so an option that says otherwise could
        # only be ignored; it is refused.
        started = int(os.environ["WORLD_SIZE"])
        if comm == COMMS[0]:
            raise Stop(exit_codes.USAGE, f"--comm: got {comm} under torchrun with {started} ranks, need gloo or nccl")
        if size not in (None, started):
            raise Stop(exit_codes.USAGE, f"--ranks: got {size} under torchrun with {started} ranks, need none")
        return World(comm, fabric, started)
    return World(comm, fabric, RANKS if size is None and comm != COMMS[0] else size)


def workers_in(world: World, workers: str) -> str:
    """How many workers: a team of ranks is one, unless the user asks for more; rank 0 of torchrun is one."""
    if launched():
        return "1"
    return "1" if workers == "auto" and world.comm != COMMS[0] else workers


def serve_as_rank(world: World) -> bool:
    """Serves rank 0 until it is done, if torchrun started this process as another rank: rank 0 alone owns the run.

    Returns:
        Whether it did; False at once in any other process.
    """
    if not launched() or os.environ["RANK"] == "0":
        return False
    from ...properties.places.gathering import serve_launched  # here, because it imports torch

    serve_launched(world)
    return True
