"""torch.distributed in the process of a rank: every collective is posted to the judge, who has those of all ranks.

What this is for: a candidate calls functions of torch.distributed, functional collectives, DTensor or its own process
groups. All of them end in operators of torch's namespace c10d, of which each has a kernel here.

What is hard here: when a collective reads its operands, and when it writes its results. Between its call and the wait
for it nobody may rely on either. So results are NaN until somebody waits, and operands are read at the call, or, where
a call of the candidate is `late`, when this rank next waits for anything. And a rank waits only where its program does.
"""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ....reference.meeting import ANY, Delivery, Post, Turn
from ...places import wire

_c10d: Any = torch._C._distributed_c10d
Tensor = torch.Tensor
#: Where the process of a rank writes what it posts, in its own folder.
POSTED = "posted"
#: Names of reductions by torch's numbers of them (`torch.distributed.ReduceOp`).
REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
#: Collectives in which all members pass as much: else their numbers would be added to others.
_ALIKE = ("all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather_into_tensor")
#: (what to say to the judge) -> what it says.
Consult = Callable[[dict[str, Any]], dict[str, Any]]


class RankError(RuntimeError):
    """A collective that cannot take place; the text says what each rank does."""


@dataclass
class RankCall:
    """One collective as the kernels of this module describe it.

    Attributes:
        op, root, reduction, tag: see `Post`. inputs: one for all members, or one for each. outputs: of this rank, in
            the order of what it gets.
    """

    op: str
    inputs: Sequence[Tensor] = ()
    outputs: Sequence[Tensor] = ()
    root: int = ANY
    reduction: str = ""
    tag: int = 0
    number: int = -1
    post: Post | None = None

    def describe(self, kind: str, members: Sequence[int]) -> str:
        """It in words; kind: dtype and number of elements. members: ranks of its group."""
        words = [kind] * bool(kind) + [self.reduction] * bool(self.reduction)
        if self.op in ("send", "recv"):
            side = "any rank" if self.root == ANY else f"rank {members[self.root]}"
            words += [f"{'to' if self.op == 'send' else 'from'} {side}"]
        elif self.root != ANY:
            words += [f"root {members[self.root]}"]
        return f"{self.op}({', '.join(words)})"


class _Work(_c10d.Work):  # type: ignore[misc]
    """What a program waits for."""

    def __init__(self, rank: _Rank, steps: Sequence[RankCall]) -> None:
        super().__init__()
        self._rank, self._steps, self._left, self._source = rank, steps, list(steps), ANY

    def wait(self, timeout: Any = None) -> bool:
        while self._left:
            self._source = self._rank.await_step(self._left[0])
            self._left.pop(0)
        return True

    def is_completed(self) -> bool:
        return self.wait()

    def is_success(self) -> bool:
        return self.wait()

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[Tensor]:
        self.wait()
        return [y for step in self._steps for y in step.outputs]

    def get_future(self) -> Any:
        future = torch.futures.Future()  # type: ignore[var-annotated]
        future.set_result(self.result())
        return future

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank


