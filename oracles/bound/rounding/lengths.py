"""How long the sums of a formula are, as its reading meets them.

A report shows how errors grow with the number of terms of a sum. Which extents of the arguments make that number, the
formula alone tells, so the rules of sums and products say it while they are read.
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


_NOTED: ContextVar[LongestSum | None] = ContextVar("noted", default=None)


@contextmanager
def noted() -> Iterator[LongestSum]:
    """What the block reads is noted; an outer block does not hear of it."""
    longest = LongestSum()
    token = _NOTED.set(longest)
    try:
        yield longest
    finally:
        _NOTED.reset(token)


def met(terms: int) -> None:
    """A rule reads a sum of so many terms."""
    longest = _NOTED.get()
    if longest is not None and terms > longest.longest:
        longest.longest = terms
