"""A table of text, for a terminal or for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TextTable:
    """Cells of text under headings, and sentences after them."""

    headings: tuple[str, ...]
    cells: Sequence[tuple[str, ...]]
    remarks: list[str]

    def lines(self) -> list[str]:
        """The table for a terminal."""
        shown = [self.headings, *self.cells] if self.cells else []
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        return [
            *("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown),
            *self.remarks,
        ]

    def markdown(self) -> list[str]:
        """The table for a page."""
        shown = [self.headings, tuple("---" for _ in self.headings), *self.cells] if self.cells else []
        return [*("| " + " | ".join(row) + " |" for row in shown), "", *(f"- {remark}" for remark in self.remarks)]
