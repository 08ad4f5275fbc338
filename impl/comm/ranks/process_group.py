"""`TorchComm`: ranks of a torch.distributed process group.

What is hard here is every way to fail. A transport checks nothing: ranks that make different calls get each other's
numbers, or wait for half an hour until a time-out. So the ranks exchange a digest of the call before anything moves,
and while a rank waits it looks at the board for others that can no longer come. And the transport still has a call
that was given up, for which its destructor waits. So a thread holds the group until then, and the process may end.
"""

from __future__ import annotations

import datetime
import hashlib
import threading
import time

import torch
import torch.distributed as dist
from torch import Tensor

from .base import Call, Comm, CommError, SoloComm
from .board import Board

#: Bytes of the digest that is compared, and of a fingerprint: the digest, then the call's text, cut off at the end.
_DIGEST, _BYTES = 32, 256
#: How long a rank waits for the transport between two looks at the board.
_SLICE = datetime.timedelta(milliseconds=20)
#: Seconds in which a rank looks for the cause of a broken connection.
_PATIENCE = 0.5


def default_comm(group: dist.ProcessGroup | None = None) -> Comm:
    """This process's rank in a process group, by default the default one; alone where torch.distributed is not used."""
    used = dist.is_available() and dist.is_initialized()
    return TorchComm(group) if used else SoloComm()


class TorchComm(Comm):
    """This process's rank in a process group.

    A call that cannot take place raises a CommError that names this rank, the call's number and the call. With a board
    it does so as soon as another rank is dead, has left, or has come to another call, and says what every rank does,
    the one that is the cause first. After that the comm refuses every call. The process may go on, and it may end
    although a call is in flight; what stays of that in the process is freed with the group's time-out at the latest.

    Args:
        group: a `torch.distributed` process group; the default one if None.
        fingerprints: whether every call is preceded by an exchange of what it is. Without it, calls that differ in
            tag, reduction, order, or dtype of the same size give wrong numbers and no error.
        board: what the ranks on this machine share besides, with a row for every rank; for this comm alone.
        deadline: seconds that a call may take, the wait for other ranks included. On other devices than the CPU it is
            that of the fingerprints: what follows is queued on the device, and the group's own time-out holds.

    Raises:
        RuntimeError: torch.distributed is not initialised, or the board is in use or closed.
        TypeError, ValueError: no board, a board of another size, or a deadline that is no positive number.
    """

    def __init__(
        self, group: dist.ProcessGroup | None = None, fingerprints: bool = True, board: Board | None = None,
        deadline: float = 1800.0,
    ) -> None:  # fmt: skip
        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError("TorchComm: torch.distributed is not initialised, need init_process_group before.")
        if board is not None and not isinstance(board, Board):
            raise TypeError(f"TorchComm: got board of type {type(board).__name__}, need a Board or None.")
        if not deadline > 0:
            raise ValueError(f"TorchComm: got deadline={deadline}, need a positive number of seconds.")
        process_group = dist.group.WORLD if group is None else group
        assert process_group is not None, "the default group is there once torch.distributed is initialised"
        self.group: dist.ProcessGroup = process_group
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        if board is not None and board.size != self.size:
            raise ValueError(f"TorchComm: got a board of size={board.size}, need one row per rank, size={self.size}.")
        self.fingerprints, self.board, self.deadline = fingerprints, board, deadline
        self._number, self._began, self._digest = 0, 0.0, b""
        self._work: dist.Work | None = None
        self._failure, self._cause = "", ""
        if board is not None:
            board.enter(self.rank)

    def _run(self, call: Call, x: Tensor) -> list[Tensor]:
        if self._failure:
            where = self._where(call, self._number + 1)
            raise CommError(f"{where}: refused, because this comm has failed before: {self._failure}")
        self._number, self._began = self._number + 1, time.monotonic()
        # The number is part of what is compared: ranks that make equal calls, one of them a call behind, do not agree.
        self._digest = hashlib.sha256(f"{self._number} {call.key()!r}".encode(errors="replace")).digest()
        if self.board is not None:
            self.board.post(self._number, str(call), self._digest)
        try:
            if self.fingerprints:
                self._require_one_call(call, x.device)
            results = self._collective(call, x)
        except BaseException as err:
            text = self._describe_failure(call, err)
            self._give_up(text)
            if isinstance(err, RuntimeError):
                raise CommError(text) from (None if isinstance(err, _Impossible) else err)
            # Not an error of the call but, for example, an interrupt: it goes on as it is, and the board has told the
            # others that this rank gave up.
            raise
        if self.board is not None:
            self.board.done()
        return results

    def _where(self, call: Call, number: int) -> str:
        return f"rank {self.rank} of {self.size}, call {number}, {call}"

    def _require_one_call(self, call: Call, device: torch.device) -> None:
        text = f"rank {self.rank} in call {self._number}, {call}".encode(errors="replace")
        whole = (self._digest + text)[:_BYTES].ljust(_BYTES, b"\0")
        row = torch.frombuffer(bytearray(whole), dtype=torch.uint8).to(device)
        rows = [torch.empty_like(row) for _ in range(self.size)]
        self._wait(dist.all_gather(rows, row, group=self.group, async_op=True), device, read=True)
        fingerprints = [bytes(r.tolist()) for r in rows]
        if len({each[:_DIGEST] for each in fingerprints}) > 1:
            texts = (each[_DIGEST:].rstrip(b"\0").decode(errors="replace") for each in fingerprints)
            raise _Different("different calls: " + "; ".join(texts))

    def _wait(self, work: dist.Work, device: torch.device, read: bool = False) -> None:
        """Wait until the work is done, with a look at the other ranks every now and then.

        Args:
            read: whether the host reads the result at once, so that it may as well wait for another device too.
        """
        self._work = work
        if device.type != "cpu":
            while read and not _poll_briefly(work):
                self._require_possible()
            work.wait()
        else:
            while not _wait_briefly(work):
                self._require_possible()
        self._work = None

    def _require_possible(self) -> None:
        """Require that the collective can still complete: its deadline is not over, and no rank keeps it from that.

        Another rank may have left, failed, or called another collective; it says so on the board.

        Raises:
            _Impossible: with the reason.
        """
        late = time.monotonic() - self._began >= self.deadline
        text = f"not done within {self.deadline:g} s"
        if self.board is None:
            if late:
                raise _Impossible(f"{text}; no board tells what the other ranks do")
            return
        self.board.wait()
        impossible, report, self._cause = self.board.obstacle(self._number, self._digest, late)
        if impossible or late:
            raise _Impossible(report if impossible else f"{text}: {report}")

    def _describe_failure(self, call: Call, err: BaseException) -> str:
        """The text for a call that failed: where it was, the error, and what the board says of the other ranks."""
        text = (str(err) or type(err).__name__).splitlines()[0]
        if isinstance(err, _Different):
            return text
        if isinstance(err, RuntimeError) and not isinstance(err, _Impossible) and self.board is not None:
            # A process that dies loses its connections a little before its lock on the board. A look at once would
            # find it alive, so the board is read again for a moment.
            end, impossible = time.monotonic() + _PATIENCE, False
            while not impossible and time.monotonic() < end:
                impossible, report, self._cause = self.board.obstacle(self._number, self._digest)
                time.sleep(0.0 if impossible else 0.01)
            text = report if impossible else f"{text}; {report}"
        return f"{self._where(call, self._number)}: {text}"

    def _give_up(self, text: str) -> None:
        self._failure = text
        if self.board is not None:
            self.board.fail(self._cause or text)
        if self._work is not None and not self._work.is_completed():
            threading.Thread(target=_keep, args=(self.group, self._work), daemon=True).start()

    def _collective(self, call: Call, x: Tensor) -> list[Tensor]:
        root = None if call.root is None else dist.get_global_rank(self.group, call.root)
        match call.op:
            case "all_reduce" | "reduce":
                total = x.clone()
                self._wait(dist.all_reduce(total, _reduction(call), self.group, async_op=True), x.device)
                return [total if call.op == "all_reduce" or self.rank == call.root else x.clone()]
            case "broadcast":
                sent = x.clone()
                self._wait(dist.broadcast(sent, root, self.group, async_op=True), x.device)
                return [sent]
            case "all_gather" | "gather":
                tensors = self._gather_rows(x)
                return tensors if call.op == "all_gather" or self.rank == call.root else []
            case "scatter":
                mine = torch.empty_like(x[0])
                parts = [part.contiguous() for part in x] if self.rank == call.root else None
                self._wait(dist.scatter(mine, parts, root, self.group, async_op=True), x.device)
                return [mine]
            case "all_to_all":
                return [part[self.rank].clone() for part in self._gather_rows(x)]
        self._wait(dist.barrier(self.group, async_op=True), x.device)
        return [x.clone()]

    def _gather_rows(self, x: Tensor) -> list[Tensor]:
        """Every rank's x. All send as many rows as the longest has, and the rows of padding are cut off again."""
        # The transport gathers equal shapes alone, so the lengths are exchanged first.
        rows = torch.tensor([x.shape[0]], device=x.device)
        counts = [torch.empty_like(rows) for _ in range(self.size)]
        self._wait(dist.all_gather(counts, rows, self.group, async_op=True), x.device, read=True)
        sizes = [int(count) for count in counts]
        padded = x.new_zeros((max(sizes), *x.shape[1:]))
        padded[: x.shape[0]] = x
        whole = [torch.empty_like(padded) for _ in range(self.size)]
        self._wait(dist.all_gather(whole, padded, self.group, async_op=True), x.device)
        return [part[:size] for part, size in zip(whole, sizes, strict=True)]


