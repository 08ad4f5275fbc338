"""What a candidate is asked, and what it answers: data, so that it can run in another process."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

import msgspec
import numpy as np
import torch
from torch.utils import _pytree as pytree

from ....reference.meeting import Delivery
from ...places import wire
from ..arguments import CallArguments, State, Tensor
from ..layouts import Placing
from ..results import first_homes, overlaps
from .operations import Operations

#: Dtypes of numbers: those that an output may have, whether or not it may have them here.
DTYPES = frozenset(wire.DTYPES.values())


class Manner(enum.StrEnum):
    """How the arguments of a call come, and in which surrounding the candidate is called."""

    PLAIN = "plain"  # new tensors, in memory as the call's `placing` says
    SAME = "same"  # the tensors of the call before, with other data written into them
    REBORN = "reborn"  # other tensors in the memory of the call before
    SHIFTED = "shifted"  # one element after the beginning of their memory
    POISONED = "poisoned"  # memory that nobody wrote reads as NaN
    AUTOCAST = "autocast"  # under autocast to bfloat16
    PARAMETERS = "parameters"  # floating tensors are torch.nn.Parameter
    COMPILED = "compiled"  # by way of torch.compile, with the backend that runs the traced graph
    ASSIGNED = "assigned"  # parameters and buffers are other objects, as `load_state_dict(assign=True)` makes them
    EVALUATION = "evaluation"  # the module is in evaluation
    THREADS = "threads"  # torch has several threads
    ALONE = "alone"  # torch has one thread
    STEADY = "steady"  # kernels as PTX run in their usual variant, in every call
    REORDERED = "reordered"  # the same, with warps in another order
    LATE = "late"  # ranks read what they pass to others as late as they may, and add in another order
    FAR = "far"  # rows are repeated beyond 2^31 elements, and launches run some of their blocks


#: Of how many calls outputs are looked at again in the end, and of how many elements each at most.
_STAYING, _LARGE = 24, 2**18

#: The form of a result that stands in destinations (`CandidateCall.destinations`).
DESTINATIONS = "destinations"


class Writes(msgspec.Struct, frozen=True):
    """What is asked of that which a call may write.

    Attributes:
        buffers: names of the parameters and buffers whose values are asked for afterwards.
        restored: positions of the tensor arguments that get their values again before each call in a row, as all of
            `CandidateCall.state` does that `buffers` names.
        after: whether the arguments as they are after the call are asked for.
    """

    buffers: list[str] = []
    restored: list[int] = []
    after: bool = False


class BackwardCall(msgspec.Struct, frozen=True):
    """Which gradients are asked for.

    Attributes:
        moving: of which floating arguments, by their positions among those. wanted: of which parameters, by name.
        cotangents: one for each floating output. strides: of each cotangent, where one comes in other memory than
            contiguous.
        rows: which are asked for of the gradients of those `moving` that `having` marks; empty for all.
        apart: whether a call at other values, and its backward, come between the backward and a second one.
        inner: whether the arguments are no leaves.
    """

    moving: list[int] = []
    wanted: list[str] = []
    cotangents: list[Any] = []
    strides: list[list[int]] = []
    rows: list[int] = []
    having: list[bool] = []
    apart: bool = False
    inner: bool = False


class Sequel(msgspec.Struct, frozen=True):
    """What is asked of a call once the candidate has returned, so that nothing in its process tells of it before.

    Attributes:
        times: how often it is called in a row, the first time included. writes: see `Writes`.
        earlier: whether the outputs of the call before are asked for, as they are now.
        fetched: whether the outputs are left where they are, for `Answering.fetch`.
        watched: whether the process is compared before and after the further calls.
    """

    times: int = 1
    writes: Writes = Writes()
    earlier: bool = False
    fetched: bool = False
    watched: bool = False


class CandidateCall(msgspec.Struct, frozen=True):
    """One call of the candidate.

    Attributes:
        leaves, structure: of the arguments. state: parameters and buffers to be written first, by name.
        manner: see `Manner`. placing: of the tensor arguments and the destinations in memory.
        destinations: shape and dtype of what it writes its outputs into, where it is to.
        backward: the gradients asked for; None for none. sequel: see `Sequel`.
        watched: whether the process is compared before and after, which takes a while.
        stored: whether the leaves are those of every other call that says so; they need to come once.
    """

    leaves: list[Any]
    structure: str
    state: dict[str, Any] = {}
    manner: Manner = Manner.PLAIN
    placing: Placing = Placing()
    destinations: list[tuple[list[int], str]] = []
    backward: BackwardCall | None = None
    sequel: Sequel = Sequel()
    watched: bool = False
    stored: bool = False

    @classmethod
    def of(cls, arguments: CallArguments, state: State | None = None, **questions: Any) -> CandidateCall:
        leaves = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in arguments.leaves]
        return cls(leaves, pytree.treespec_dumps(arguments.structure), dict(state or {}), **questions)

    @property
    def arguments(self) -> CallArguments:
        return CallArguments(tuple(self.leaves), pytree.treespec_loads(self.structure))


class WrittenTensors(msgspec.Struct, frozen=True):
    """What a call may have written, as it is afterwards: parameters and buffers, None for one that is gone, in the
    order of `Writes`; and the tensor arguments.
    """

    buffers: list[Any] = []
    after: list[Any] = []


class Aliases(msgspec.Struct, frozen=True):
    """Of each output the tensor argument whose memory it shares, -1 for none; pairs of outputs that share memory."""

    shared: list[int] = []
    overlaps: list[tuple[int, int]] = []

    def among(self, arguments: Sequence[Tensor]) -> Aliases:
        """The same, where arguments that share memory as they are given count as the first of them."""
        homes, pairs = self.shared, self.overlaps
        if overlaps(arguments):  # outputs that are views of these overlap, too
            pairs = [pair for pair in pairs if min(homes[i] for i in pair) < 0]
        return Aliases(first_homes(homes, arguments), pairs)


class Repeat(msgspec.Struct, frozen=True):
    """Which call in a row had other bits than the first, or another form; 0 for none. And its outputs, or those of the
    last call, and the seconds that one call took.
    """

    differs: int = 0
    different: list[Any] = []
    seconds: float = 0.0


class Pulled(msgspec.Struct, frozen=True):
    """What came of a backward.

    Attributes:
        gradients: of the arguments and then the parameters; None for one without. Empty where no output requires any.
        again: the same by a second backward through the same graph, where they have other bits.
        spent: the exception that it raised; empty for none.
        changed: positions of the gradients that the backward of another call changed.
    """

    gradients: list[Any] = []
    again: list[Any] = []
    spent: str = ""
    changed: list[int] = []


class Executed(msgspec.Struct, frozen=True):
    """How kernels of the candidate were executed as PTX, so far.

    Attributes:
        variants: in how many they may be; every call has the next one. tale: of what was launched, in lines.
        variant: in words, that of this call; of calls in a row that of the last one that was made.
        fault: the code of what is wrong with a launch; "" for nothing. text: of the fault, in lines. rows: those of the
            outputs that were written at `Manner.FAR`. wraps: where indices wrapped, in lines.
    """

    variants: int = 0
    tale: list[str] = []
    variant: str = ""
    fault: str = ""
    text: list[str] = []
    rows: list[int] = []
    wraps: list[str] = []


class Answer(msgspec.Struct, frozen=True):
    """What came of a call.

    Attributes:
        outputs: the tensors among the leaves of the result. form, plain: see `results.Result`.
        earlier: the outputs of the call before, as they are now.
        changed: what the call changed in its process. raised: the type and text of an exception; empty for none.
        executed: see there; None where no kernel was executed as PTX.
        shapes: of the outputs, where they were left for `Answering.fetch`.
    """

    outputs: list[Any] = []
    form: str = ""
    plain: list[Any] = []
    writes: WrittenTensors = WrittenTensors()
    aliases: Aliases = Aliases()
    repeat: Repeat = Repeat()
    pulled: Pulled = Pulled()
    earlier: list[Any] = []
    changed: list[str] = []
    raised: str = ""
    executed: Executed | None = None
    shapes: list[tuple[int, ...]] = []


class Making(msgspec.Struct, frozen=True):
    """What a candidate is made of.

    Attributes:
        call: its arguments are what a class of modules is made of.
        files: the bytes of files that were read for it, by path; they are not read again.
        dtype, device: those of floating parameters and buffers, and of all of them, by name; empty for their own.
        evaluation: whether a module is put in evaluation.
    """

    call: CandidateCall
    files: dict[str, bytes] = {}
    dtype: str = ""
    device: str = ""
    evaluation: bool = False


_Request = TypeVar("_Request", CandidateCall, Making)


class Answering(Protocol):
    """A candidate that can be asked, in this process or in another.

    Attributes:
        name: for messages. shapes: of its parameters and buffers, by name.
        changed: what its making changed in its process, a line each.
        parameters: see `arguments.parameters_of`.
    """

    name: str
    shapes: dict[str, tuple[int, ...]]
    parameters: dict[str, bool]
    changed: Sequence[str]

    def ask(self, call: CandidateCall) -> Answer:
        """The answer to a call.

        Raises:
            GoneError: the candidate's process has ended or is out of time.
        """

    def fetch(self, rows: Sequence[int], earlier: bool = False) -> Answer:
        """These rows of the outputs of the last call; or, as `Answer.earlier`, of the call before as they are now.

        The candidate is not told which rows they are before it has answered.

        Raises:
            GoneError: as `ask` does.
        """

    def review(self) -> Answer:
        """As `Answer.earlier`, the outputs of all calls that `stays` is true of, one after the other, as they are now;
        as `Answer.changed`, what was replaced in a process of the candidate's own.

        Raises:
            GoneError: as `ask` does.
        """

    def operations(self, call: CandidateCall) -> Operations:
        """What one more call runs, as the candidate's process tells it; nothing of its outputs is looked at.

        Raises:
            GoneError: as `ask` does.
        """

    def left_behind(self) -> list[str]:
        """What the candidate left outside of its process, now that it is asked no more: processes, and files written.

        The process is ended; processes that it started are ended, too.
        """


class GoneError(RuntimeError):
    """A candidate that answers no more.

    Attributes:
        timed_out: whether it was out of time, rather than ended by itself.
    """

    def __init__(self, text: str, timed_out: bool = False) -> None:
        super().__init__(text)
        self.timed_out = timed_out


class LateError(RuntimeError):
    """The time of the whole judgement is over while a candidate is asked: nothing is said of it by that."""


def stays(call: CandidateCall, outputs: Sequence[Any], count: int) -> bool:
    """Whether the outputs of a call are looked at again in the end, where those of so many calls are already.

    Judge and host ask this of the same calls. They are more than a candidate has buffers that it fills by turns.
    """
    passes = call.sequel.fetched or count >= _STAYING
    return not passes and sum(y.numel() for y in outputs) <= _LARGE


def overwrite(file: BinaryIO, message: msgspec.Struct | Delivery) -> None:
    """Write a message into a file; what it had before is overwritten in place."""
    # A large file that is made anew takes other memory of the system's, every page of which has to be cleared first.
    file.seek(0)
    file.writelines(wire.pieces(message))
    file.truncate()
    file.flush()


def write(path: Path, message: Answer) -> None:
    """Write an answer to a file that is not there."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        overwrite(file, message)


