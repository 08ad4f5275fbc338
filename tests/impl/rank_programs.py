"""What the ranks of `rank_pool.Pool` run, in processes of their own; not a test itself."""

from __future__ import annotations

import datetime
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from opassay.impl.comm import Board, Call, Comm, CommError, TorchComm, sync_batch_norm
from opassay.impl.comm.ranks.base import carry_out


@dataclass(frozen=True)
class Step:
    """A collective: its name, its arguments after x, and x for every rank."""

    op: str
    tensors: list[Tensor]
    arguments: dict[str, Any] = field(default_factory=dict)

    def wrong(self, comm: Comm, result: Any) -> bool:
        """Whether what a rank got is anything but what the collective means, bit for bit."""
        x = self.tensors[comm.rank]
        words = {"root": None, "reduction": "sum" if "reduce" in self.op else None, **self.arguments}
        exact = carry_out(Call(self.op, x.dtype, tuple(x.shape), **words), self.tensors, comm.rank)
        if self.op == "all_to_all":
            exact = [torch.stack(exact)]
        result = [result] if isinstance(result, Tensor) else result
        return len(result) != len(exact) or not all(map(_same, result, exact))


def _same(result: Tensor, exact: Tensor) -> bool:
    return result.dtype == exact.dtype and result.shape == exact.shape and torch.equal(result, exact)


# ----------------------------------------------------------------------------------------------------------- the faults


def steps(size: int) -> list[Step]:
    """A program of six calls."""
    every = [torch.arange(6.0) + 10 * rank for rank in range(size)]
    return [
        Step("all_reduce", [x[:4] for x in every], {"tag": "statistics"}),
        Step("all_gather", [x.reshape(3, 2) for x in every], {"tag": "rows"}),
        Step("all_reduce", every, {"tag": "gradients"}),
        Step("broadcast", every, {"root": 0, "tag": "weights"}),
        Step("all_to_all", [x[:size] for x in every]),
        Step("all_reduce", [x[:1] for x in every], {"tag": "loss", "reduction": "max"}),
    ]


class _Returned(Exception):
    pass


def _befall(kind: str, seconds: float) -> None:
    """What happens to a rank before a call."""
    match kind:
        case "raise":
            raise ArithmeticError("injected")
        case "return":
            raise _Returned
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "die in the call":
            threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "stop in the call":
            threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGSTOP)).start()
        case "delay":
            time.sleep(seconds)


def _altered(kind: str, steps: list[Step], number: int) -> list[Step]:
    """The program of a rank that makes another call than the rest."""
    before, step, after = steps[: number - 1], steps[number - 1], steps[number:]
    match kind:
        case "skip":
            return before + after
        case "swap":
            return [*before, after[0], step, *after[1:]]
        case "op":
            step = Step("broadcast", step.tensors, {"root": 0, "tag": "gradients"})
        case "root":
            step = Step(step.op, step.tensors, step.arguments | {"root": 1})
        case "reduction":
            step = Step(step.op, step.tensors, step.arguments | {"reduction": "max"})
        case "dtype":
            step = Step(step.op, [x.view(torch.int32) for x in step.tensors], step.arguments)
        case "shape":
            step = Step(step.op, [x[:-1] for x in step.tensors], step.arguments)
    return [*before, step, *after]


def faulty(comm: Comm, faults: list[tuple[int, str, int, float]]) -> int:
    """The six calls with faults: of a rank, a kind, at a call, for so many seconds. The number of right results.

    Raises:
        AssertionError: a result is wrong.
    """
    mine = [(number, kind, seconds) for rank, kind, number, seconds in faults if rank == comm.rank]
    program, right = steps(comm.size), 0
    for number, kind, _ in mine:
        program = _altered(kind, program, number)
    for number, step in enumerate(program, start=1):
        for at, kind, seconds in mine:
            if at == number:
                _befall(kind, seconds)
        result = getattr(comm, step.op)(step.tensors[comm.rank], **step.arguments)
        assert not step.wrong(comm, result), f"call {number} gave a wrong number"
        right += 1
    return right


# ------------------------------------------------------------------------------------------------------- the right ones


