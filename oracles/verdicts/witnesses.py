"""Whom an assertion in somebody's test tells of its verdicts: a report that is made beside the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .verdict import Cell, Verdict

#: They are called with the verdicts of one assertion before it fails, and may raise in its place.
WITNESSES: list[Callable[[Sequence[Verdict]], None]] = []

#: They are called with each question of an assertion before it is asked.
ANNOUNCERS: list[Callable[[Cell], None]] = []


def tell(verdicts: Sequence[Verdict]) -> None:
    """Tell all of them; a cell without an op is named after the test."""
    for witness in tuple(WITNESSES):
        witness(verdicts)
