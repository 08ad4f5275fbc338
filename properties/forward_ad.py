"""FWAD: torch's own forward AD, judged in a process with our decompositions installed and in one without.

Installing is for the whole process and for good, so both processes are apart from this one. They start with the first
cell that needs them, answer one line per question, and end with this process: their input closes.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import pickle
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from typing import IO, Any

from ..impl import decompositions
from ..oracles.verdict import Cell, Code, Outcome, Verdict
from ..oracles.violation import Unsupported

#: Seconds that one question may take, the start of the process included.
DEADLINE = 300.0
INSTALL = "opassay.impl.decompositions:install_jvp_decompositions"
_WORKER = "opassay.properties.forward_ad_worker"


class WorkerError(RuntimeError):
    """A worker process that died, did not answer in time, or answered something else."""


class Worker:
    """A process that judges cells with `prepare` ("module:function", called first there) in effect.

    Used by one thread at a time. After a failure of any kind the process is ended; the next question starts another.
    """

    def __init__(self, prepare: str = "", deadline: float = DEADLINE) -> None:
        self._prepare, self._deadline = prepare, deadline
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None  # what the process writes to its standard error
        self._asked = 0
        self._unread = b""

    def ask(self, **question: Any) -> int:
        """Send a question; its number, for `answer`. Several may be open."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        self._asked += 1
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"number": self._asked, **question}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as err:
            raise WorkerError(self._ended("did not take a question")) from err
        return self._asked

    def answer(self, number: int) -> Verdict:
        """The verdict of the question of that number.

        Raises:
            WorkerError: there is none.
        """
        try:
            until = time.monotonic() + self._deadline
            while True:
                reply = json.loads(self._line(until))
                if reply["number"] == number:
                    break
            verdict = pickle.loads(base64.b64decode(reply["verdict"]))
        except (ValueError, KeyError) as err:
            raise WorkerError(self._ended(f"answered something else ({err})")) from err
        except BaseException:  # an interrupt, too, leaves an answer behind that nobody waits for
            self.close()
            raise
        assert isinstance(verdict, Verdict)
        return verdict

    def close(self) -> None:
        """End the process."""
        process, self._process, self._unread = self._process, None, b""
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _start(self) -> None:
        self.close()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        # A session of its own: an interrupt from the terminal is for this process, which then ends the worker.
        self._process = subprocess.Popen(
            [sys.executable, "-m", _WORKER, self._prepare, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            start_new_session=True,
        )
        atexit.register(self.close)

    def _line(self, until: float) -> bytes:
        process = self._process
        if process is None or process.stdout is None:
            raise WorkerError("the worker for forward AD is not running")
        while b"\n" not in self._unread:
            left = until - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                raise WorkerError(self._ended(f"did not answer within {self._deadline:.0f} s"))
            more = os.read(process.stdout.fileno(), 1 << 16)
            if not more:
                raise WorkerError(self._ended("died"))
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _ended(self, what: str) -> str:
        """Ends the process and says why, with the last lines that it wrote."""
        code = None if self._process is None else self._process.poll()
        self.close()
        last: list[str] = []
        if self._said is not None:
            self._said.seek(0)
            last = self._said.read()[-2000:].decode(errors="replace").strip().splitlines()[-3:]
        exited = "" if code is None else f", exit status {code}"
        return f"the worker for forward AD {what}{exited}{': ' if last else ''}{' | '.join(last)}"


BEFORE, AFTER = Worker(), Worker(INSTALL)


def judged(cell: Cell, **question: Any) -> Verdict:
    """The verdict of a cell: "torch" is torch's forward AD as it comes, "opassay" the same with our decompositions.

    The reason of the latter says how the former fared.

    Raises:
        Unsupported: no decomposition of ours bears on this op.
        WorkerError: a worker failed.
    """
    _require_installable(cell)
    data = {"cell": [cell.op, cell.property, cell.dtype, cell.device, cell.subject], **question}
    before = BEFORE.ask(**data)
    if cell.subject != "opassay":
        return BEFORE.answer(before)
    after = AFTER.ask(**data)
    without, verdict = BEFORE.answer(before), AFTER.answer(after)
    if verdict.outcome is Outcome.WEAK and not verdict.measure.judged:
        raise Unsupported(
            Code.NOT_APPLICABLE, f"torch's own op takes none of the samples in {cell.dtype} on {cell.device}"
        )
    if verdict.outcome is not Outcome.VERIFIED:
        return verdict
    return replace(verdict, reason=f"{verdict.reason}; without our decomposition: {without.outcome}, {without.reason}")


def _require_installable(cell: Cell) -> None:
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
