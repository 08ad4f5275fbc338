"""The lengths of the sums of a formula, as its reading finds them.

A report shows how errors grow with the number of terms of the longest sum, and a probe of an implementation needs a
formula with one sum. Only the formula determines which extents of the arguments multiply to such a number, so the rules
of sums and products record it during a reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass
class SumLengths:
    """How many terms each of the operations of a reading adds up that have more than one, in order."""

    every: list[int] = field(default_factory=list)

    @property
    def longest(self) -> int:
        """The most terms of any sum; 1 where there is no sum."""
        return max(self.every, default=1)


_LENGTHS: ContextVar[SumLengths | None] = ContextVar("lengths", default=None)


@contextmanager
def record_lengths() -> Iterator[SumLengths]:
    """Record the sums that are read in the block; a block around it does not record the sums of this one."""
    lengths = SumLengths()
    token = _LENGTHS.set(lengths)
    try:
        yield lengths
    finally:
        _LENGTHS.reset(token)


def record_sum(terms: int) -> None:
    """Record a sum of this many terms, where a block of `record_lengths` is open."""
    lengths = _LENGTHS.get()
    if lengths is not None and terms > 1:
        lengths.every.append(terms)
