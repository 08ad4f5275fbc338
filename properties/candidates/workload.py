"""How much work a call of a session's spec may be, so that no size is asked that takes too long."""

from __future__ import annotations

import math

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


def count_work(session: Session) -> Workload:
    """The work of a call of the spec at the given inputs."""
    counter = WorkCounter(Workload(*[math.inf] * 4))
    with counter, without_fused_operations():
        session.spec.outputs(session.arguments, session.spec.state)
    return counter.work


def most_work(session: Session) -> Workload:
    """The largest work of a call of the spec at another size."""
    work = count_work(session)
    return Workload(
        max(OPERATIONS, _TIMES_GIVEN * work.operations),
        max(_MULTIPLICATIONS, _TIMES_GIVEN * work.multiplications),
        max(_ELEMENTS, _TIMES_GIVEN * work.elements),
        math.inf,
    )


def calls_within(session: Session, operations: int) -> int:
    """How many calls have so many operations together, if each has those of the given one.

    A count by the clock would ask other calls of the same seed whenever the machine is busy.
    """
    return max(_FEWEST, min(_MOST_CALLS, int(operations // max(count_work(session).operations, 1))))


def work_at(session: Session, arguments: CallArguments, most: Workload) -> Workload | None:
    """The work at some arguments; None if the spec refuses them, if it is more than `most`, or if kernels are executed
    and have many outputs.
    """
    others = stand_in(arguments)  # outside of the count
    try:
        with WorkCounter(most) as counter, without_fused_operations():
            outputs = session.spec.outputs(others, session.spec.state)
    except SpecError:
        return None
    many = session.history.executed is not None and sum(y.numel() for y in outputs) > _EXECUTED
    return None if many else counter.work
