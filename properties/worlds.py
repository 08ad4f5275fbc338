"""Where ops over several places run: ranks in lockstep and logical devices, unless this process is told otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..impl.comm import CudaFabric, FoldedFabric, HostFabric, LockstepWorld

COMMS = ("lockstep", "gloo", "nccl")
FABRICS = ("host", "folded", "cuda")
MOST = 8


@dataclass(frozen=True)
class World:
    """What a process judges COMM on.

    Attributes:
        comm: one of `COMMS`; with "gloo" and "nccl" this process is one rank, and `size` says of how many.
        fabric: one of `FABRICS`. size: how many places every sample has; None: 1 to `MOST`.
    """

    comm: str = "lockstep"
    fabric: str = "host"
    size: int | None = None


_WORLD = World()


def enter(world: World) -> None:
    """Judge COMM there from now on."""
    global _WORLD
    _WORLD = world


def size(args: Any, rng: Any) -> int:
    """How many ranks a partition has."""
    return _WORLD.size or int(rng.integers(1, MOST + 1))


def places() -> tuple[int, ...]:
    """Numbers of places to draw from; the smallest first."""
    return (_WORLD.size,) if _WORLD.size else (2, 1, 3, 4, 5, 7, MOST)


def run(size: int, program: Callable[[Any], Any]) -> list[Any]:
    """What a program of a rank's comm returns on every rank."""
    return LockstepWorld(size, order="random", seed=size, forward_mode=True).run(program)


def fabric(size: int) -> Any:
    """So many devices."""
    if _WORLD.fabric == "host":
        return HostFabric(size)
    return FoldedFabric(size) if _WORLD.fabric == "folded" else CudaFabric(range(size))