@dataclass
class _Rank:
    """This process as a rank.

    Attributes:
        folder: its own. consult: tells the judge something. late: whether operands are read as late as may be.
    """

    folder: str
    consult: Consult
    late: bool = False
    _count: int = 0
    _unsent: list[RankCall] = field(default_factory=list)
    _works: list[_Work] = field(default_factory=list)
    _lock: Any = field(default_factory=threading.RLock)

    def begin(self, late: bool) -> None:
        """Begin a call of the candidate: what the one before has left is forgotten."""
        self.late, self._count, self._unsent, self._works = late, 0, [], []

    def end(self) -> None:
        """End a call: what others wait for is theirs, also where this rank does not wait for it."""
        if self._unsent:
            self._say(-1)

    def make(self, steps: Sequence[RankCall], group: Any) -> _Work:
        """Begin collectives of one call."""
        members = dist.get_process_group_ranks(group)
        name = f"{group.group_name} of {members}"  # torch's name alone is that of another group on other ranks
        with self._lock:
            for step in steps:
                self._post(step, name, members)
            work = _Work(self, steps)
            self._works.append(work)  # torch keeps what C++ sees of it alone
        return work

    def _post(self, step: RankCall, group: str, members: list[int]) -> None:
        if not ANY <= step.root < len(members):
            raise ValueError(f"{step.op}: got rank {step.root} of a group of {len(members)}")
        for tensor in (*step.inputs, *step.outputs):
            if not tensor.is_contiguous():
                need = "contiguous memory: NCCL refuses other, and gloo sends other elements"
                raise ValueError(f"{step.op}: got a tensor of strides {tensor.stride()}, need {need}")
        dtypes = {t.dtype for t in (*step.inputs, *step.outputs)}
        if len(dtypes) > 1:
            raise TypeError(f"{step.op}: got tensors of {', '.join(map(str, dtypes))}, need one dtype")
        first = next(iter((*step.inputs, *step.outputs)), None)
        kind = "" if first is None or step.op == "barrier" else f"{str(first.dtype)[6:]}[{first.numel()}]"
        step.number, self._count = self._count, self._count + 1
        text, key = step.describe(kind, members), kind if step.op in _ALIKE else kind.partition("[")[0]
        step.post = Post(step.number, step.op, group, members, [], text, key, step.root, step.reduction, step.tag)
        if not self.late:
            self._read(step)
            for y in step.outputs:
                _spoil(y)
        self._unsent.append(step)

    @staticmethod
    def _read(step: RankCall) -> None:
        """Copy the operands of a step as they are now."""
        assert step.post is not None
        if not step.post.tensors and step.inputs:
            copies = [t.detach().cpu().clone() for t in step.inputs]
            step.post = replace(step.post, tensors=copies)

    def await_step(self, step: RankCall) -> int:
        """Wait for a collective, and write what this rank gets of it; the member that it came from."""
        with self._lock:
            delivery = self._say(step.number)
            for y, value in zip(step.outputs, delivery.tensors, strict=False):
                if y.numel() != value.numel() or y.dtype != value.dtype:
                    got = f"{value.dtype}{list(value.shape)}"
                    raise RankError(f"{step.op}: got {got} for an output of {y.dtype}{list(y.shape)}")
                with torch.no_grad():
                    y.copy_(value.reshape(y.shape))
            return delivery.source

    def _say(self, awaited: int) -> Delivery:
        """Post what is not sent yet, and wait for a call.

        Raises:
            RankError: it cannot take place.
        """
        for step in self._unsent:
            self._read(step)
        posts, self._unsent = [step.post for step in self._unsent if step.post is not None], []
        with open(os.path.join(self.folder, POSTED), "wb") as file:
            file.writelines(wire.pieces(Turn(posts, awaited)))
        reply = self.consult({"posted": True})
        if "failed" in reply:
            raise RankError(reply["failed"])
        return wire.decode(np.fromfile(reply["delivered"], dtype=np.uint8).data, Delivery)


def _spoil(tensor: Tensor) -> None:
    """Make what nobody may read yet a number that shows."""
    with torch.no_grad():
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            tensor.fill_(math.nan)
        elif tensor.dtype is not torch.bool:
            tensor.fill_(torch.iinfo(tensor.dtype).min)


def _reduction(op: Any) -> str:
    """The name of a reduction that an operator of c10d is given; ValueError for one that has none here."""
    number = int(op._get_method("op")())
    if not number < len(REDUCTIONS):
        raise ValueError(f"op: got reduction {number}, need one of {', '.join(REDUCTIONS)}")
    return REDUCTIONS[number]


