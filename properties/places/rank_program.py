"""The program of a rank that `gathering.LocalTeam` starts: it meets the others, and judges what rank 0 judges."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ..engine.cells import judge_case
from ..worlds import World
from .rank_team import Team, arrival
from .serving import serve

_stores: Any = dist  # torch names its stores there without exporting them


def _judge(hello: dict[str, Any]) -> dict[str, str]:
    """Be the rank that the owner names, until rank 0 ends it; the answer to the hello is empty."""
    torch.set_num_threads(1)
    world, rank = World(*hello["world"]), int(hello["rank"])
    store = _stores.FileStore(hello["store"], world.size)
    store.set(arrival(rank), "")
    Team(world, rank, store, together=True, deadline=float(hello["deadline"])).serve(judge_case)
    return {}


def _refuse(question: dict[str, Any]) -> dict[str, Any]:
    """Refuse a question of the owner, because rank 0 tells a rank over the wire what to judge."""
    raise ValueError(f"a rank is asked nothing by its owner: got {sorted(question)}")


if __name__ == "__main__":
    serve(_judge, _refuse)