def collectives(comm: Comm) -> dict[str, Any]:
    """Every collective of several dtypes, of memory with holes and without elements, against what it means."""
    wrong, count, size = [], 0, comm.size
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        every = [(torch.arange(12).reshape(4, 3).t()[:, ::2] + 20 * rank).to(dtype) for rank in range(size)]
        squares = [(torch.arange(2 * size).reshape(2, size).t() + 20 * rank).to(dtype) for rank in range(size)]
        reductions = [{"reduction": name} for name in ("sum", "max", "min")[: 1 if dtype.is_complex else 3]]
        reductions = [] if dtype == torch.bool else reductions
        program = [Step("all_reduce", every, words) for words in reductions]
        program += [Step("reduce", every, {"root": size - 1, **words}) for words in reductions]
        program += [Step(op, every, {"root": root}) for op in ("broadcast", "gather") for root in range(size)]
        program += [Step("all_gather", [x[: rank % 3] for rank, x in enumerate(every)])]
        program += [Step("gather", [x[: size - rank - 1] for rank, x in enumerate(every)], {"root": 0})]
        program += [Step("scatter", squares, {"root": 1}), Step("all_to_all", squares)]
        nothing = [x[:, :0] for x in every]
        program += [Step("all_gather", nothing), Step("broadcast", nothing, {"root": 0})]
        program += [Step("all_reduce", nothing, words) for words in reductions[:1]]
        program += [Step(op, [x[:, :0] for x in squares], words) for op, words in EMPTY.items()]
        for step in program:
            count += 1
            if step.wrong(comm, getattr(comm, step.op)(step.tensors[comm.rank], **step.arguments)):
                wrong.append(f"{step.op} {dtype} {step.arguments}")
    comm.barrier()
    return {"wrong": wrong, "count": count}


EMPTY: dict[str, dict[str, Any]] = {"scatter": {"root": 0}, "all_to_all": {}}


def norm(comm: Comm, rows: tuple[int, ...], frozen: tuple[int, ...]) -> list[Any]:
    """Batch norm over ranks and its gradients, on data whose sums are exact in every order.

    Args:
        rows: of each rank, 8 in all. frozen: ranks whose input needs no gradient.
    """
    first = sum(rows[: comm.rank])
    whole = torch.tensor([[(3 * i + 5 * c) % 8 for c in range(4)] for i in range(8)], dtype=torch.float32)
    x = whole[first : first + rows[comm.rank]].clone().requires_grad_(comm.rank not in frozen)
    weight, mean, var = torch.tensor([1.0, 2.0, 0.5, 4.0], requires_grad=True), torch.zeros(4), torch.ones(4)
    y = sync_batch_norm(x, mean, var, weight, None, training=True, comm=comm)
    (y * (whole[first : first + rows[comm.rank]] - 3)).sum().backward()
    return [t if t is None else t.tolist() for t in (y.detach(), x.grad, weight.grad, mean, var)]


def crossed(comm: Comm) -> None:
    """Each of two ranks waits for what the other is to send."""
    comm.broadcast(torch.ones(3), 1 - comm.rank)


def example(comm: Comm, text: str) -> str:
    """A program in a page of documentation that defines `rank(comm)`."""
    names: dict[str, Any] = {"__name__": "guide"}
    exec(compile(text, "guide", "exec"), names)
    return str(names["rank"](comm))


def left_over(folder: str) -> dict[str, Any]:
    """What this process still has: threads besides this one, open files, files in its folder for them."""
    threads = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    return {"threads": len(threads), "files": len(os.listdir("/proc/self/fd")), "names": os.listdir(folder)}


# ------------------------------------------------------------------------------------------------------------- the rank

PROGRAMS: dict[str, Any] = {f.__name__: f for f in (faulty, collectives, norm, crossed, example)}


def _run(program: str, comm: Comm, arguments: dict[str, Any]) -> Any:
    try:
        return PROGRAMS[program](comm, **arguments)
    except _Returned:
        return None


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Take part in a new group and run a program in it; how it ended, after how many seconds, and what came of it."""
    where = {"init_method": f"file://{request['store']}", "rank": request["rank"], "world_size": request["size"]}
    # A time-out longer than any deadline here, so that it is not gloo which finds a fault; it ends what is in flight.
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6), **where)
    board = Board.join(request["board"]) if request["board"] else None
    comm = TorchComm(board=board, **request["options"])
    start = time.monotonic()
    ended: dict[str, Any]
    try:
        if board is None:
            ended = {"how": "returned", "value": _run(request["program"], comm, request["arguments"])}
        else:
            with board:
                ended = {"how": "returned", "value": _run(request["program"], comm, request["arguments"])}
    except Exception as err:
        ended = {"how": type(err).__name__, "text": str(err)}
    ended["seconds"] = time.monotonic() - start
    if ended["how"] == "CommError":
        try:
            comm.barrier(tag="again")
        except CommError as err:
            ended["again"] = str(err)
    return ended


def serve(connection: Any, folder: str) -> None:
    """Run what is asked for until nothing more is; a group ends when every rank of it has answered."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    while (request := connection.recv()) is not None:
        if request == "left over":
            connection.send(left_over(folder))
            continue
        connection.send(answer(request))
        connection.recv()
        dist.destroy_process_group()
        Path(request["store"]).unlink(missing_ok=True)
        connection.send("ended")


if __name__ == "served":
    serve(globals()["connection"], globals()["folder"])
