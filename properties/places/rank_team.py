"""This process as one of the ranks that judge COMM together.

What this is for: an op over ranks is judged where its ranks are: in processes that talk over gloo or NCCL. Rank 0 draws
the samples and decides the verdict. The others get each sample from rank 0, as a case file, and judge it alike: every
rank runs a program on its own part, all ranks exchange the results, and go on from there in the same way.

What is hard here: a rank may raise, hang, die, or leave the case at any line, and then the others would wait for it for
good. So messages go over a group of their own, the wire, and always in one way: every rank sends one message
(`wire.MessageKind`), and receives those of all. Before a program every rank sends RUN; a rank that sends something else
has left the case, and no other rank begins without it. After an error inside of a program nobody knows what the other
ranks wait for, so its group is let go and the next program gets a new one. After an error on the wire itself the ranks
have lost each other: `Team.broken` says why, and only new processes help.
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
from .wire import Message, MessageKind, pack, unpack

#: Seconds that a collective waits for the other ranks, which are at work on the same sample.
DEADLINE = 60.0
#: Seconds that ranks wait for each other where they first meet.
_MEETING = 60.0
#: Seconds that a rank waits for a message: between two samples of COMM there may be any number of other cells.
_PATIENCE = 86400.0
#: Seconds for the others to hear that they may go.
_FAREWELL = 1.0


class _ApartError(RuntimeError):
    """The ranks can exchange no messages any more."""


class Team:
    """This process among the ranks of a world. Rank 0 makes the others work; they `serve`.

    Args:
        store: where the ranks meet. together: whether they are on one machine.
        deadline: seconds that a collective of a program waits for the other ranks.

    Attributes:
        failure: why the ranks can exchange no messages any more, or empty.
    """

    def __init__(self, world: World, rank: int, store: Any, together: bool, deadline: float = DEADLINE) -> None:
        if world.comm == "nccl":
            torch.cuda.set_device(rank % torch.cuda.device_count())
        self.world, self.rank, self.failure = world, rank, ""
        self._together, self._deadline = together, deadline
        self._board: Board | None = None  # made by rank 0 for the next group
        self._comm: TorchComm | None = None  # for programs; None at first, and after a program has failed
        #: The message by which rank 0 ended the case while this rank waited for a program; obeyed once it is free.
        self._pending_order: Message | None = None
        # The first group is one of gloo even where programs talk over NCCL: the wire is made from it, and carries bytes
        # that lie in the memory of the host.
        meeting = datetime.timedelta(seconds=_MEETING)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world.size or 1, timeout=meeting)
        self._all = dist.GroupMember.WORLD
        try:
            wire = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=_PATIENCE))
            # A TorchComm interrupts its wait every now and then, so that an interrupt gets through, and may end with a
            # call in flight.
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
        """Judge what rank 0 judges, by its case files, until it sends END or is gone. Rank 0 decides the verdicts."""
        reason = ""  # the error by which this rank has left the last case, if any
        with contextlib.suppress(_ApartError):
            while True:
                # While this rank waited for the others to come to a program, rank 0 may have ended the case; that
                # message is the order to follow now.
                order = self._pending_order or self._exchange(pack(MessageKind.FREE, reason))[0]
                self._pending_order, reason = None, ""
                if order.kind is MessageKind.END:
                    break
                if order.kind is MessageKind.CASE:
                    try:
                        judge(order.text)
                    except Exception as err:  # rank 0, whose verdict it is, has most likely had the same error
                        reason = f"{type(err).__name__}: {err}"
        self.close()

    def close(self) -> bool:
        """Leave the groups, and send END to the others if this is rank 0; whether they received it. Waits briefly."""
        is_delivered = False
        try:
            if self.rank == 0 and not self.failure:
                # The wire usually waits for a day, which is too long where a rank may be gone already.
                self._wire.deadline = _FAREWELL
                with contextlib.suppress(_ApartError):
                    self._exchange(pack(MessageKind.END))
                    is_delivered = True
        finally:
            self.failure = self.failure or "this team is closed"
            for board in (self._board, None if self._comm is None else self._comm.board):
                if board is not None:
                    board.close()
            self._board = self._comm = None
            if self._all is not None:
                with self._as_default(self._all):
                    dist.destroy_process_group()
            self._all = None
        return is_delivered

    @contextlib.contextmanager
    def _as_default(self, group: Any) -> Iterator[None]:
        """Within it, a group is torch's default group. Only COMM has one: in any other cell an op must find none."""
        dist.GroupMember.WORLD = group
        try:
            yield
        finally:
            dist.GroupMember.WORLD = None

    @contextlib.contextmanager
    def _breaking(self) -> Iterator[None]:
        """Mark the team as broken after any exception from within: nobody knows then what the other ranks wait for."""
        try:
            yield
        except BaseException as err:
            self.failure = self.failure or f"{type(err).__name__}: {err}"
            raise

    def _exchange(self, packed: bytes) -> list[Message]:
        """Send a message, and receive those of all ranks, by rank."""
        if self.failure:
            raise _ApartError(f"the ranks have lost each other: {self.failure}")
        with self._breaking(), self._as_default(self._all):
            own = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
            try:
                buffers = self._wire.all_gather(own)
            except CommError as err:
                raise _ApartError(f"the ranks have lost each other: {err}") from err
            return [unpack(each.numpy().tobytes()) for each in buffers]

    def _tell(self, case: str) -> None:
        if self.rank == 0:
            self._exchange(pack(MessageKind.CASE, case))

    def _run(self, program: Callable[[Any], Any]) -> list[Any]:
        """The results of a program on all ranks: tensors, numbers and texts, sequences of them as lists.

        Raises:
            RuntimeError: the program raised on some ranks, which are named, or some ranks have not come to it.
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
            failed.sort(key=lambda each: each[1].startswith(CommError.__name__))  # last, because other errors cause it
            raise RuntimeError("\n".join(f"rank {rank}: {text}" for rank, text in failed))
        # A tensor of another process's GPU has to be moved to that of this process.
        kind = "cuda" if self.world.comm == "nccl" else "cpu"
        return [pytree.tree_map_only(torch.Tensor, lambda t: t.to(kind), each.result) for each in every]

    def _begin(self) -> str:
        """Wait until every rank has come to the program; the path of the board for a new group, or empty.

        Raises:
            RuntimeError: a rank has left the case.
        """
        # A board is shared memory: there can be one only where all ranks are on one machine, and a new one is needed
        # only for a new group.
        if self.rank == 0 and self._together and not (self._comm or self._board or self.failure):
            self._board = Board.create(self.world.size or 1)
        messages: list[Message] = []
        if self._pending_order is None:
            messages = self._exchange(pack(MessageKind.RUN, "" if self._board is None else self._board.path))
            # Rank 0 gives the orders, so any other message than RUN from it means that it has left this case.
            if messages[0].kind is not MessageKind.RUN:
                self._pending_order = messages[0]
        if self._pending_order is not None:
            raise RuntimeError("rank 0 has left the case")
        absent = [(rank, each.text) for rank, each in enumerate(messages) if each.kind is not MessageKind.RUN]
        if absent:
            raise RuntimeError("; ".join(f"rank {rank} has left the case {why}".rstrip() for rank, why in absent))
        return messages[0].text

    def _new_comm(self, path: str) -> TorchComm:
        """A comm on a group of its own. The group is made once all ranks have found the board."""
        board = self._board if self.rank == 0 or not path else Board.join(path)
        self._board = None
        with self._as_default(self._all):
            group = dist.new_group(backend=self.world.comm, timeout=datetime.timedelta(seconds=self._deadline))
            return TorchComm(group, board=board, deadline=self._deadline)

    def _retire(self, comm: TorchComm) -> None:
        """Let go of a group in which ranks may have lost each other; a call in flight there keeps the group alive."""
        self._comm = None
        if comm.board is not None:
            comm.board.close()
        if self.world.comm == "nccl":
            comm.group.abort()  # kernels on the GPU would go on to wait for the other ranks
        with self._as_default(self._all):
            dist.destroy_process_group(comm.group)


def _outcome(program: Callable[[Any], Any], comm: TorchComm) -> bytes:
    """The packed message with the result of a program on this rank, or with its error."""
    try:
        return pack(MessageKind.RAN, result=program(comm))
    except BaseException as err:
        # A program that raises SystemExit, or the like, has failed as with any other error. Only a user's interrupt
        # ends the run.
        interrupt.reraise()
        if comm.board is not None:
            comm.board.__exit__(type(err), err, err.__traceback__)  # ranks that wait for this one hear of it at once
        return pack(MessageKind.RAN, f"{type(err).__name__}: {err}", failed=True)


def arrival(rank: int) -> str:
    """The name in the store by which a rank says that it has come."""
    return f"rank {rank} is here"
