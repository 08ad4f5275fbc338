"""The length of the longest sum of a formula, as its reading finds it.

A report shows how errors grow with the number of terms of a sum. Only the formula determines which extents of the
arguments multiply to that number, so the rules of sums and products record it during a reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class LongestSum:
    """The most terms of any sum of a reading; 1 where there is no sum."""

    longest: int = 1


_LONGEST: ContextVar[LongestSum | None] = ContextVar("longest", default=None)


@contextmanager
def record_longest() -> Iterator[LongestSum]:
    """Record the longest sum that is read in the block; a block around it does not record the sums of this one."""
    longest = LongestSum()
    token = _LONGEST.set(longest)
    try:
        yield longest
    finally:
        _LONGEST.reset(token)


def record_sum(terms: int) -> None:
    """Record a sum of this many terms, where a block of `record_longest` is open."""
    longest = _LONGEST.get()
    if longest is not None and terms > longest.longest:
        longest.longest = terms
