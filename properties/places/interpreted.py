"""The place of subject "triton": a process in which the Triton kernels of the production ops are interpreted.

What this is for: the kernels are judged on a machine without a GPU: their values, and every address they touch. What
that says nothing about is a GPU; a report calls the subject interpreted, never CUDA.

What is hard here: Triton decides when it is imported whether kernels are interpreted, and the interpreter patches its
language for the whole process. So this takes a process of its own, in which nothing else is judged.
"""

from __future__ import annotations

import importlib.util
from dataclasses import astuple
from typing import Any

from ...oracles.verdicts.verdict import Cell, Code, Verdict
from ...oracles.verdicts.violation import Unsupported
from .. import worlds
from ..engine import cells
from ..table import PROPERTIES
from .prepared import ApartPlace, Worker

#: Seconds that one question may take. An interpreted program takes milliseconds, and a cell has thousands.
DEADLINE = 900.0
INSTALL = "opassay.properties.places.interpreting:install"
_NAME = "interprets kernels"


class Interpreted(ApartPlace):
    """The place of interpreted kernels: one process, which starts with the first question."""

    def __init__(self) -> None:
        self._worker = Worker(INSTALL, DEADLINE, "interpreted kernels")

    def _ask(self, cell: Cell, **question: Any) -> Verdict:
        _require_interpretable(cell)
        self._worker.ask(cell=astuple(cell), **question)
        return self._worker.answer()

    def close(self) -> None:
        """End the process."""
        self._worker.close()


def interpreted_place() -> Interpreted:
    """The place that this process keeps."""
    place: Interpreted = worlds.helper_of(_NAME, Interpreted)
    return place


def _require_interpretable(cell: Cell) -> None:
    """Raise Unsupported unless the cell can be asked of interpreted kernels on this machine."""
    question = PROPERTIES.get(cell.property)
    if question is not None and not question.interprets:
        codes = ", ".join(code for code, other in PROPERTIES.items() if other.interprets)
        reason = f"{cell.property} is not asked of interpreted kernels; asked are {codes}"
        raise Unsupported(Code.NOT_APPLICABLE, reason)
    if cell.device != "cpu":
        raise Unsupported(Code.NOT_APPLICABLE, f"kernels are interpreted on the CPU, not on {cell.device}")
    cells.open_cell(cell, light=True)  # which refuses questions that need no process to be refused
    if importlib.util.find_spec("triton") is None:
        raise Unsupported(Code.NO_DEVICE, "Triton is not installed; opassay[triton] brings it, on Linux")
