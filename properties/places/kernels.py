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
from collections.abc import Callable
from dataclasses import astuple, replace
from typing import Any

from ...oracles.op.declaration import EXECUTED, INTERPRETED, Op, Sample
from ...oracles.verdicts.verdict import Cell, Code, Verdict
from ...oracles.verdicts.violation import Unsupported
from .. import worlds
from ..engine import cells
from ..engine.samples import Settings
from ..table import PROPERTIES
from .executing import execute_launches
from .here import Here
from .prepared import ApartPlace, Worker

#: Seconds that one question may take. A program of a kernel takes milliseconds, and a cell has thousands.
DEADLINE = 900.0
#: What prepares the process of a subject, and what it is prepared for, in messages.
PREPARATIONS = {
    INTERPRETED: ("opassay.properties.places.interpreting:install", "interpreted kernels"),
    EXECUTED: ("opassay.properties.places.interpreting:install_executor", "kernels as PTX"),
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


class LaunchedKernels(Here):
    """This process while it executes the Triton kernels that somebody's function launches in its own way.

    Args:
        compiled: the architecture that they are compiled for.
    """

    def __init__(self, compiled: str) -> None:
        self._compiled = compiled

    def judge(self, cell: Cell, settings: Settings, op: Op | None) -> Verdict:
        return self._answer(cell, lambda own: cells.judge_cell(own, settings, op))

    def replay(self, cell: Cell, sample: Sample, text: str) -> Verdict:
        return self._answer(cell, lambda own: cells.judge_sample(own, sample))

    def _answer(self, cell: Cell, judge: Callable[[Cell], Verdict]) -> Verdict:
        # A run that has read nothing but the name of the declaration asks for subject "opassay".
        own = replace(cell, subject=EXECUTED)
        _require_question(own, PREPARATIONS[EXECUTED][1])
        with execute_launches(self._compiled):
            return replace(judge(own), cell=cell)


def kernel_place(subject: str) -> KernelPlace:
    """The place of a subject that this process keeps."""
    place: KernelPlace = worlds.helper_of(PREPARATIONS[subject][1], functools.partial(KernelPlace, subject))
    return place


def _require_applicable(cell: Cell, what: str) -> None:
    """Raise Unsupported unless the cell can be asked of kernels on this machine; `what` are they in words."""
    _require_question(cell, what)
    cells.open_cell(cell, light=True)  # which refuses questions that need no process to be refused
    if importlib.util.find_spec("triton") is None:
        raise Unsupported(Code.NO_DEVICE, "Triton is not installed; opassay[triton] brings it, on Linux")


def _require_question(cell: Cell, what: str) -> None:
    """Raise Unsupported unless the question of a cell is asked of kernels, on the CPU."""
    question = PROPERTIES.get(cell.property)
    if question is not None and cell.subject not in question.kernels:
        codes = ", ".join(code for code, other in PROPERTIES.items() if cell.subject in other.kernels)
        raise Unsupported(Code.NOT_APPLICABLE, f"{cell.property} is not asked of {what}; asked are {codes}")
    if cell.device != "cpu":
        raise Unsupported(Code.NOT_APPLICABLE, f"{what} run on the CPU, not on {cell.device}")
