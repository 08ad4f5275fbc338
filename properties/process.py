"""A worker process as its owner sees it: started, asked, watched, ended.

The owner imports no torch and runs no op. Whatever an op does to the worker, the owner stays, and says what happened.
Questions and answers are lines of JSON over pipes of their own. What the worker prints comes by a third pipe, so that
nothing that an op prints can be taken for an answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

#: The program of a worker, by default.
COMMAND = (sys.executable, "-m", "opassay.properties.worker")
#: Bytes of what a worker printed that are kept, of its beginning and of its end.
KEPT = 2048
#: Bytes of stacks that are kept.
MAX_STACKS = 8 * 2**10
#: Bytes of one answer; a longer one is no answer.
MAX_ANSWER = 32 * 2**20
#: Seconds that a worker gets to write its stacks before it is killed, and to end by itself when it is told to.
_LAST_WORDS, _FAREWELL = 1.0, 5.0

#: One thread per process: the processes are the parallelism, and sums do not depend on the number of cores.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


#: What a worker is told that judges alone: in no team of ranks, and with no limit on its memory.
ALONE: Mapping[str, Any] = {"world": ["lockstep", "host", None], "memory": 0, "join": False}


class AnswerError(RuntimeError):
    """What came from a worker is no answer."""


class Process:
    """One worker process.

    Args:
        hello: what the worker is told first (see `opassay.properties.worker`).
        command: the program and its arguments; by default `COMMAND`.
        attached: whether it shares this process's terminal, for a debugger; else it has a session of its own, so that
            an interrupt from the terminal reaches the owner alone, and what it prints is read by the owner.

    Attributes:
        answers, output: file descriptors to wait for. printed: how many bytes the worker printed.
        closed: those of the two that the other side has closed, which a process does when it ends, or for spite.
        mark: the setting in the environment by which this process, and what it starts, can be told from others.
    """

    def __init__(self, hello: Mapping[str, Any], *, command: Sequence[str] = (), attached: bool = False) -> None:
        self.attached, self.printed = attached, 0
        self.closed: set[int] = set()
        self.mark = f"OPASSAY_WORKER={os.getpid()}.{time.monotonic_ns()}"
        self._first, self._last, self._unread = b"", b"", bytearray()
        # In memory, because a temporary folder may be full or missing just when a process dies.
        self._stacks = os.fdopen(os.memfd_create("opassay-stacks"), "w+b")
        theirs_in, self._questions = os.pipe()
        self.answers, theirs_out = os.pipe()
        self.output, printed = (-1, None) if attached else os.pipe()
        theirs = (theirs_in, theirs_out, self._stacks.fileno())
        try:
            self._popen = subprocess.Popen(
                [*(command or COMMAND), str(os.getpid()), *map(str, theirs), "attached" if attached else "apart"],
                stdin=None if attached else subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                pass_fds=theirs,
                env=_environment(self.mark),
                start_new_session=not attached,
            )
        except BaseException:
            self._shut(self._questions, self.answers, self.output)
            raise
        finally:
            self._shut(theirs_in, theirs_out, -1 if printed is None else printed)
        for handle in (self.answers, self.output):
            if handle >= 0:
                os.set_blocking(handle, False)
        self.ask(hello)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended; it may have left an answer that is not read yet."""
        return self._popen.poll() is not None

    def ask(self, question: Mapping[str, Any]) -> None:
        """Send a question of at most a pipe's buffer; a worker that has ended takes none, and `ended` will say so."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._questions, json.dumps(question).encode() + b"\n")

    def read(self) -> list[dict[str, Any]]:
        """The answers that have come.

        Raises:
            AnswerError: something came that is none.
        """
        while more := self._drain(self.answers):
            self._unread += more
            if len(self._unread) > MAX_ANSWER:
                raise AnswerError(f"an answer of more than {MAX_ANSWER} bytes")
        *lines, rest = self._unread.split(b"\n") if b"\n" in self._unread else (self._unread,)
        self._unread = rest
        return [_decoded(bytes(line)) for line in lines]

    def listen(self) -> None:
        """Take in what the worker printed: all of it is counted, its beginning and its end are kept."""
        while self.output >= 0 and (more := self._drain(self.output)):
            self.printed += len(more)
            self._first = (self._first + more)[:KEPT]
            self._last = (self._last + more)[-KEPT:]

    def said(self) -> str:
        """The end of what the worker printed."""
        self.listen()
        return self._last.decode(errors="replace")

    def began_saying(self) -> str:
        """The beginning of what it printed."""
        return self._first.decode(errors="replace")

    def memory(self) -> int:
        """Bytes of memory that the process holds now."""
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            return 0

    def how(self) -> str:
        """How the process ended, in words."""
        code = self._popen.poll()
        if code is None:
            return "still running"
        if code >= 0:
            return f"exit status {code}"
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"

    def stacks(self) -> str:
        """Where its threads stood, if it ended by a fatal signal or was asked to tell."""
        self._stacks.seek(0)
        content = self._stacks.read(MAX_STACKS * 64)
        start = max(content.rfind(b"Fatal Python error"), 0)
        return content[start : start + MAX_STACKS].decode(errors="replace")

    def tell_stacks(self) -> None:
        """Have the worker write where its threads stand, also in code that holds the interpreter's lock."""
        before = os.fstat(self._stacks.fileno()).st_size
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
        until = time.monotonic() + _LAST_WORDS
        while time.monotonic() < until and not self.ended:
            size = os.fstat(self._stacks.fileno()).st_size
            time.sleep(0.05)
            if size > before and os.fstat(self._stacks.fileno()).st_size == size:
                return

    def kill(self) -> None:
        """End the process and all of its session, at once."""
        if not self.attached:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._popen.kill()
        self._popen.wait()

    def dismiss(self) -> None:
        """Tell the worker that there are no more questions; it ends by itself, or `close` ends it."""
        self._shut(self._questions)
        self._questions = -1

    def close(self) -> None:
        """End the process: give it a moment if it was told to go, and free what this side holds of it."""
        if self._questions < 0 and not self.ended:
            self.settle(_FAREWELL)
        self.kill()
        self.listen()
        self._shut(self._questions, self.answers, self.output)
        self._questions = self.answers = self.output = -1
        self._stacks.close()

    def settle(self, seconds: float) -> None:
        """Wait for the end, but not long. What is printed meanwhile is read: a full pipe would hold the process up."""
        until = time.monotonic() + seconds
        while not self.ended and time.monotonic() < until:
            self.listen()
            time.sleep(0.01)

    def _drain(self, handle: int) -> bytes:
        """What has come; nothing is waited for."""
        if handle in self.closed:
            return b""
        try:
            more = os.read(handle, 1 << 16)
        except BlockingIOError:
            return b""
        if not more:
            self.closed.add(handle)
        return more

    @staticmethod
    def _shut(*handles: int) -> None:
        for handle in handles:
            if handle >= 0:
                with contextlib.suppress(OSError):
                    os.close(handle)


def _environment(mark: str) -> dict[str, str]:
    """The environment of a worker: this process's, one thread, and threads that sleep while they wait for each other.

    Some cells ask for several threads; threads that spin would take the processor from the other workers.
    """
    name, _, value = mark.partition("=")
    return {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, **_ENVIRONMENT, name: value}


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError) as err:
        raise AnswerError(f"something that is no answer ({type(err).__name__})") from err
    if not isinstance(answer, dict):
        raise AnswerError(f"something that is no answer (a {type(answer).__name__})")
    return answer
