"""Processes that judge COMM together, each of them a rank.

Rank 0 draws the samples and says the verdict. The others are told each sample, as a case file, and judge it alike:
every rank runs a program on its own part, all tell each other what it gave, and go on from there in the same way.

What ranks say goes over a group of its own, the wire, and always in one way: every rank says one thing, and hears what
all said. A rank that has left a case, for whatever reason, is found out where the others begin a program without it.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.utils._pytree as pytree

from ..impl.comm import Board, CommError, TorchComm
from ..oracles.state import interrupt
from . import worlds
from .lifeline import end_with
from .worlds import World

_stores: Any = dist  # torch names its stores there without exporting them
#: Seconds that a collective waits for the other ranks, which are at work on the same sample.
DEADLINE = 60.0
#: Seconds that ranks wait for each other where they first meet.
_MEETING = 60.0
#: Seconds that a rank waits to be told something: between two samples of COMM there may be any number of other cells.
_PATIENCE = 86400.0
#: Seconds for the others to hear that they may go, and then to end by themselves.
_FAREWELL, _ENDING = 1.0, 3.0

#: What a rank says: rank 0, that there is a case or none any more; the others, that they have none; and all, that they
#: have come to a program, and what it gave.
_CASE, _END, _FREE, _RUN, _RAN = "case", "end", "free", "run", "ran"


class _ApartError(RuntimeError):
    """The ranks can tell each other nothing any more."""


class Team:
    """This process among the ranks of a world. Rank 0 makes the others work; they `serve`.

    Args:
        store: where the ranks meet. together: whether they are on one machine.
        deadline: seconds that a collective of a program waits for the other ranks.

    Attributes:
        broken: why the ranks can tell each other nothing any more, or empty.
    """

    def __init__(self, world: World, rank: int, store: Any, together: bool, deadline: float = DEADLINE) -> None:
        if world.comm == "nccl":
            torch.cuda.set_device(rank % torch.cuda.device_count())
        self.world, self.rank, self.broken = world, rank, ""
        self._together, self._deadline = together, deadline
        self._board: Board | None = None  # which rank 0 has made for the next group
        self._comm: TorchComm | None = None  # for programs; there is none at first, and after one has failed
        self._next: tuple[str, Any] | None = None  # what rank 0 said to a rank that was elsewhere
        meeting = datetime.timedelta(seconds=_MEETING)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world.size or 1, timeout=meeting)
        self._all = dist.GroupMember.WORLD
        try:
            wire = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=_PATIENCE))
            # It looks up every now and then, so that an interrupt gets through, and may end with a call in flight.
            self._wire = TorchComm(wire, fingerprints=False, deadline=_PATIENCE)
        except BaseException:
            dist.destroy_process_group()
            raise
        dist.GroupMember.WORLD = None
        self.enter()

    def enter(self) -> None:
        """Judge COMM here from now on."""
        worlds.enter(self.world, worlds.Peers(self._tell, self._run))

    def serve(self) -> None:
        """Judge what rank 0 judges, until it says no more or is gone."""
        from .cells import judge_case

        left = ""  # why this rank has left the last case, if by an error
        with contextlib.suppress(_ApartError):
            while True:
                kind, said = self._next or self._exchange(_FREE, left)[0]
                self._next, left = None, ""
                if kind == _END:
                    break
                if kind == _CASE:
                    try:
                        judge_case(said)
                    except Exception as err:  # the verdict is for rank 0 to say, which has most likely had the same
                        left = f"{type(err).__name__}: {err}"
        self.close()

    def close(self) -> bool:
        """Leave the groups, and let the others go; whether they were told. Nothing is waited for for long."""
        told = False
        try:
            if self.rank == 0 and not self.broken:
                self._wire.deadline = _FAREWELL
                with contextlib.suppress(_ApartError):
                    self._exchange(_END)
                    told = True
        finally:
            self.broken = self.broken or "this team is closed"
            for board in (self._board, None if self._comm is None else self._comm.board):
                if board is not None:
                    board.close()
            self._board = self._comm = None
            if self._all is not None:
                with self._as_default(self._all):
                    dist.destroy_process_group()
            self._all = None
        return told

    # ------------------------------------------------------------------------------------------------------ the wire

    @contextlib.contextmanager
    def _as_default(self, group: Any) -> Iterator[None]:
        """With a group as the default one, which it is to COMM alone: in any other cell an op must find none."""
        dist.GroupMember.WORLD = group
        try:
            yield
        finally:
            dist.GroupMember.WORLD = None

    @contextlib.contextmanager
    def _breaking(self) -> Iterator[None]:
        """After any exception from within, an interrupt too, nobody knows what the other ranks wait for."""
        try:
            yield
        except BaseException as err:
            self.broken = self.broken or f"{type(err).__name__}: {err}"
            raise

    def _exchange(self, kind: str, payload: Any = None) -> list[tuple[str, Any]]:
        """Say something, and hear what every rank says."""
        if self.broken:
            raise _ApartError(f"the ranks have lost each other: {self.broken}")
        with self._breaking(), self._as_default(self._all):
            own = torch.frombuffer(bytearray(pickle.dumps((kind, payload))), dtype=torch.uint8)
            try:
                found = self._wire.all_gather(own)
            except CommError as err:
                raise _ApartError(f"the ranks have lost each other: {err}") from err
            return [pickle.loads(each.numpy().tobytes()) for each in found]

    def _tell(self, case: str) -> None:
        if self.rank == 0:
            self._exchange(_CASE, case)

    # -------------------------------------------------------------------------------------------------- the programs

    def _run(self, program: Callable[[Any], Any]) -> list[Any]:
        """What a program gives on every rank.

        Raises:
            RuntimeError: it raised on some, which are named, or some have not come to it.
        """
        path = self._begin()
        with self._breaking():
            comm = self._comm = self._comm or self._new_comm(path)
            with self._as_default(comm.group):
                own = _outcome(program, comm)
        every = [said for _, said in self._exchange(_RAN, own)]
        failed = [(rank, text) for rank, (_, text) in enumerate(every) if text is not None]
        if failed:
            with self._breaking():
                self._retire(comm)
            failed.sort(key=lambda each: each[1].startswith(CommError.__name__))  # which others are the cause of
            raise RuntimeError("\n".join(f"rank {rank}: {text}" for rank, text in failed))
        # A GPU of another process is none of this one.
        kind = "cuda" if self.world.comm == "nccl" else "cpu"
        return [pytree.tree_map_only(torch.Tensor, lambda t: t.to(kind), found) for found, _ in every]

    def _begin(self) -> str:
        """See that every rank has come to the program; where the board for a new group is, or empty."""
        if self.rank == 0 and self._together and not (self._comm or self._board or self.broken):
            self._board = Board.create(self.world.size or 1)
        told = self._exchange(_RUN, "" if self._board is None else self._board.path) if self._next is None else []
        if self._next is not None or told[0][0] != _RUN:
            self._next = self._next or told[0]
            raise RuntimeError("rank 0 has left the case")
        absent = [(rank, why) for rank, (kind, why) in enumerate(told) if kind != _RUN]
        if absent:
            raise RuntimeError("; ".join(f"rank {rank} has left the case {why}".rstrip() for rank, why in absent))
        return str(told[0][1])

    def _new_comm(self, path: str) -> TorchComm:
        """A comm on a group of its own. The group is made once all ranks have found the board."""
        board = self._board if self.rank == 0 or not path else Board.join(path)
        self._board = None
        with self._as_default(self._all):
            group = dist.new_group(backend=self.world.comm, timeout=datetime.timedelta(seconds=self._deadline))
            return TorchComm(group, board=board, deadline=self._deadline)

    def _retire(self, comm: TorchComm) -> None:
        """Let go of a group in which ranks may have lost each other; a call in flight there holds what it needs."""
        self._comm = None
        if comm.board is not None:
            comm.board.close()
        if self.world.comm == "nccl":
            comm.group.abort()  # kernels on the GPU would go on to wait for the other ranks
        with self._as_default(self._all):
            dist.destroy_process_group(comm.group)


def _outcome(program: Callable[[Any], Any], comm: TorchComm) -> tuple[Any, str | None]:
    """What a program gives here, or its error."""
    try:
        return pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, program(comm)), None
    except BaseException as err:
        interrupt.reraise()
        if comm.board is not None:
            comm.board.__exit__(type(err), err, err.__traceback__)  # ranks that wait for this one hear of it at once
        return None, f"{type(err).__name__}: {err}"


class LocalTeam:
    """Rank 0 here, and the other ranks in processes that this one starts and ends.

    Args:
        deadline: seconds that a collective of a program waits for the other ranks.
    """

    def __init__(self, world: World, deadline: float = DEADLINE) -> None:
        self.world, self._team = world, None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="opassay-team-")
        atexit.register(self.close)
        try:
            self._team = self._started(deadline)
        except BaseException:
            self.close()
            raise

    def _started(self, deadline: float) -> Team:
        path, size = str(Path(self._folder.name) / "store"), self.world.size or 1
        words = [path, self.world.comm, self.world.fabric, str(size), str(deadline)]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "opassay.properties.team", *words]
        for rank in range(1, size):
            # Sessions of their own: an interrupt from the terminal is for this process, which then ends them.
            self._processes.append(
                subprocess.Popen(
                    [*command, str(rank), str(os.getpid())], env=env, stdin=subprocess.DEVNULL, start_new_session=True
                )
            )
        store = _stores.FileStore(path, size)
        # Where ranks meet, torch hears neither an interrupt nor that a process has ended.
        while not store.check([_arrival(rank) for rank in range(1, size)]):
            if not self.whole:
                raise RuntimeError("LocalTeam: a rank's process has ended before it came to the others.")
            time.sleep(0.01)
        return Team(self.world, 0, store, together=True, deadline=deadline)

    @property
    def whole(self) -> bool:
        """Whether all processes are there, and the ranks can tell each other what they do."""
        broken = self._team is not None and self._team.broken
        return not broken and all(process.poll() is None for process in self._processes)

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
                end = time.monotonic() + _ENDING
                for process in self._processes:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(max(0.0, end - time.monotonic()))
        finally:
            for process in self._processes:
                process.kill()
            for process in self._processes:
                process.wait()
            self._processes = []
            self._folder.cleanup()


def _arrival(rank: int) -> str:
    """The name in the store by which a rank says that it has come."""
    return f"rank {rank} is here"


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
        served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        store = _stores.TCPStore(host, port, size, is_master=rank == 0 and not served)
        together = os.environ.get("LOCAL_WORLD_SIZE") == str(size)
        _LAUNCHED = Team(world, rank, _stores.PrefixStore("opassay", store), together)
    return _LAUNCHED


def gather(world: World, deadline: float = DEADLINE) -> None:
    """Have the ranks of a world together, this process as rank 0; they are started if need be, and anew if they broke.

    Args:
        deadline: of ranks that are started here: seconds that a collective of a program waits for the others.

    Raises:
        RuntimeError: ranks that torchrun started have lost each other, or a rank ended where it was started.
    """
    global _LOCAL
    if worlds.launched():
        team = join(world)
        if team.broken:
            raise RuntimeError(f"gather: the ranks that torchrun started have lost each other: {team.broken}")
        team.enter()
        return
    if _LOCAL is not None and (_LOCAL.world != world or not _LOCAL.whole):
        local, _LOCAL = _LOCAL, None
        local.close()
    if _LOCAL is None:
        _LOCAL = LocalTeam(world, deadline)
    _LOCAL.enter()


def disband() -> None:
    """End what `gather` and `join` began; a later call begins anew."""
    global _LOCAL, _LAUNCHED
    local, launch = _LOCAL, _LAUNCHED
    _LOCAL = _LAUNCHED = None
    try:
        if local is not None:
            local.close()
        if launch is not None:
            launch.close()
    finally:
        worlds.enter(World())


def main() -> None:
    """A rank of a `LocalTeam`."""
    path, comm, fabric, size, deadline, rank, owner = sys.argv[1:]
    end_with(int(owner))
    torch.set_num_threads(1)
    store = _stores.FileStore(path, int(size))
    store.set(_arrival(int(rank)), "")
    Team(World(comm, fabric, int(size)), int(rank), store, together=True, deadline=float(deadline)).serve()


if __name__ == "__main__":
    main()
