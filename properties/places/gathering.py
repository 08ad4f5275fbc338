"""COMM judged by ranks that are processes: those that torchrun started, else ones that are started here.

What this is for: rank 0 is this process, which decides the verdict. If torchrun started it as one of several, the other
ranks are there already and serve it. Otherwise this process starts them, and starts new ones when they have lost each
other, so that one bad op does not take COMM from all ops after it.

What is hard here: ranks meet in a store, and while they wait there, torch hears neither an interrupt nor that a process
has ended. So a rank says in the store that it has come before it enters the group, and rank 0 enters last.
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ...oracles.op.declaration import Op, Sample
from ...oracles.verdicts.verdict import CHECKED, Cell, Code, Verdict
from ...oracles.verdicts.violation import Unsupported
from .. import worlds
from ..engine import cells, samples
from ..worlds import World
from .process import Process
from .rank_team import DEADLINE, Team, arrival

_stores: Any = dist  # torch names its stores there without exporting them
#: Seconds in which ranks that were let go may end by themselves.
_ENDING = 3.0
#: The name under which `worlds` keeps the ranks.
_RANKS = "ranks"


class OnRanks:
    """The place of COMM: the world of this process, with the other ranks where they are processes."""

    def judge(self, cell: Cell, settings: samples.Settings, op: Op | None) -> Verdict:
        """The verdict of a cell; its reason names the world."""
        world = worlds.here()
        # The cell is opened here only for its declaration and its refusals; the engine opens it once more to judge
        # it.
        production = cells.open_cell(cell, light=True, op=op).judge.op.production
        if production.ranks is None and production.devices is None:
            raise Unsupported(Code.NOT_APPLICABLE, f"{cell.op} runs in one place")
        lacks = world.lacks(cell.device)
        if lacks:
            raise Unsupported(Code.NO_DEVICE, lacks)
        # Ranks in lockstep are threads of this process, and no other process has to be told what is judged.
        tell = None
        if world.in_processes:
            if op is not None:
                raise Unsupported(Code.NOT_APPLICABLE, "ranks in other processes know ops by name")
            gather(world)
            tell = worlds.tell
        verdict = cells.judge_cell(cell, settings, op, tell)
        return replace(verdict, reason=f"{verdict.reason}, {world}") if verdict.outcome in CHECKED else verdict

    def replay(self, cell: Cell, sample: Sample, text: str) -> Verdict:
        """The verdict on one sample; no ranks are started for it, but those that are there judge it too."""
        return cells.judge_sample(cell, sample, worlds.tell)


class LocalTeam:
    """Rank 0 here, and the other ranks in processes that this one starts and ends; `deadline` as for `Team`."""

    def __init__(self, world: World, deadline: float = DEADLINE) -> None:
        self.world, self._team = world, None
        self._processes: list[Process] = []
        self._folder = tempfile.TemporaryDirectory(prefix="opassay-team-")
        atexit.register(self.close)
        try:
            self._team = self._started(deadline)
        except BaseException:
            self.close()
            raise

    def _started(self, deadline: float) -> Team:
        path, size = str(Path(self._folder.name) / "store"), self.world.size or 1
        # Rank 0 is this process, so the processes begin with rank 1.
        command = (sys.executable, "-m", "opassay.properties.places.rank_program")
        for rank in range(1, size):
            world = [self.world.comm, self.world.fabric, size]
            hello = {"world": world, "rank": rank, "store": path, "deadline": deadline}
            # Rank 0 is at work here and does not read the output of a rank, which goes where this process's own goes.
            self._processes.append(Process(hello, command=command, reads_output=False, marked=False))
        store = _stores.FileStore(path, size)
        # Where ranks meet, torch hears neither an interrupt nor that a process has ended.
        while not store.check([arrival(rank) for rank in range(1, size)]):
            if not self.whole:
                raise RuntimeError("LocalTeam: a rank's process has ended before it came to the others.")
            time.sleep(0.01)
        return Team(self.world, 0, store, together=True, deadline=deadline)

    @property
    def whole(self) -> bool:
        """Whether all processes run, and the ranks can exchange messages."""
        broken = self._team is not None and self._team.failure
        return not broken and not any(process.ended for process in self._processes)

    def enter(self) -> None:
        """Judge COMM here from now on."""
        assert self._team is not None
        self._team.enter()

    def close(self) -> None:
        """End the processes, whatever state they are in."""
        atexit.unregister(self.close)
        team, self._team = self._team, None
        try:
            if team is not None and team.close():
                # Only ranks that received END get a moment to end. The others wait for a message that will never come,
                # and are ended below.
                end = time.monotonic() + _ENDING
                for process in self._processes:
                    process.dismiss()
                for process in self._processes:
                    process.settle(max(0.0, end - time.monotonic()))
        finally:
            for process in self._processes:
                process.kill()
                process.close()
            self._processes = []
            self._folder.cleanup()


def join(world: World) -> Team:
    """This process's place among the ranks that torchrun started.

    Raises:
        RuntimeError: it started none.
    """
    if not worlds.launched():
        raise RuntimeError("join: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not set, need torchrun.")
    team: Team = worlds.helper_of(_RANKS, lambda: _among_launched(world))
    return team


def _among_launched(world: World) -> Team:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    # torchrun itself may hold the port, as a server for all its processes.
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = _stores.TCPStore(host, port, size, is_master=rank == 0 and not served)
    together = os.environ.get("LOCAL_WORLD_SIZE") == str(size)
    return Team(world, rank, _stores.PrefixStore("opassay", store), together)


def serve_launched(world: World) -> None:
    """Be one of the ranks other than 0 that torchrun started, until rank 0 ends it."""
    join(world).serve(cells.judge_case)


def gather(world: World, deadline: float = DEADLINE) -> None:
    """Bring the ranks of a world together, this process as rank 0. Missing ranks are started, and broken ones replaced.

    Raises:
        RuntimeError: ranks that torchrun started have lost each other, or a rank that was started here has ended.
    """
    if worlds.launched():
        # Ranks that torchrun started cannot be replaced from here, so once they have lost each other COMM can be
        # judged no more.
        launched = join(world)
        if launched.failure:
            raise RuntimeError(f"gather: the ranks that torchrun started have lost each other: {launched.failure}")
        launched.enter()
        return
    local: LocalTeam | None = worlds.helper(_RANKS)
    if local is not None and (local.world != world or not local.whole):
        worlds.dismiss(_RANKS)
    worlds.helper_of(_RANKS, lambda: LocalTeam(world, deadline)).enter()
