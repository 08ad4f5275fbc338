"""Memory: strides, alignment, and memory that was not written."""

from __future__ import annotations

import functools

from ..finding import Finding
from ..host.calls import Manner
from ..session import Asking, Session


def placed(code: str, manner: Manner, refusable: bool, session: Session) -> Finding:
    """The given values, otherwise placed. A candidate may refuse strides, but must not compute something else."""
    # Memory that is not written may be the tail of the given size, so POISON asks for all of a large problem.
    alone = manner is not Manner.POISONED
    return session.values(code, session.given, manner=manner, refusable=refusable, alone=alone)


ASKING: dict[str, Asking] = {
    "STRIDES": functools.partial(placed, "STRIDES", Manner.STRIDED, True),
    "ALIGN": functools.partial(placed, "ALIGN", Manner.SHIFTED, True),
    "POISON": functools.partial(placed, "POISON", Manner.POISONED, False),
}