def _reduction(call: Call) -> dist.ReduceOp.RedOpType:
    return {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}[call.reduction or "sum"]


class _Impossible(RuntimeError):
    """A call that cannot take place; the text says why, and not yet in which call of which rank."""


class _Different(_Impossible):
    """Ranks whose fingerprints differ; the text names the call of every rank."""


def _wait_briefly(work: dist.Work) -> bool:
    """Wait for a moment; whether the work is done. Its own error is raised."""
    try:
        work.wait(_SLICE)
    except RuntimeError:
        if not work.is_completed():
            return False
        # Either it has failed, and this raises the transport's own error, or it was done just after the wait had ended.
        work.wait()
    return True


def _poll_briefly(work: dist.Work) -> bool:
    """As `_wait_briefly`, without a wait of the backend: NCCL takes a wait that times out for the end of the group."""
    end, pause = time.monotonic() + _SLICE.total_seconds(), 1e-5
    while not work.is_completed() and time.monotonic() < end:
        time.sleep(pause)
        pause = min(2 * pause, 1e-3)
    return bool(work.is_completed())


def _keep(group: dist.ProcessGroup, work: dist.Work) -> None:
    """Hold a group while a call is in flight: gloo's destructor waits for it, for as long as the group's time-out.

    It runs in a daemon thread, whose variables are never destroyed, so that a process may end before the call does.
    """
    while not work.is_completed():
        time.sleep(0.5)
