"""Where ops over several places run, and which helpers this process has: all that it knows of itself.

What this is for: the declaration of an op over ranks or devices says what runs there; this module says what the ranks
and devices are while a cell is judged: ranks in lockstep and logical devices, unless this process is told otherwise.

What is hard here: a declaration is made when its module is imported, and the process may enter another world after
that. So declarations hold these functions and never what they return. `_HERE` is the only state of `properties`; a
helper process that is started for a cell is kept there, so that whoever ends this process can end all of them without
knowing what they are for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from .names import COMMS, FABRICS

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

    @property
    def in_processes(self) -> bool:
        """Whether the ranks are processes, of which this is one; else they are threads of this process."""
        return self.comm != COMMS[0]

    def lacks(self, device: str) -> str:
        """What this machine lacks to be that world, for tensors on a device; empty if nothing."""
        import torch  # not at the top: the command line names worlds, too, and never loads torch

        if self.comm == "nccl" and device != "cuda":
            return f"nccl moves tensors of CUDA devices; these are on {device}"
        found, size = torch.cuda.device_count(), self.size or 2
        # Ranks of NCCL need a GPU each, and so do the devices of the "cuda" fabric. The "folded" one is a single GPU
        # several times, for which the truth value counts as 1.
        needed = max(size if self.comm == "nccl" or self.fabric == "cuda" else 0, self.fabric == "folded")
        return "" if found >= needed else f"{found} CUDA device{'s' * (found != 1)}, needs {int(needed)}"

    def __str__(self) -> str:
        number = self.size or f"1 to {MOST}"
        ranks = f"{number} ranks of {self.comm}" if self.in_processes else f"{number} ranks in lockstep"
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


class Helper(Protocol):
    """Processes that this one has started, or has joined, for cells that cannot be judged in it alone."""

    def close(self) -> object:
        """End them, or leave them; a helper that has ended already takes this without an error."""


@dataclass
class _Here:
    """The world of this process, the other ranks where they are processes, and helpers by what they are for."""

    world: World = field(default_factory=World)
    peers: Peers | None = None
    helpers: dict[str, Helper] = field(default_factory=dict)


_HERE = _Here()


def here() -> World:
    """The world of this process."""
    return _HERE.world


def enter(world: World, peers: Peers | None = None) -> None:
    """Judge COMM in a world from now on. A process that is one of its ranks already stays that, with its peers."""
    if peers is not None or world != _HERE.world:
        _HERE.world, _HERE.peers = world, peers


def launched() -> bool:
    """Whether torchrun, or the like, started this process as one of several ranks."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


# ---------------------------------------------------------------------------------------------------------- helpers


def helper(name: str) -> Any:
    """The helper that is kept under a name, or None."""
    return _HERE.helpers.get(name)


def helper_of(name: str, start: Callable[[], Any]) -> Any:
    """The helper of a name; it is started, and kept, where there is none."""
    if name not in _HERE.helpers:
        keep(name, start())
    return _HERE.helpers[name]


def keep(name: str, started: Helper) -> None:
    """Keep a helper for the next cell that needs it, and until this process leaves."""
    _HERE.helpers[name] = started


def dismiss(name: str) -> None:
    """End the helper of a name, if there is one."""
    found = _HERE.helpers.pop(name, None)
    if found is not None:
        found.close()


def leave() -> None:
    """End all helpers, and be where a fresh process is; the other ranks, if there are any, may go."""
    try:
        for name in list(_HERE.helpers):
            dismiss(name)
    finally:
        enter(World())


# ---------------------------------------------------------------------------- what declarations hold, and judges call


def tell(case: str) -> None:
    """Have the peers judge a case file with this process, if there are any."""
    if _HERE.peers is not None:
        _HERE.peers.tell(case)


def size(args: Any, rng: Any) -> int:
    """How many ranks a partition has."""
    return _HERE.world.size or int(rng.integers(1, MOST + 1))


def places() -> tuple[int, ...]:
    """Numbers of places to draw from; the smallest first."""
    if _HERE.world.size:
        return (_HERE.world.size,)
    most = MOST
    if _HERE.world.fabric == "cuda":
        import torch  # not at the top: see `World.lacks`

        most = torch.cuda.device_count()
    # Two places are drawn even where there are fewer GPUs: samples are drawn in ordinary cells, too, which have all
    # places on one device, and COMM has refused its cell before that (`World.lacks`).
    return tuple(n for n in (2, 1, 3, 4, 5, 7, MOST) if n <= max(most, 2))


def run(size: int, program: Callable[[Any], Any]) -> list[Any]:
    """What a program of a rank's comm returns on every rank."""
    if _HERE.peers is not None:
        return _HERE.peers.run(program)
    from ..impl.comm import LockstepWorld  # not at the top: it imports torch

    # The order in which ranks take their turns is random, so that no program passes by the luck of one order, but its
    # seed is fixed, so that a failing sample fails again.
    return LockstepWorld(size, order="random", seed=size, forward_mode=True).run(program)


def may_fail() -> bool:
    """Whether ranks may end in an error and others run after them: a process group ends with its first error."""
    return not _HERE.world.in_processes


def fabric(size: int) -> Any:
    """So many devices."""
    from ..impl.comm import CudaFabric, FoldedFabric, HostFabric  # not at the top: they import torch

    if _HERE.world.fabric == "host":
        return HostFabric(size)
    return FoldedFabric(size) if _HERE.world.fabric == "folded" else CudaFabric(range(size))