def _pieces(tensor: Tensor, count: int, op: str) -> list[Tensor]:
    """A tensor in equal pieces for, or from, each member, in its own memory."""
    flat = tensor.view(-1) if tensor.is_contiguous() else tensor
    if tensor.numel() % count:
        raise ValueError(f"{op}: got a tensor of shape {list(tensor.shape)}, need a multiple of {count} elements")
    return list(flat.split(flat.numel() // count)) if flat.numel() else [flat] * count


def _row_pieces(tensor: Tensor, sizes: Sequence[int], count: int) -> list[Tensor]:
    """Rows of a tensor for, or from, each member: so many, or equally many."""
    if not sizes and len(tensor) % count:
        raise ValueError(f"all_to_all: got {len(tensor)} rows without split sizes, need a multiple of {count}")
    if sizes and (sum(sizes) != len(tensor) or len(sizes) != count):
        raise ValueError(f"all_to_all: got split sizes {list(sizes)}, need {count} of sum {len(tensor)}")
    return list(tensor.split(list(sizes) or [len(tensor) // count] * count))


def _of_gathering(op: str, x: Tensor, ys: Sequence[Tensor], group: Any, root: int = ANY) -> RankCall:
    if ys and len(ys) != group.size():
        raise ValueError(f"{op}: got {len(ys)} outputs, need one for each of {group.size()} ranks")
    return RankCall(op, [x], ys, root)


def _of_base(y: Tensor, x: Tensor, group: Any) -> RankCall:
    return RankCall("all_gather_into_tensor", [x], _pieces(y, group.size(), "all_gather_into_tensor"))


def _of_scattering(y: Tensor, xs: Sequence[Tensor], group: Any, op: Any) -> RankCall:
    if len(xs) != group.size():
        raise ValueError(f"reduce_scatter: got {len(xs)} inputs, need one for each of {group.size()} ranks")
    return RankCall("reduce_scatter", xs, [y], reduction=_reduction(op))


def _calls_by(name: str, group: Any, args: Sequence[Any]) -> list[RankCall]:
    """What an operator of c10d does with its arguments, but for the group."""
    size = group.size()
    match name:
        case "allreduce_" | "allreduce_coalesced_":
            return [RankCall("all_reduce", [t], [t], reduction=_reduction(args[1])) for t in args[0]]
        case "broadcast_":
            return [RankCall("broadcast", [t], [t], args[1]) for t in args[0]]
        case "reduce_":
            own = args[2] == group.rank()
            return [RankCall("reduce", [t], [t] * own, args[2], _reduction(args[1])) for t in args[0]]
        case "allgather_" | "allgather_coalesced_":
            pairs = zip(args[1], _turned(args[0], name), strict=True)
            return [_of_gathering("all_gather", x, ys, group) for x, ys in pairs]
        case "_allgather_base_":
            return [_of_base(args[0], args[1], group)]
        case "allgather_into_tensor_coalesced_":
            return [_of_base(y, x, group) for y, x in zip(args[0], args[1], strict=True)]
        case "reduce_scatter_":
            return [_of_scattering(y, xs, group, args[2]) for y, xs in zip(args[0], args[1], strict=True)]
        case "_reduce_scatter_base_":
            return [_of_scattering(args[0], _pieces(args[1], size, "reduce_scatter"), group, args[2])]
        case "reduce_scatter_tensor_coalesced_":
            both = zip(args[0], args[1], strict=True)
            return [_of_scattering(y, _pieces(x, size, "reduce_scatter"), group, args[2]) for y, x in both]
        case "gather_":
            outputs = args[0][0] if args[0] and args[2] == group.rank() else []
            return [_of_gathering("gather", args[1][0], outputs, group, args[2])]
        case "scatter_":
            return [RankCall("scatter", args[1][0] if args[1] else [], args[0], args[2])]
        case "alltoall_":
            return [RankCall("all_to_all", args[1], args[0])]
        case "alltoall_base_":
            return [RankCall("all_to_all", _row_pieces(args[1], args[3], size), _row_pieces(args[0], args[2], size))]
        case "send":
            return [RankCall("send", args[0], (), args[1], tag=args[2])]
        case "recv_":
            return [RankCall("recv", (), args[0], args[1], tag=args[2])]
        case "recv_any_source_":
            return [RankCall("recv", (), args[0], ANY, tag=args[1])]
    return [RankCall("barrier")]


def _turned(outputs: Sequence[Sequence[Tensor]], name: str) -> Sequence[Sequence[Tensor]]:
    """The outputs of each input: of coalesced ones torch has a list for each rank."""
    return list(zip(*outputs, strict=True)) if name == "allgather_coalesced_" else outputs


def _kernel(rank: _Rank, name: str, returns: int) -> Callable[..., Any]:
    """The kernel of an operator of c10d."""

    def run(*args: Any) -> Any:
        at = next(i for i, each in enumerate(args) if isinstance(each, torch.ScriptObject))
        group = _c10d.ProcessGroup.unbox(args[at])
        work = rank.make(_calls_by(name, group, (*args[:at], *args[at + 1 :])), group)
        if not returns:
            return work.wait() and None
        return work.boxed() if returns == 1 else (args[0], work.boxed())

    return run


def answer_by_judge(folder: str, consult: Consult) -> tuple[_Rank, Any]:
    """Answer the operators of c10d here; this process as a rank, and what keeps the kernels registered.

    Args:
        folder: its own. consult: tells the judge something, and gives what it says.
    """
    here, library = _Rank(folder, consult), torch.library.Library("c10d", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that these operators have kernels already, which is so
        for full in torch._C._dispatch_get_all_op_names():
            name, _, overload = full.partition(".")
            short = name.removeprefix("c10d::")
            if short == name or short == "check_for_nan":
                continue
            kernel = _kernel(here, short, len(torch._C._get_schema(name, overload).returns))
            for key in ("CPU", "CUDA"):
                library.impl(short, kernel, key)
    return here, library
