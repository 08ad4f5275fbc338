"""`Comm`: the collective calls of a rank. Every implementation has the same ones.

The meaning of each collective is a pure function, `results_of` in reference/meeting.py: the tensors that all ranks pass
in, the result of one rank out. Ranks in one process run just that function; a process group is tested against it. A
`Call` is the fingerprint by which ranks find out whether they all make the same call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ....reference.meeting import ANY, Post, results_of

REDUCTIONS = ("sum", "max", "min")


class CommError(RuntimeError):
    """A collective that cannot take place; the text names ranks, call numbers and calls."""


@dataclass(frozen=True)
class Call:
    """The fingerprint of a collective.

    Attributes:
        op: its name, as the method of `Comm`.
        dtype, shape: of the tensor that this rank passes.
        root: the rank that sends or receives alone, or None.
        reduction: one of `REDUCTIONS`, or None.
        tag: the caller's word for the purpose of the call; part of the fingerprint.
    """

    op: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    root: int | None = None
    reduction: str | None = None
    tag: str = ""

    def __str__(self) -> str:
        name = f"{self.op}[{self.tag}]" if self.tag else self.op
        words = [f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"]
        words += [f"root={self.root}"] if self.root is not None else []
        words += [self.reduction] if self.reduction is not None else []
        return f"{name}({', '.join(words)})"

    def key(self) -> tuple[object, ...]:
        """The part of the fingerprint in which all ranks must agree; lengths of gathered tensors may differ."""
        # Ranks may have batches of different length, and gathering them is the one collective that has room for that.
        uneven = self.op in ("all_gather", "gather")
        return (self.op, self.dtype, self.shape[1:] if uneven else self.shape, self.root, self.reduction, self.tag)


def call_of(op: str, x: Tensor, size: int, root: int | None, reduction: str | None, tag: str) -> Call:
    """The call of a rank in a world of `size` ranks.

    Args:
        op: the name of the collective.
        x: the tensor that this rank passes: strided, any dtype; at least one dim where it is gathered or cut, and one
            slice per rank where it is cut.
        size: how many ranks there are.
        root: a rank, or None where no rank is special.
        reduction: one of `REDUCTIONS`, or None.
        tag: what the call is for.

    Raises:
        TypeError: x is no strided tensor.
        ValueError: a reduction or a root that does not exist, or a shape that does not fit.
    """
    # All this is refused here, before anything is sent: a call that fails on one rank alone leaves the others waiting.
    if not isinstance(x, Tensor):
        raise TypeError(f"{op}: got x of type {type(x).__name__}, need a tensor.")
    if x.layout != torch.strided:
        raise TypeError(f"{op}: got x of layout={x.layout}, need a strided tensor.")
    if reduction is not None and reduction not in REDUCTIONS:
        raise ValueError(f"{op}: got reduction={reduction!r}, need one of {', '.join(REDUCTIONS)}.")
    if root is not None and not 0 <= root < size:
        raise ValueError(f"{op}: got root={root}, need a rank of {size}, counted from 0.")
    if op in ("all_gather", "gather") and x.dim() == 0:
        raise ValueError(f"{op}: got x of shape=[], need at least one dim; x.reshape(1) is a vector.")
    if op in ("scatter", "all_to_all") and (x.dim() == 0 or x.shape[0] != size):
        raise ValueError(f"{op}: got x of shape={list(x.shape)}, need one slice per rank, shape[0]={size}.")
    return Call(op, x.dtype, tuple(x.shape), root, reduction, tag)


class Comm(ABC):
    """A rank's end of a group of ranks.

    Every collective takes a tensor of any strides and returns a new one; nothing is written in place. All ranks make
    the same calls in the same order, with the same tag, or a CommError tells which did not.

    Attributes:
        rank: this rank, counted from 0.
        size: how many ranks there are.
    """

    rank: int
    size: int

    def all_reduce(self, x: Tensor, reduction: str = "sum", tag: str = "") -> Tensor:
        """The sum, maximum or minimum over ranks, on every rank."""
        return self._make_call("all_reduce", x, None, reduction, tag)[0]

    def reduce(self, x: Tensor, root: int, reduction: str = "sum", tag: str = "") -> Tensor:
        """The sum, maximum or minimum over ranks on the root; the other ranks get their own x."""
        return self._make_call("reduce", x, root, reduction, tag)[0]

    def broadcast(self, x: Tensor, root: int, tag: str = "") -> Tensor:
        """The root's x, on every rank."""
        return self._make_call("broadcast", x, root, None, tag)[0]

    def all_gather(self, x: Tensor, tag: str = "") -> list[Tensor]:
        """Every rank's x, in the order of ranks; first axes may differ."""
        return self._make_call("all_gather", x, None, None, tag)

    def gather(self, x: Tensor, root: int, tag: str = "") -> list[Tensor]:
        """Every rank's x on the root, in the order of ranks; the other ranks get an empty list."""
        return self._make_call("gather", x, root, None, tag)

    def scatter(self, x: Tensor, root: int, tag: str = "") -> Tensor:
        """Slice `rank` of the root's x; every rank passes an x of that shape."""
        return self._make_call("scatter", x, root, None, tag)[0]

    def all_to_all(self, x: Tensor, tag: str = "") -> Tensor:
        """Slice i of the result is slice `rank` of the x of rank i."""
        return torch.stack(self._make_call("all_to_all", x, None, None, tag))

    def barrier(self, tag: str = "") -> None:
        """Returns once every rank has come here."""
        self._make_call("barrier", torch.zeros(()), None, None, tag)

    def _make_call(self, op: str, x: Tensor, root: int | None, reduction: str | None, tag: str) -> list[Tensor]:
        call = call_of(op, x, self.size, root, reduction, tag)
        # gloo reads non-contiguous memory as if it were contiguous, and sends other elements without a word. Autograd
        # ends here: the derivative of a collective is another collective, which `collective.py` calls.
        return self._run(call, x.detach().contiguous())

    @abstractmethod
    def _run(self, call: Call, x: Tensor) -> list[Tensor]:
        """The result of `carry_out` for this rank, whose tensor x is contiguous."""


