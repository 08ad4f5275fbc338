"""FWAD: torch's own forward AD, judged in a process with our decompositions installed and in one without.

What this is for: torch keeps the first decomposition that is registered for an op's forward AD, for the whole process
and for good. So whether our decompositions help is a question that one process cannot answer: it is asked in two, and
neither of them is this one.

What is hard here: a process is prepared once and asked many times, so a failure must leave no answer behind for the
next question. After an error of any kind, or an interrupt, both processes are ended with whatever answers they still
owe; the next question starts new ones.
"""

from __future__ import annotations

import abc
import atexit
import sys
import time
from dataclasses import asdict, astuple, replace
from typing import Any

from ...impl import decompositions
from ...oracles.op.declaration import KERNELS, Op, Sample
from ...oracles.verdicts.data import decode_verdict
from ...oracles.verdicts.verdict import Cell, Code, Outcome, Verdict
from ...oracles.verdicts.violation import Unsupported
from .. import worlds
from ..engine import cells, samples
from .process import AnswerError, EndedError, Process

#: Seconds that one question may take, the start of the process included.
DEADLINE = 300.0
INSTALL = "opassay.impl.decompositions:install_jvp_decompositions"
#: The name under which `worlds` keeps the two processes.
_PREPARED = "prepared for forward AD"


class WorkerError(RuntimeError):
    """A prepared process that died, did not answer in time, or answered something else."""


class Worker:
    """A process that judges cells with `prepare` ("module:function", called first there) in effect.

    Used by one thread at a time. After a failure of any kind the process is ended; the next question starts another.

    Args:
        prepare: "" calls nothing. deadline: seconds that one question may take.
        purpose: what the process is prepared for, in messages.

    Attributes:
        process: None where none is running.
    """

    def __init__(self, prepare: str = "", deadline: float = DEADLINE, purpose: str = "forward AD") -> None:
        self._prepare, self._deadline, self._purpose = prepare, deadline, purpose
        self.process: Process | None = None

    def ask(self, **question: Any) -> None:
        """Send a question; `answer` gives the answers to several in their order."""
        if self.process is None or self.process.ended:
            self._start()
        assert self.process is not None
        self.process.ask(question)

    def answer(self) -> Verdict:
        """The verdict on the oldest question that has no answer yet.

        Raises:
            WorkerError: the process gave none.
        """
        if self.process is None:
            raise WorkerError(f"the worker for {self._purpose} is not running")
        try:
            until = time.monotonic() + self._deadline
            # A process says once, before its first answer, that it is ready. `ask` does not wait for that message, so
            # it is passed over here.
            while "ready" in (reply := self.process.answer(until)):
                continue
            return decode_verdict(reply["verdict"])
        except EndedError as err:
            late = time.monotonic() > until
            self.close()
            text = str(err).replace("in time", f"within {self._deadline:.0f} s", 1) if late else str(err)
            raise WorkerError(f"the worker for {self._purpose} {text}") from err
        except (AnswerError, ValueError, KeyError) as err:
            self.close()
            raise WorkerError(f"the worker for {self._purpose} answered something else ({err})") from err
        except BaseException:  # an interrupt, too, leaves an answer behind that nobody waits for
            self.close()
            raise

    def close(self) -> None:
        """End the process."""
        process, self.process = self.process, None
        if process is not None:
            atexit.unregister(self.close)
            process.close()

    def _start(self) -> None:
        self.close()
        # The process keeps the mark of the worker that starts it, so that the pool finds both when it ends that
        # worker.
        command = (sys.executable, "-m", "opassay.properties.places.prepared_program")
        self.process = Process({"prepare": self._prepare}, command=command, marked=False)
        atexit.register(self.close)


class ApartPlace(abc.ABC):
    """A place in other processes, which know ops by name."""

    def judge(self, cell: Cell, settings: samples.Settings, op: Op | None) -> Verdict:
        """The verdict of a cell.

        Raises:
            Unsupported: the question is not asked of this op there, or the op has no name that other processes know.
            WorkerError: a process failed.
        """
        if op is not None:
            what = f"subject {cell.subject!r}" if cell.subject in KERNELS else cell.property
            raise Unsupported(Code.NOT_APPLICABLE, f"{what} is asked of ops that other processes know by name")
        return self._ask(cell, settings=asdict(settings))

    def replay(self, cell: Cell, sample: Sample, text: str) -> Verdict:
        """The verdict on the sample of a case file; errors are those of `judge`."""
        return self._ask(cell, case=text)

    @abc.abstractmethod
    def _ask(self, cell: Cell, **question: Any) -> Verdict:
        """The verdict on a question; errors are those of `judge`."""


class PreparedPlace(ApartPlace):
    """The place of FWAD: two processes, with our decompositions installed and without.

    A cell of subject "torch" is torch's forward AD as it comes, one of "opassay" the same with our decompositions; the
    reason of the latter says how the former fared.
    """

    def __init__(self, before: Worker | None = None, after: Worker | None = None) -> None:
        self.before, self.after = before or Worker(), after or Worker(INSTALL)

    def close(self) -> None:
        """End both processes."""
        self.before.close()
        self.after.close()

    def _ask(self, cell: Cell, **question: Any) -> Verdict:
        """The verdict on a question; after an error both processes are ended."""
        cells.open_cell(cell, light=True)  # which refuses questions that need no process to be refused
        _require_installable(cell)
        try:
            return self._compare(cell, {"cell": astuple(cell), **question})
        except Unsupported:
            raise
        except BaseException:
            self.close()
            raise

    def _compare(self, cell: Cell, data: dict[str, Any]) -> Verdict:
        """The verdict of the process that the subject names; for "opassay", also how the cell fared without ours."""
        self.before.ask(**data)
        # Torch's op as it comes needs no process in which our decompositions are installed.
        if cell.subject != "opassay":
            return self.before.answer()
        # Both processes are asked before either answer is waited for, so that they work at the same time.
        self.after.ask(**data)
        without, verdict = self.before.answer(), self.after.answer()
        if verdict.outcome is Outcome.WEAK and not verdict.measure.judged:
            raise Unsupported(
                Code.NOT_APPLICABLE, f"torch's own op takes none of the samples in {cell.dtype} on {cell.device}"
            )
        if verdict.outcome is not Outcome.VERIFIED:
            return verdict
        fared = f"without our decomposition: {without.outcome}, {without.reason}"
        return replace(verdict, reason=f"{verdict.reason}; {fared}")


def prepared_place() -> PreparedPlace:
    """The place that this process keeps; its two processes start with the first question."""
    place: PreparedPlace = worlds.helper_of(_PREPARED, PreparedPlace)
    return place


def _require_installable(cell: Cell) -> None:
    """Raise Unsupported unless a decomposition of ours can change torch's forward AD of the op."""
    if cell.subject not in ("opassay", "torch"):
        raise Unsupported(
            Code.NOT_APPLICABLE, f"{cell.property} is asked of torch's op with our decompositions or torch's"
        )
    overload = decompositions.overload_of(cell.op)
    if overload is None:
        raise Unsupported(Code.NOT_APPLICABLE, f"no decomposition for forward AD is registered for {cell.op}")
    if not decompositions.installable(overload):
        reason = f"torch has a forward-AD formula of its own for {overload}, which no registration changes"
        raise Unsupported(Code.NOT_APPLICABLE, reason)
