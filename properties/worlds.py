"""Where ops over several places run, and which helper processes this process has.

What this is for: the declaration of an op over ranks or devices says what runs on them; this module decides what the
ranks and devices are while a cell is judged: ranks in lockstep and logical devices, unless `enter` sets another world.

What is hard here: a declaration is made when its module is imported, and the process may enter another world later. So
declarations hold the functions of this module and never their results. `_HERE` is the only state of `properties`; it
has the helper processes that were started for cells, so that `leave` can end all of them, whatever they are for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from .names import COMMS, FABRICS

#: The largest number of places of a sample, where the world has no fixed number.
MOST = 8


@dataclass(frozen=True)
class World:
    """The ranks and devices over which a process judges COMM.

    Attributes:
        comm: one of `COMMS`; with "gloo" and "nccl" this process is one rank of `size`.
        fabric: one of `FABRICS`. size: how many places every sample has; 1 to `MOST` if None.
    """

    comm: str = COMMS[0]
    fabric: str = FABRICS[0]
    size: int | None = None

    @property
    def in_processes(self) -> bool:
        """Whether the ranks are processes, of which this process is one; else they are threads of this process."""
        return self.comm != COMMS[0]

    def lacks(self, device: str) -> str:
        """What this machine lacks for this world, for tensors on a device, in words; empty if nothing."""
        import torch  # not at the top: the command line names worlds, too, and never loads torch

        if self.comm == "nccl" and device != "cuda":
            return f"nccl moves tensors of CUDA devices; these are on {device}"
        count, size = torch.cuda.device_count(), self.size or 2
        # Each rank of NCCL needs a GPU, and so does each device of the "cuda" fabric. The "folded" fabric needs one,
        # and its truth value counts as 1.
        needed = max(size if self.comm == "nccl" or self.fabric == "cuda" else 0, self.fabric == "folded")
        return "" if count >= needed else f"{count} CUDA device{'s' * (count != 1)}, needs {int(needed)}"

    def __str__(self) -> str:
        number = self.size or f"1 to {MOST}"
        ranks = f"{number} ranks of {self.comm}" if self.in_processes else f"{number} ranks in lockstep"
        devices = {"host": "logical devices", "folded": "streams of one GPU", "cuda": "GPUs"}[self.fabric]
        return f"on {ranks} and on {devices}"


@dataclass(frozen=True)
class Peers:
    """Ranks in other processes: `tell` has them judge a case file, too, and `run` a program, whose results it gives."""

    tell: Callable[[str], None]
    run: Callable[[Callable[[Any], Any]], list[Any]]


class Helper(Protocol):
    """Processes that this process has started, or has joined, for cells that it cannot judge alone."""

    def close(self) -> object:
        """End the processes, or leave their group; no error if they have ended already."""


@dataclass
class _Here:
    """The world of this process, the other ranks where they are processes, and the helpers by name."""

    world: World = field(default_factory=World)
    peers: Peers | None = None
    helpers: dict[str, Helper] = field(default_factory=dict)


_HERE = _Here()


def here() -> World:
    """The world of this process."""
    return _HERE.world


def peers() -> Peers | None:
    """The other ranks, where they are processes that this one may ask."""
    return _HERE.peers


def enter(world: World, peers: Peers | None = None) -> None:
    """Judge COMM in a world from now on. A process that is a rank of this world already keeps its peers."""
    if peers is not None or world != _HERE.world:
        _HERE.world, _HERE.peers = world, peers


def launched() -> bool:
    """Whether torchrun, or the like, started this process as one of several ranks."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def helper(name: str) -> Any:
    """The helper of a name, or None."""
    return _HERE.helpers.get(name)


def helper_of(name: str, start: Callable[[], Any]) -> Any:
    """The helper of a name, which is started if there is none."""
    if name not in _HERE.helpers:
        keep(name, start())
    return _HERE.helpers[name]


def keep(name: str, process: Helper) -> None:
    """Keep a helper for the next cell that needs it, until `dismiss` or `leave`."""
    _HERE.helpers[name] = process


def dismiss(name: str) -> None:
    """End the helper of a name, if there is one."""
    if name in _HERE.helpers:
        _HERE.helpers.pop(name).close()


def leave() -> None:
    """End all helpers and return to the world of a fresh process; other ranks, if there are any, may end."""
    try:
        for name in list(_HERE.helpers):
            dismiss(name)
    finally:
        enter(World())


def tell(case: str) -> None:
    """Have the peers judge a case file with this process, if there are any."""
    if _HERE.peers is not None:
        _HERE.peers.tell(case)


def size(args: Any, rng: Any) -> int:
    """The number of ranks of a partition, drawn where the world has no fixed number."""
    return _HERE.world.size or int(rng.integers(1, MOST + 1))


def places() -> tuple[int, ...]:
    """Numbers of places from which a declaration draws; two come first, for which Hypothesis simplifies."""
    if _HERE.world.size:
        return (_HERE.world.size,)
    most = MOST
    if _HERE.world.fabric == "cuda":
        import torch  # not at the top: see `World.lacks`

        most = torch.cuda.device_count()
    # Two places are drawn even where there are fewer GPUs, because ordinary cells draw samples, too, and have all
    # places on one device. A cell of COMM has been refused before that (`World.lacks`).
    return tuple(n for n in (2, 1, 3, 4, 5, 7, MOST) if n <= max(most, 2))


def may_fail() -> bool:
    """Whether ranks may end in an error and others run after them: a process group ends with its first error."""
    return not _HERE.world.in_processes
