"""The failures of a cell: each kind once, with how many samples showed it.

What this is for: a cell that ended at its first failure would report one cause and hide the others behind it. So the
cell goes on for a while, and reports every kind of failure: the promise, the path, the output and the error tell kinds
apart.

What is hard here: time. Whoever judges an implementation with many faults must not wait for hours; so the time after
the first failure is limited, and only the first failure's sample is made simpler. Every other kind is reported by the
smallest sample that showed it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from ...oracles.judge.judge import Judge
from ...oracles.op.declaration import OWN, Sample
from ...oracles.op.paths import Problem
from ...oracles.process import interrupt
from ...oracles.verdicts.verdict import steps_of
from ...oracles.verdicts.violation import Violation, kind_of
from .limits import processor_seconds

#: Seconds of processor time that a cell goes on for after its first failure was made simple.
FURTHER = 0.3
#: The most kinds of failures that a cell reports.
MOST = 6
#: The most ops that a failure lists as called: as many as a record keeps.
MOST_CALLS = 64
#: Ops of torch that move, copy or make tensors, or ask how they lie: they do none of the work.
_MOVING = frozenset(
    {"_to_copy", "clone", "copy_", "detach", "alias", "view", "_unsafe_view", "as_strided", "expand", "permute"}
    | {"transpose", "unsqueeze", "squeeze", "select", "slice", "t", "_reshape_alias", "contiguous", "reshape"}
    | {"empty", "empty_like", "zeros", "zeros_like", "full", "ones", "ones_like", "new_empty", "new_zeros"}
    | {"fill_", "zero_", "lift_fresh", "scalar_tensor", "is_same_size", "_has_same_storage_numel"}
)


#: Ops that end in the kernel of another one.
_SAME_KERNEL = {"_native_batch_norm_legit": "native_batch_norm", "batch_norm_backward": "native_batch_norm_backward"}


class Spent(BaseException):
    """Ends the drawing of samples once the time is spent. An Exception would be a failing sample to Hypothesis."""


@dataclass
class FailureKind:
    """One kind of failure.

    Attributes:
        sample, violation: the smallest sample that failed in this way, and the promise it broke.
        part: the part of the cell that the sample is in. samples: how many failed in this way.
    """

    sample: Sample
    violation: Violation
    part: str
    samples: int = 1


class Failures:
    """All kinds of failures of a cell, in the order in which each was first seen."""

    def __init__(self) -> None:
        self.kinds: dict[tuple[object, ...], FailureKind] = {}
        self._until: float | None = None

    def note(self, sample: Sample, violation: Violation, part: str) -> None:
        """Count a sample that failed."""
        kind, key = self.kinds.get(kind_of(violation)), kind_of(violation)
        if kind is None:
            self.kinds[key] = FailureKind(sample, violation, part)
            return
        kind.samples += 1
        if _elements(sample) < _elements(kind.sample):
            kind.sample, kind.violation, kind.part = sample, violation, part

    def count(self, violation: Violation) -> int:
        """How many samples failed in the same way as a violation; at least one."""
        kind = self.kinds.get(kind_of(violation))
        return 1 if kind is None else kind.samples

    def others(self, first: Violation) -> list[FailureKind]:
        """The kinds besides that of a failure, the most frequent first."""
        kinds = [kind for key, kind in self.kinds.items() if key != kind_of(first)]
        return sorted(kinds, key=lambda kind: -kind.samples)[: MOST - 1]

    @property
    def going_on(self) -> bool:
        """Whether the first failure was made simple, and further samples are judged for a while."""
        return self._until is not None

    def go_on(self) -> None:
        """Have further samples judged from now on, until the time is spent."""
        self._until = processor_seconds() + FURTHER

    def require_time(self) -> None:
        """Raise Spent once the time for further samples is over."""
        if self._until is not None and processor_seconds() > self._until:
            raise Spent


def _elements(sample: Sample) -> int:
    return sum(a.numel() for a in sample.args if isinstance(a, torch.Tensor))


class _Listening(TorchDispatchMode):
    """Notes the names of the ops that are called."""

    ops: dict[str, None]

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.ops[func.overloadpacket.__name__] = None
        return func(*args, **(kwargs or {}))


#: The class, called through a type of its own because its base class in torch has no types.
_LISTENING: Callable[[], _Listening] = _Listening


def kernel_of(judge: Judge, sample: Sample) -> str:
    """The op of torch that a call of the subject ends in, where there is one besides copies and views; else empty.

    It is empty for the implementation of the op's author, whose faults are not those of an op that it calls.
    """
    if judge.subject_name == OWN:
        return ""
    working = calls_of(judge, sample)
    return working[0] if len(working) == 1 else ""


def calls_of(judge: Judge, sample: Sample, path: str = "") -> list[str]:
    """The ops of torch, copies and views left out, that a call of the subject makes, or the innermost step of a path.

    That step is written last, as in "jvp∘vjp"; for an empty path the call alone is made.
    """
    steps = steps_of(path)
    # A subject whose first argument is a text, which says what to compute, does its work in no single op of torch.
    if judge.compiled or isinstance(sample.args[0], str):
        return []
    listening = _LISTENING()
    listening.ops = {}
    try:
        with listening:
            _derive(judge, sample.args, steps[-1] if steps else "")
    except BaseException:
        # The subject may raise after the op was called, so the ops that were called until then still name it.
        interrupt.reraise()
    return list(dict.fromkeys(_SAME_KERNEL.get(name, name) for name in listening.ops if name not in _MOVING))


def _derive(judge: Judge, args: Sequence[Any], step: str) -> None:
    """Call the subject, and for a step take the derivative along ones: of every output, in every input that has one."""
    operands = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    if not step:
        with torch.no_grad():
            judge.subject(*operands)
        return
    problem = Problem(judge.op, operands)
    function, inputs = problem.subject(judge.subject), [a.detach() for a in problem.inputs]
    if step == "jvp":
        with forward_ad.dual_level(), torch.no_grad():
            function(*(forward_ad.make_dual(a, torch.ones_like(a)) for a in inputs))
        return
    inputs = [a.requires_grad_() for a in inputs]
    with torch.enable_grad():
        outputs = [y for y in function(*inputs) if isinstance(y, torch.Tensor) and y.requires_grad]
    torch.autograd.grad(outputs, inputs, [torch.ones_like(y) for y in outputs], allow_unused=True)
