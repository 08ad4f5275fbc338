"""Choices that a reading can decide: each of their rows has a few sequences of integers, of which it takes one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

from .choice import Choice


class Decidable(Choice):
    """A choice that goes by rows.

    Attributes:
        name: of the operation that chooses, where a reader has given it one.
    """

    name = ""

    @abstractmethod
    def as_rows(self, numbers: Any) -> Any:
        """Integers, of the shape of this choice, as a table with a line for each row."""

    @abstractmethod
    def of_table(self, table: Any) -> Any:
        """The inverse of `as_rows`."""

    @abstractmethod
    def can_take(self, table: Any) -> Any:
        """The lines of a table that a reading can go on with, whether an evaluation may have them or not."""

    @abstractmethod
    def open_rows(self) -> Any:
        """The numbers of the rows in which more than one sequence is possible."""

    @abstractmethod
    def sequences(self, row: int) -> Iterator[Any]:
        """Every sequence that is possible in a row, the likely one first."""

    def tables(self) -> Iterator[Any] | None:
        """Tables of which the first has the first sequence of every row, and so on; None where none are at hand."""
        return None

    @property
    def is_ordered(self) -> bool:
        """Whether values that stand beside the integers have one order."""
        return True