def read_message(path: Path, kind: type[_Request]) -> _Request:
    """What the judge has written to a file.

    Raises:
        ValueError: it holds something else. OSError: it cannot be read.
    """
    return wire.decode(np.fromfile(path, dtype=np.uint8).data, kind, placed=True)


def floating(tensors: Sequence[Any]) -> list[Tensor]:
    return [t for t in tensors if isinstance(t, torch.Tensor) and t.dtype.is_floating_point]


def require_plain_outputs(outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The outputs of a call, which must be tensors of numbers in memory.

    Raises:
        TypeError: one is of a class of its own, or has methods of its own, or is quantized, nested, sparse, on device
            meta, or of a dtype of bits.
    """
    for y in outputs:
        # Before a method of it is called, which a class of its own may have written.
        if type(y) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError(f"the output is a {type(y).__name__}, need a torch.Tensor")
        methods = sorted(name for name in vars(y) if hasattr(torch.Tensor, name))
        if methods:
            raise TypeError(f"the output has its own {methods[0]}, need those of torch.Tensor")
        without = y.is_meta or y._is_zerotensor()
        if y.is_quantized or y.is_nested or y.layout is not torch.strided or without or y.dtype not in DTYPES:
            kind = f"dtype {y.dtype}, layout {y.layout}, device {y.device}{', nested' * y.is_nested}"
            raise TypeError(f"the output has {kind}, need a tensor of numbers in memory")
    return outputs
