"""This process as one of the ranks that judge COMM together.

What this is for: an op over ranks is judged where its ranks are: in processes that talk over gloo or NCCL. Rank 0 draws
the samples and says the verdict. The others are told each sample, as a case file, and judge it alike: every rank runs a
program on its own part, all tell each other what it gave, and go on from there in the same way.

What is hard here: a rank may raise, hang, die, or leave the case at any line, and then the others would wait for it for
good. So what ranks say goes over a group of its own, the wire, and always in one way: every rank says one thing
(`wire.Said`), and hears what all said. Before a program every rank says that it has come; a rank that says something
else has left the case, and no other rank begins without it. After an error inside of a program nobody knows what the
other ranks wait for, so its group is let go and the next program gets a new one. After an error on the wire itself the
ranks have lost each other: `Team.broken` says why, and only new processes help.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.utils._pytree as pytree

from ...impl.comm import Board, CommError, TorchComm
from ...oracles.process import interrupt
from .. import worlds
from ..worlds import World
from .wire import Message, Said, pack, unpack

#: Seconds that a collective waits for the other ranks, which are at work on the same sample.
DEADLINE = 60.0
#: Seconds that ranks wait for each other where they first meet.
_MEETING = 60.0
#: Seconds that a rank waits to be told something: between two samples of COMM there may be any number of other cells.
_PATIENCE = 86400.0
#: Seconds for the others to hear that they may go.
_FAREWELL = 1.0


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
        #: What rank 0 has said to this rank while it waited for a program: it answers to that once it is free.
        self._heard_instead: Message | None = None
        # The first group is one of gloo even where programs talk over NCCL: the wire is made from it, and carries bytes
        # that lie in the memory of the host.
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
        # From here on this process has no default group, so that the cells of other properties find what they would
        # find in a process without ranks.
        dist.GroupMember.WORLD = None
        self.enter()

    def enter(self) -> None:
        """Judge COMM here from now on."""
        worlds.enter(self.world, worlds.Peers(self._tell, self._run))

    def serve(self, judge: Callable[[str], None]) -> None:
        """Judge what rank 0 judges, until it says no more or is gone.

        Args:
            judge: asks the question of a case file; the verdict is rank 0's to say.
        """
        left = ""  # why this rank has left the last case, if by an error
        with contextlib.suppress(_ApartError):
            while True:
                # While this rank waited for the others to come to a program, rank 0 may have ended the case; what it
                # said then is the order to follow now.
                order = self._heard_instead or self._exchange(pack(Said.FREE, left))[0]
                self._heard_instead, left = None, ""
                if order.said is Said.END:
                    break
                if order.said is Said.CASE:
                    try:
                        judge(order.text)
                    except Exception as err:  # rank 0, whose verdict it is, has most likely had the same error
                        left = f"{type(err).__name__}: {err}"
        self.close()

    def close(self) -> bool:
        """Leave the groups, and let the others go; whether they were told. Nothing is waited for for long."""
        told = False
        try:
            if self.rank == 0 and not self.broken:
                # The wire usually waits for a day, which is too long where a rank may be gone already.
                self._wire.deadline = _FAREWELL
                with contextlib.suppress(_ApartError):
                    self._exchange(pack(Said.END))
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

    def _exchange(self, packed: bytes) -> list[Message]:
        """Say something, and hear what every rank says."""
        if self.broken:
            raise _ApartError(f"the ranks have lost each other: {self.broken}")
        with self._breaking(), self._as_default(self._all):
            own = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
            try:
                found = self._wire.all_gather(own)
            except CommError as err:
                raise _ApartError(f"the ranks have lost each other: {err}") from err
            return [unpack(each.numpy().tobytes()) for each in found]

    def _tell(self, case: str) -> None:
        if self.rank == 0:
            self._exchange(pack(Said.CASE, case))

    # -------------------------------------------------------------------------------------------------- the programs

    def _run(self, program: Callable[[Any], Any]) -> list[Any]:
        """What a program gives on every rank: tensors, numbers and texts, sequences of them as lists.

        Raises:
            RuntimeError: it raised on some, which are named, or some have not come to it.
        """
        path = self._begin()
        with self._breaking():
            comm = self._comm = self._comm or self._new_comm(path)
            with self._as_default(comm.group):
                own = _outcome(program, comm)
        every = self._exchange(own)
        failed = [(rank, each.text) for rank, each in enumerate(every) if each.failed]
        if failed:
            with self._breaking():
                self._retire(comm)
            failed.sort(key=lambda each: each[1].startswith(CommError.__name__))  # which others are the cause of
            raise RuntimeError("\n".join(f"rank {rank}: {text}" for rank, text in failed))
        # A GPU of another process is none of this one.
        kind = "cuda" if self.world.comm == "nccl" else "cpu"
        return [pytree.tree_map_only(torch.Tensor, lambda t: t.to(kind), each.result) for each in every]

    def _begin(self) -> str:
        """See that every rank has come to the program; where the board for a new group is, or empty."""
        # A board is shared memory: there can be one only where all ranks are on one machine, and a new one is needed
        # only for a new group.
        if self.rank == 0 and self._together and not (self._comm or self._board or self.broken):
            self._board = Board.create(self.world.size or 1)
        told: list[Message] = []
        if self._heard_instead is None:
            told = self._exchange(pack(Said.RUN, "" if self._board is None else self._board.path))
            # Only what rank 0 says is an order, so any other message of it means that it has left this case.
            if told[0].said is not Said.RUN:
                self._heard_instead = told[0]
        if self._heard_instead is not None:
            raise RuntimeError("rank 0 has left the case")
        absent = [(rank, each.text) for rank, each in enumerate(told) if each.said is not Said.RUN]
        if absent:
            raise RuntimeError("; ".join(f"rank {rank} has left the case {why}".rstrip() for rank, why in absent))
        return told[0].text

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


def _outcome(program: Callable[[Any], Any], comm: TorchComm) -> bytes:
    """The message that says what a program gives here, or its error."""
    try:
        return pack(Said.RAN, result=program(comm))
    except BaseException as err:
        # A program that raises SystemExit, or the like, has failed as with any other error. Only a user's interrupt
        # ends the run.
        interrupt.reraise()
        if comm.board is not None:
            comm.board.__exit__(type(err), err, err.__traceback__)  # ranks that wait for this one hear of it at once
        return pack(Said.RAN, f"{type(err).__name__}: {err}", failed=True)


def arrival(rank: int) -> str:
    """The name in the store by which a rank says that it has come."""
    return f"rank {rank} is here"
