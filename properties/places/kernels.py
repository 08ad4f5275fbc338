"""The places of subjects "triton" and "ptx": processes in which the kernels of the production ops run on the CPU.

What this is for: the kernels are judged on a machine without a GPU: their values, and every address they touch. What
that says nothing about is a GPU; a report calls the subjects by their names, never CUDA.

What is hard here: Triton decides when it is imported whether kernels are interpreted or compiled, and both the
interpreter and the compiler are changed for the whole process. So each takes a process of its own, in which nothing
else is judged.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import astuple
from typing import Any

from ...oracles.op.declaration import EXECUTED, INTERPRETED
from ...oracles.verdicts.verdict import Cell, Code, Verdict
from ...oracles.verdicts.violation import Unsupported
from .. import worlds
from ..engine import cells
from ..table import PROPERTIES
from .prepared import ApartPlace, Worker

#: Seconds that one question may take. A program of a kernel takes milliseconds, and a cell has thousands.
DEADLINE = 900.0
#: What prepares the process of a subject, and what it is prepared for, in messages.
PREPARATIONS = {
    INTERPRETED: ("opassay.properties.places.interpreting:install", "interpreted kernels"),
    EXECUTED: ("opassay.properties.places.executing:install", "kernels as PTX"),
}


class KernelPlace(ApartPlace):
    """The place of one subject of kernels: one process, which starts with the first question."""

    def __init__(self, subject: str) -> None:
        prepare, self._purpose = PREPARATIONS[subject]
        self._worker = Worker(prepare, DEADLINE, self._purpose)

    def _ask(self, cell: Cell, **question: Any) -> Verdict:
        _require_applicable(cell, self._purpose)
        self._worker.ask(cell=astuple(cell), **question)
        return self._worker.answer()

    def close(self) -> None:
        """End the process."""
        self._worker.close()


def kernel_place(subject: str) -> KernelPlace:
    """The place of a subject that this process keeps."""
    place: KernelPlace = worlds.helper_of(PREPARATIONS[subject][1], functools.partial(KernelPlace, subject))
    return place


def _require_applicable(cell: Cell, what: str) -> None:
    """Raise Unsupported unless the cell can be asked of kernels on this machine; `what` are they in words."""
    question = PROPERTIES.get(cell.property)
    if question is not None and cell.subject not in question.kernels:
        codes = ", ".join(code for code, other in PROPERTIES.items() if cell.subject in other.kernels)
        raise Unsupported(Code.NOT_APPLICABLE, f"{cell.property} is not asked of {what}; asked are {codes}")
    if cell.device != "cpu":
        raise Unsupported(Code.NOT_APPLICABLE, f"{what} run on the CPU, not on {cell.device}")
    cells.open_cell(cell, light=True)  # which refuses questions that need no process to be refused
    if importlib.util.find_spec("triton") is None:
        raise Unsupported(Code.NO_DEVICE, "Triton is not installed; opassay[triton] brings it, on Linux")
