"""Processes that judge COMM together, each of them a rank.

Rank 0 draws the samples and says the verdict. The others are told each sample, as a case file, and judge it alike:
every rank runs a program on its own part, all tell each other what it gave, and go on from there in the same way.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.utils._pytree as pytree

from ..impl.comm import TorchComm
from . import worlds
from .worlds import World

_stores: Any = dist  # torch names its stores there without exporting them
#: Seconds that ranks wait for one another; a cell that is compiled by one of them takes less.
DEADLINE = 300.0


class Team:
    """This process among the ranks of a group. Rank 0 makes the others work; they `serve`."""

    def __init__(self, world: World, rank: int, store: Any) -> None:
        limit = datetime.timedelta(seconds=DEADLINE)
        patience = datetime.timedelta(days=1)  # between two samples of COMM there may be any number of other cells
        if world.comm == "nccl":
            torch.cuda.set_device(rank % torch.cuda.device_count())
        dist.init_process_group(world.comm, store=store, rank=rank, world_size=world.size or 1, timeout=limit)
        self.rank = rank
        # A wire of its own: what ranks tell each other must arrive although a collective that is judged did not.
        self._wire = dist.new_group(backend="gloo", timeout=patience)
        self._comm: TorchComm | None = None
        self._all = dist.GroupMember.WORLD
        dist.GroupMember.WORLD = None
        worlds.enter(world, worlds.Peers(self._tell, self._run))

    @contextlib.contextmanager
    def _present(self) -> Iterator[None]:
        """With the group as the default one, which it is to COMM alone: in any other cell an op must not find it."""
        dist.GroupMember.WORLD = self._all
        try:
            yield
        finally:
            dist.GroupMember.WORLD = None

    def serve(self) -> None:
        """Judge what rank 0 judges until it says no more."""
        from .cells import judge_case

        while True:
            told: list[Any] = [None]
            with self._present():
                dist.broadcast_object_list(told, 0, group=self._wire)
            if told[0] is None:
                break
            judge_case(told[0])
        self._leave()

    def close(self) -> None:
        """Let the others go, and leave the group."""
        if self.rank == 0:
            self._tell(None)
        self._leave()
        worlds.enter(World())

    def _leave(self) -> None:
        with self._present():
            dist.destroy_process_group()

    def _tell(self, case: str | None) -> None:
        if self.rank == 0:
            with self._present():
                dist.broadcast_object_list([case], 0, group=self._wire)

    def _run(self, program: Callable[[Any], Any]) -> list[Any]:
        """What a program gives on every rank; the first rank's error, if any had one."""
        with self._present():
            return self._told(program)

    def _told(self, program: Callable[[Any], Any]) -> list[Any]:
        comm = self._comm or TorchComm(deadline=DEADLINE)
        self._comm = comm
        try:
            own: Any = (pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, program(comm)), None)
        except Exception as err:
            own = (None, f"{type(err).__name__}: {err}")
        every: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(every, own, group=self._wire)
        failed = [f"rank {rank}: {text}" for rank, (_, text) in enumerate(every) if text is not None]
        if failed:
            self._comm = None
            raise RuntimeError("; ".join(failed))
        # A GPU of another process is none of this one.
        kind = "cuda" if dist.get_backend() == "nccl" else "cpu"
        return [pytree.tree_map_only(torch.Tensor, lambda t: t.to(kind), found) for found, _ in every]


class LocalTeam:
    """Rank 0 here, and the other ranks in processes that this one starts and ends."""

    def __init__(self, world: World) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="opassay-team-")
        store = Path(self._folder.name) / "store"
        size = world.size or 1
        words = [sys.executable, "-m", "opassay.properties.team", str(store), world.comm, world.fabric, str(size)]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        # Sessions of their own: an interrupt from the terminal is for this process, which then ends them.
        self._processes = [
            subprocess.Popen([*words, str(rank)], env=env, stdin=subprocess.DEVNULL, start_new_session=True)
            for rank in range(1, size)
        ]
        atexit.register(self.close)
        self.team = Team(world, 0, _stores.FileStore(str(store), size))

    def close(self) -> None:
        """End the processes."""
        atexit.unregister(self.close)
        self.team.close()
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes = []
        self._folder.cleanup()


_LOCAL: LocalTeam | None = None
_LAUNCHED: Team | None = None


def join(world: World) -> Team:
    """This process's place among the ranks that torchrun started.

    Raises:
        RuntimeError: it started none.
    """
    global _LAUNCHED
    if not worlds.launched():
        raise RuntimeError("join: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not set, need torchrun.")
    if _LAUNCHED is None:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        # torchrun itself may hold the port, as a server for all its processes.
        agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        store = _stores.TCPStore(host, port, size, is_master=rank == 0 and not agent)
        _LAUNCHED = Team(world, rank, _stores.PrefixStore("opassay", store))
    return _LAUNCHED


def gather(world: World) -> None:
    """Have the ranks of a world together, this process as rank 0; they are started if need be."""
    global _LOCAL
    if worlds.launched():
        join(world)
    elif _LOCAL is None:
        _LOCAL = LocalTeam(world)


def disband() -> None:
    """End what `gather` and `join` began; a later call begins anew."""
    global _LOCAL, _LAUNCHED
    local, launch = _LOCAL, _LAUNCHED
    _LOCAL = _LAUNCHED = None
    if local is not None:
        local.close()
    if launch is not None:
        launch.close()


def main() -> None:
    store, comm, fabric, size, rank = sys.argv[1:]
    torch.set_num_threads(1)
    Team(World(comm, fabric, int(size)), int(rank), _stores.FileStore(store, int(size))).serve()


if __name__ == "__main__":
    main()