def make_post(call: Call, x: Tensor, number: int, size: int) -> Post:
    """What a rank of `size` ranks posts where it makes a call with its tensor x, the `number`-th of its calls."""
    words = str(call), repr(call.key()), _root_of(call), call.reduction or ""
    return Post(number, call.op, "world", list(range(size)), _tensors_of(call, x), *words)


def _tensors_of(call: Call, x: Tensor) -> list[Tensor]:
    """What a rank passes: one tensor for all, or one for each rank."""
    return list(x) if call.op in ("scatter", "all_to_all") else [x]


def _root_of(call: Call) -> int:
    return ANY if call.root is None else call.root


def result_of(call: Call, x: Tensor, received: Sequence[Tensor]) -> list[Tensor]:
    """The result of a call on a rank whose tensor is x, of what it has received: x where it receives nothing."""
    # Every result is a new tensor, even where it equals what was passed: on a wire nothing is shared either, and a rank
    # that writes into its result must not change another's.
    return [t.clone() for t in received or ([] if call.op == "gather" else [x])]


def carry_out(call: Call, operands: Sequence[Tensor], rank: int) -> list[Tensor]:
    """The result of a call on one rank, from the tensors of all ranks.

    Args:
        call: the call, which all ranks make. operands: what each rank passes, by rank. rank: whose result it is.

    Returns:
        New tensors: one per rank where tensors are gathered or exchanged, else one.
    """
    passed = [_tensors_of(call, x) for x in operands]
    received = results_of(call.op, passed, rank, _root_of(call), call.reduction or "", range(len(operands)))
    return result_of(call, operands[rank], received)


class SoloComm(Comm):
    """The only rank of a group: no collective needs another one."""

    def __init__(self) -> None:
        self.rank, self.size = 0, 1

    def _run(self, call: Call, x: Tensor) -> list[Tensor]:
        return carry_out(call, [x], 0)
