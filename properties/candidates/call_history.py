"""How the calls of a candidate have gone so far, which later questions go by."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...oracles.op.bits import same_bits
from .arguments import CallArguments, Tensor
from .host.calls import Answer, CandidateCall, Executed
from .host.operations import Operations
from .results import SpecRun, overlaps

_UNKNOWN = object()


@dataclass
class UnchangedArguments:
    """The arguments that had one value in all calls so far: numbers, options, and tensors of one integer.

    Attributes:
        values: position among the leaves -> the value; None before the first call. count: of the leaves.
    """

    values: dict[int, Any] | None = None
    count: int = 0

    def note(self, arguments: CallArguments) -> None:
        """Take a call into account; one tensor in the places of several, which is one leaf, says nothing of others."""
        leaves = arguments.leaves
        if self.values is None:
            self.values = {i: value for i, leaf in enumerate(leaves) if (value := _only_value(leaf)) is not _UNKNOWN}
            self.count = len(leaves)
        elif len(leaves) == self.count:
            pairs = [(i, v, leaves[i]) for i, v in self.values.items()]
            empty = {i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and not leaf.numel()}
            self.values = {i: v for i, v, leaf in pairs if i in empty or _only_value(leaf) == v}


def _only_value(leaf: Any) -> Any:
    """The value that an argument has in all of its elements; `_UNKNOWN` for floating tensors and mixed ones."""
    if not isinstance(leaf, Tensor):
        return leaf
    if leaf.is_floating_point() or leaf.is_complex() or not leaf.numel():
        return _UNKNOWN
    if leaf.dtype is torch.bool:
        return _UNKNOWN if bool(leaf.any()) != bool(leaf.all()) else bool(leaf.all())
    try:
        least, largest = torch.aminmax(leaf)
    except (RuntimeError, NotImplementedError):  # of unsigned formats that torch does not compare
        return _UNKNOWN
    return least.item() if least == largest else _UNKNOWN


@dataclass
class CallHistory:
    """How the calls of a candidate have gone so far.

    Attributes:
        calls: how many there were. changed: what they changed in its process.
        in_a_row: how many CALLS:again makes; None for as many as half a second takes.
        alike: whether the last one was answered, and at tensors of the shapes of those given.
        strayed: whether an output was wrong so far. Then it is likely to be wrong again, where several questions in
            one call would not tell which one it is.
        erring: whether one was wrong when outputs were held last. operations: what `plain` runs, where known.
        gradients: of the candidate at the given inputs, by operand. executed: kernels as PTX; None where none was.
        staying: outputs of calls of which `stays` is true. plain: the last plain call at the given inputs.
        beside: what calls did that was asked of others: inputs that were written, outputs in memory of inputs; None
            once a question has told of that.
    """

    calls: int = 0
    in_a_row: int | None = None
    changed: list[str] = field(default_factory=list)
    alike: bool = False
    strayed: bool = False
    erring: bool = False
    gradients: dict[int | str, Tensor | None] = field(default_factory=dict)
    executed: Executed | None = None
    staying: list[Sequence[Tensor]] = field(default_factory=list)
    plain: CandidateCall | None = None
    operations: Operations | None = None
    beside: list[str] | None = field(default_factory=list)

    def note(
        self, arguments: CallArguments, answer: Answer, native: SpecRun, alike: bool, writes: Callable[[], Any],
        allowed: Collection[int] = (),
    ) -> None:  # fmt: skip
        """Note what a call did besides its outputs: a candidate that counts its calls knows which one is asked of it.

        Args:
            arguments: of the call; as they are afterwards they need not be among its answer. native: of the spec.
            alike: whether its outputs may share the memory that those of `native` share.
            writes: positions of what the spec writes in this very call, by an option perhaps.
            allowed: those of what the candidate may write, by the word of the spec's author.
        """
        if self.beside is None:
            return
        pairs = enumerate(zip(arguments.tensors, answer.writes.after, strict=False))
        changed = {i for i, (was, now) in pairs if i not in native.writes and not same_bits(was, now)}
        for i in sorted(changed.difference(writes()) if changed else ()):
            self.beside.append(f"{arguments.label(i)} of call {self.calls} was written")
        for name, other in shared_memory(arguments, answer, native, allowed) if alike else ():
            self.beside.append(f"{name} of call {self.calls} shares memory with {other}")


def shared_memory(
    arguments: CallArguments, answer: Answer, native: SpecRun, allowed: Collection[int] = ()
) -> Iterator[tuple[str, str]]:
    """Outputs of a call in the memory of an argument or of an earlier output, by name, where the spec's are not.

    Args:
        arguments, answer, native, allowed: as for `CallHistory.note`; an output may lie in what may be written.
    """
    for name, home, right in zip(native.names, answer.aliases.shared, native.shared, strict=False):
        if home >= 0 and home != right and home not in allowed:
            yield name, arguments.label(home)
    theirs = overlaps(native.result.raw)
    for later, earlier in answer.aliases.overlaps:
        if later < len(native.outputs) and (later, earlier) not in theirs:
            yield native.names[later], native.names[earlier]
