"""What a place is, in which cells are judged; and the simplest place: this process, prepared for no question."""

from __future__ import annotations

from typing import Protocol

from ...oracles.op.declaration import Op, Sample
from ...oracles.verdicts.verdict import Cell, Verdict
from ..engine import cells, samples


class Place(Protocol):
    """Where a cell is judged."""

    def judge(self, cell: Cell, settings: samples.Settings, op: Op | None) -> Verdict:
        """The verdict of a cell on samples that are drawn there; `op` is its declaration, where no catalog has it.

        Raises:
            Unsupported: the question cannot be asked there.
        """

    def replay(self, cell: Cell, sample: Sample, text: str) -> Verdict:
        """The verdict of a cell on the sample of a case file; `text` is the file."""


class Here:
    """This process."""

    def judge(self, cell: Cell, settings: samples.Settings, op: Op | None) -> Verdict:
        return cells.judge_cell(cell, settings, op)

    def replay(self, cell: Cell, sample: Sample, text: str) -> Verdict:
        return cells.judge_sample(cell, sample)
