"""How much work a call of a session's spec may be, so that no size is asked that takes too long."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from ...oracles.specs.tracing import without_fused_operations
from ...oracles.specs.work import WorkCounter, Workload
from .arguments import CallArguments
from .inputs import stand_in
from .session import Session
from .specification import SpecError

#: A size is left out if a call of the spec takes more than so many operations of torch, and more than so many times
#: those at the given inputs: a loop over steps or experts may have as many operations as the size says.
OPERATIONS, _TIMES_GIVEN = 1000, 2
#: The same for multiplications in products of matrices. In a chain of products of a matrix with its own transpose, such
#: as Newton-Schulz iterations, each product takes the cube of the size, however few elements the arguments have.
_MULTIPLICATIONS = 2**29
#: The same for elements of results, which broadcasting multiplies, however few elements the arguments have.
_ELEMENTS = 2**26
#: Calls at sizes where kernels may take another branch: at least, and at most.
_FEWEST, _MOST_CALLS = 6, 96
#: The largest number of output elements if kernels are executed as PTX, thread by thread: each may be a long sum.
_EXECUTED = 2**15
#: A candidate is slow that takes more seconds at the given inputs, and so many times those of the spec, as a program in
#: Python does in place of one operation. At other sizes its calls take so many seconds together, and each at most a
#: share of what is left, so that small ones are made whatever large ones took.
_SLOW, _TIMES_SPEC, _SECONDS, _SHARE = 5e-4, 4, 10.0, 1 / 8


@dataclass
class CallLimit:
    """What calls at other sizes may take.

    Attributes:
        most: the largest work of the spec at one. seconds: what is left for a slow candidate; infinite for another.
        rate: its seconds for an element, at the largest call so far, of `elements`. left_out: calls it has no time for.
    """

    most: Workload
    seconds: float = math.inf
    rate: float = 0.0
    elements: int = 0
    left_out: int = 0

    def note(self, arguments: CallArguments, seconds: float) -> None:
        """Take into account what a call took."""
        self.seconds -= seconds
        if (count := _count(arguments)) >= self.elements:
            self.elements, self.rate = count, seconds / max(count, 1)

    @property
    def text(self) -> str:
        """What was left out, in words; empty for nothing."""
        words = f"{self.left_out} calls at other sizes, for which the candidate would take more than {_SECONDS:g} s"
        return words if self.left_out else ""


def _count(arguments: CallArguments) -> int:
    return sum(t.numel() for t in arguments.tensors)


def count_work(session: Session) -> Workload:
    """The work of a call of the spec at the given inputs."""
    counter = WorkCounter(Workload(*[math.inf] * 4))
    with counter, without_fused_operations():
        session.spec.outputs(session.arguments, session.spec.state)
    return counter.work


def limit_of(session: Session, times: float = 1.0) -> CallLimit:
    """What calls at other sizes may take; `times`: those of one call that one with its backward takes."""
    work = count_work(session)
    least = Workload(OPERATIONS, _MULTIPLICATIONS, _ELEMENTS, math.inf)
    most = Workload(*(max(floor, _TIMES_GIVEN * own) for floor, own in zip(least, work, strict=True)))
    took = [session.first.repeat.seconds]
    took += [session.call(session.arguments).repeat.seconds] if took[0] > _SLOW else []  # The first may load something.
    starts = []
    for _ in range(3 if took[1:] else 0):
        starts.append(time.perf_counter())
        session.spec.outputs(session.arguments, session.spec.state)
    if min(took) <= _SLOW or min(took) <= _TIMES_SPEC * (starts[2] - starts[1]):
        return CallLimit(most)
    count = _count(session.arguments)
    return CallLimit(most, _SECONDS, times * min(took) / max(count, 1), count)


def calls_within(session: Session, operations: int) -> int:
    """How many calls have so many operations together, if each has those of the given one.

    A count by the clock would ask other calls of the same seed whenever the machine is busy.
    """
    return max(_FEWEST, min(_MOST_CALLS, int(operations // max(count_work(session).operations, 1))))


def work_at(session: Session, arguments: CallArguments, limit: CallLimit) -> Workload | None:
    """The work at some arguments; None if the spec refuses them, if it is more than the limit, or if kernels are
    executed and have many outputs.
    """
    if limit.rate * _count(arguments) > _SHARE * limit.seconds:  # It grows as the number of elements does.
        limit.left_out += 1
        return None
    others = stand_in(arguments)  # outside of the count
    try:
        with WorkCounter(limit.most) as counter, without_fused_operations():
            outputs = session.spec.outputs(others, session.spec.state)
    except SpecError:
        return None
    many = session.history.executed is not None and sum(y.numel() for y in outputs) > _EXECUTED
    return None if many else counter.work
