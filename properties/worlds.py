"""Where ops over several places run: ranks in lockstep and logical devices, unless this process is told otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .plan import COMMS, FABRICS

#: Places of a sample, where the world has no number of its own.
MOST = 8


@dataclass(frozen=True)
class World:
    """What a process judges COMM on.

    Attributes:
        comm: one of `COMMS`; with "gloo" and "nccl" this process is one rank of `size`.
        fabric: one of `FABRICS`. size: how many places every sample has; None: 1 to `MOST`.
    """

    comm: str = COMMS[0]
    fabric: str = FABRICS[0]
    size: int | None = None

    def lacks(self, device: str) -> str:
        """What this machine lacks to be that world, for tensors on a device; empty if nothing."""
        import torch

        if self.comm == "nccl" and device != "cuda":
            return f"nccl moves tensors of CUDA devices; these are on {device}"
        found, size = torch.cuda.device_count(), self.size or 2
        needed = max(size if self.comm == "nccl" or self.fabric == "cuda" else 0, self.fabric == "folded")
        return "" if found >= needed else f"{found} CUDA device{'s' * (found != 1)}, needs {int(needed)}"

    def __str__(self) -> str:
        number = self.size or f"1 to {MOST}"
        ranks = f"{number} ranks in lockstep" if self.comm == COMMS[0] else f"{number} ranks of {self.comm}"
        devices = {"host": "logical devices", "folded": "streams of one GPU", "cuda": "GPUs"}[self.fabric]
        return f"on {ranks} and on {devices}"


@dataclass(frozen=True)
class Peers:
    """Ranks in other processes.

    Attributes:
        tell: that they judge a case file, too. run: a program on every rank; what each of them returned.
    """

    tell: Callable[[str], None]
    run: Callable[[Callable[[Any], Any]], list[Any]]


_WORLD = World()
_PEERS: Peers | None = None


def enter(world: World, peers: Peers | None = None) -> None:
    """Judge COMM there from now on."""
    global _WORLD, _PEERS
    _WORLD, _PEERS = world, peers


def launched() -> bool:
    """Whether torchrun, or the like, started this process as one of several ranks."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def enter_unless_there(comm: str, fabric: str, size: int | None) -> None:
    """The same by names, where this process is not there already, as one of several ranks may be."""
    world = World(comm, fabric, size)
    if world != _WORLD:
        enter(world)


def here() -> World:
    """The world of this process."""
    return _WORLD


def tell(case: Callable[[], str]) -> None:
    """Have the peers judge a case file with this process, if there are any."""
    if _PEERS is not None:
        _PEERS.tell(case())


def size(args: Any, rng: Any) -> int:
    """How many ranks a partition has."""
    return _WORLD.size or int(rng.integers(1, MOST + 1))


def places() -> tuple[int, ...]:
    """Numbers of places to draw from; the smallest first."""
    if _WORLD.size:
        return (_WORLD.size,)
    most = MOST
    if _WORLD.fabric == "cuda":
        import torch

        most = torch.cuda.device_count()
    return tuple(n for n in (2, 1, 3, 4, 5, 7, MOST) if n <= max(most, 2))


def run(size: int, program: Callable[[Any], Any]) -> list[Any]:
    """What a program of a rank's comm returns on every rank."""
    if _PEERS is not None:
        return _PEERS.run(program)
    from ..impl.comm import LockstepWorld

    return LockstepWorld(size, order="random", seed=size, forward_mode=True).run(program)


def fabric(size: int) -> Any:
    """So many devices."""
    from ..impl.comm import CudaFabric, FoldedFabric, HostFabric

    if _WORLD.fabric == "host":
        return HostFabric(size)
    return FoldedFabric(size) if _WORLD.fabric == "folded" else CudaFabric(range(size))
