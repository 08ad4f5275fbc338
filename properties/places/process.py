"""A process that judges, as its owner sees it: started, asked, watched, ended. All helper processes are of this kind.

What this is for: ops run in other processes than the one that reports on them. Whatever an op does to its process, the
owner survives, and reports what happened. The workers of the pool, the processes that are prepared for a question, and
the ranks that this package starts differ only in their programs, all of which begin with `serving.serve`.

What is hard here: an op may print anything, close any file, or leave its process at any moment. So questions and
answers are lines of JSON over pipes of their own, and the output of the process comes by a third pipe: nothing that an
op prints can be taken for an answer. A pipe that nobody reads fills up and blocks the writer, so an owner that waits
for the process has to read its output, too. And a process that has ended may have answered just before: the owner
first asks whether the process has ended, and reads the answers after that.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

#: How many bytes of a process's output are kept, of its beginning and of its end each.
MOST_OUTPUT = 2048
#: How many bytes of stacks are kept.
MAX_STACKS = 8 * 2**10
#: The most bytes of one answer; a longer line is no answer.
MAX_ANSWER = 32 * 2**20
#: Seconds that a process gets to write its stacks before it is killed, and to end by itself when it is told to.
_LAST_WORDS, _FAREWELL = 1.0, 5.0
#: Seconds between two looks at a process that is waited for.
_TICK = 0.02

#: One thread per process: the processes are the parallelism, and sums do not depend on the number of cores. CUDA is
#: looked for without being started, so that a process can be copied afterwards. And cuBLAS has a workspace by which its
#: products have the same bits in every call (PyTorch, notes on reproducibility); it is read when CUDA starts.
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTORCH_NVML_BASED_CUDA_CHECK"), "1")
_ENVIRONMENT["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"


class AnswerError(RuntimeError):
    """What came from a process is no answer."""


class EndedError(RuntimeError):
    """A process gave no answer before it ended, or in time; the text says which, and its last output."""


class ChildProcess(Protocol):
    """The part of `subprocess.Popen` that `Process` uses."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def kill(self) -> None: ...
    def wait(self) -> int: ...


#: Starts a program, which begins with `serving.serve`: (arguments, file descriptors that stay open there, file
#: descriptor of its output, environment) -> the process. The output is None for that of this process.
Start = Callable[[Sequence[str], Sequence[int], int | None, Mapping[str, str]], ChildProcess]


class Process:
    """One process that judges.

    Args:
        hello: the first message to the process; its program defines the fields.
        command: the program, which begins with `serving.serve`, and its arguments; or a function that starts the
            program in a session of its own.
        attached: whether it shares this process's terminal, for a debugger; else it has a session of its own, so that
            an interrupt from the terminal reaches the owner alone.
        reads_output: whether the owner reads the output of the process; else it goes where the owner's own output goes.
        marked: whether the process gets a mark of its own; else it has the mark of the process that starts it, if that
            has one, so that a search for that mark finds both.

    Attributes:
        answers, output: file descriptors to wait for; -1 for none. printed: how many bytes the process printed.
        closed: those of `answers` and `output` that the process has closed, by its end or by an op.
        mark: `NAME=value` in the environment of this process and of all that it starts, which tells them from others.
    """

    def __init__(
        self, hello: Mapping[str, Any], *, command: Sequence[str] | Start, attached: bool = False,
        reads_output: bool = True, marked: bool = True,
    ) -> None:  # fmt: skip
        self.attached, self.printed = attached, 0
        self.closed: set[int] = set()
        self.mark = f"OPASSAY_WORKER={os.getpid()}.{time.monotonic_ns()}"
        self._first, self._last, self._unread = b"", b"", bytearray()
        self._unclaimed: deque[dict[str, Any]] = deque()  # answers that were read, but not yet returned by `answer`
        # In memory, because a temporary folder may be full or missing just when a process dies.
        self._stacks = os.fdopen(os.memfd_create("opassay-stacks"), "w+b")
        theirs_in, self._questions = os.pipe()
        self.answers, theirs_out = os.pipe()
        self.output, outlet = os.pipe() if reads_output and not attached else (-1, None)
        theirs = (theirs_in, theirs_out, self._stacks.fileno())
        try:
            words = [str(os.getpid()), *map(str, theirs), "attached" if attached else "apart"]
            environment = _own_environment(self.mark if marked else "")
            if callable(command):
                self._popen: ChildProcess = command(words, theirs, outlet, environment)
            else:
                self._popen = subprocess.Popen(
                    [*command, *words],
                    stdin=None if attached else subprocess.DEVNULL,
                    stdout=outlet,
                    stderr=outlet,
                    pass_fds=theirs,
                    env=environment,
                    start_new_session=not attached,
                )
        except BaseException:
            # Nobody has an object whose constructor raised, so nobody could close these pipes later.
            self._shut(self._questions, self.answers, self.output)
            raise
        finally:
            # The process has copies of its own of these ends. If this side kept its copies, the pipes would stay open
            # after the process has ended, and its end would not be seen.
            self._shut(theirs_in, theirs_out, -1 if outlet is None else outlet)
        for handle in (self.answers, self.output):
            if handle >= 0:
                # Reading must never wait, because one owner looks after several processes in turn.
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
        """Send a question. A process that has ended takes none, and `ended` will say so.

        For a question that is longer than a pipe's buffer (64 KiB), this waits until the process has read the rest.
        """
        content = memoryview(json.dumps(question).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):
            while content:
                content = content[os.write(self._questions, content) :]

    def read(self) -> list[dict[str, Any]]:
        """The answers that have come since the last call.

        Raises:
            AnswerError: the process wrote something that is no answer.
        """
        while more := self._drain(self.answers):
            self._unread += more
            # An op may find this pipe and write into it; without a limit it could fill the memory of the owner.
            if len(self._unread) > MAX_ANSWER:
                raise AnswerError(f"an answer of more than {MAX_ANSWER} bytes")
        # What follows the last line break is the beginning of an answer that is still on its way.
        *lines, rest = self._unread.split(b"\n") if b"\n" in self._unread else (self._unread,)
        self._unread = rest
        return [_decoded(bytes(line)) for line in lines]

    def answer(self, until: float, stopped: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """Wait for the next answer.

        Args:
            until: the deadline, in seconds of `time.monotonic`.
            stopped: called several times a second; once it is true, the wait ends.

        Raises:
            AnswerError: the process wrote something that is no answer.
            EndedError: the process has ended, or the deadline has passed.
            KeyboardInterrupt: `stopped` was true.
        """
        while not self._unclaimed:
            # Whether the process has ended is asked before the pipe is read: if it has, it has written all that it ever
            # will, so an answer that came just before the end is not lost.
            ended = self.ended
            self._unclaimed += self.read()
            self.listen()
            if self._unclaimed:
                break
            if ended:
                raise EndedError(f"died ({self.how()}){self._last_lines()}")
            if stopped():
                raise KeyboardInterrupt
            remaining = until - time.monotonic()
            if remaining <= 0:
                raise EndedError(f"did not answer in time{self._last_lines()}")
            # A closed pipe counts as readable for ever. The wait is short, because neither the end of a process nor
            # an interrupt makes a pipe readable.
            open_ones = [h for h in (self.answers, self.output) if h >= 0 and h not in self.closed]
            select.select(open_ones, [], [], min(remaining, _TICK))
        return self._unclaimed.popleft()

    def _last_lines(self) -> str:
        """The last lines that the process printed, for the end of a sentence."""
        lines = self.last_output().strip().splitlines()[-3:]
        return f": {' | '.join(lines)}" if lines else ""

    def listen(self) -> None:
        """Take in the output of the process: all bytes are counted, the beginning and the end are kept."""
        while self.output >= 0 and (more := self._drain(self.output)):
            self.printed += len(more)
            self._first = (self._first + more)[:MOST_OUTPUT]
            self._last = (self._last + more)[-MOST_OUTPUT:]

    def last_output(self) -> str:
        """The end of the output of the process."""
        self.listen()
        return self._last.decode(errors="replace")

    def first_output(self) -> str:
        """The beginning of the output of the process."""
        return self._first.decode(errors="replace")

    def memory(self) -> int:
        """Bytes of memory that the process holds now."""
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as file:
                # The second number is the resident set, in pages: what is only reserved costs the machine nothing.
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
        """The stacks of the process's threads, if it ended by a fatal signal or after `tell_stacks`; else empty."""
        self._stacks.seek(0)
        content = self._stacks.read(MAX_STACKS * 64)
        # Stacks that were asked for may stand before those of a crash. The crash is what ended the process, so the
        # report begins with the last one.
        start = max(content.rfind(b"Fatal Python error"), 0)
        return content[start : start + MAX_STACKS].decode(errors="replace")

    def last_words(self) -> str:
        """End the process: its stacks, and the end of what it printed, which really is the last then."""
        self.kill()
        output = self.last_output().strip()
        return "\n".join(filter(None, (self.stacks().strip(), f"printed last:\n{output}" if output else "")))

    def tell_stacks(self) -> None:
        """Have the process write the stacks of its threads, also in code that holds the interpreter's lock."""
        before = os.fstat(self._stacks.fileno()).st_size
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
        until = time.monotonic() + _LAST_WORDS
        while time.monotonic() < until and not self.ended:
            size = os.fstat(self._stacks.fileno()).st_size
            time.sleep(0.05)
            # The handler writes piece by piece and says nowhere that it has finished, so it counts as finished once
            # nothing is added between two looks.
            if size > before and os.fstat(self._stacks.fileno()).st_size == size:
                return

    def kill(self) -> None:
        """End the process and all of its session, at once."""
        if not self.attached:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                # A process with a session of its own leads a group of its own, to which all that an op started there
                # belongs, unless it left that group on purpose.
                os.killpg(self.pid, signal.SIGKILL)
        self._popen.kill()
        self._popen.wait()

    def dismiss(self) -> None:
        """Tell the process that there are no more questions; it ends by itself, or `close` ends it."""
        self._shut(self._questions)
        self._questions = -1

    def close(self) -> None:
        """End the process, after a moment if it was dismissed, and close this side's files. Later calls do nothing."""
        if self._stacks.closed:
            return
        if self._questions < 0 and not self.ended:
            self.settle(_FAREWELL)
        self.kill()
        self.listen()
        self._shut(self._questions, self.answers, self.output)
        self._questions = self.answers = self.output = -1
        self._stacks.close()

    def settle(self, seconds: float) -> None:
        """Wait some seconds for the end of the process, and read its output meanwhile: a full pipe would block it."""
        until = time.monotonic() + seconds
        while not self.ended and time.monotonic() < until:
            self.listen()
            time.sleep(0.01)

    def _drain(self, handle: int) -> bytes:
        """The bytes that are in a pipe; this does not wait for more."""
        if handle in self.closed:
            return b""
        try:
            more = os.read(handle, 1 << 16)
        except BlockingIOError:
            return b""
        # To read nothing from a pipe, without an error, means that every writer has closed it.
        if not more:
            self.closed.add(handle)
        return more

    @staticmethod
    def _shut(*handles: int) -> None:
        for handle in handles:
            if handle >= 0:
                with contextlib.suppress(OSError):
                    os.close(handle)


def _own_environment(mark: str) -> dict[str, str]:
    """The environment of a process that judges: that of this process, with one thread, and threads that sleep to wait.

    Some cells ask for several threads; threads that spin would take the processor from the other processes.
    """
    own = dict([mark.split("=", 1)]) if mark else {}
    # The order matters: a user may choose another way of waiting, but not another number of threads, on which the
    # order of sums depends.
    return {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, **_ENVIRONMENT, **own}


def _decoded(line: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError) as err:
        raise AnswerError(f"something that is no answer ({type(err).__name__})") from err
    if not isinstance(answer, dict):
        raise AnswerError(f"something that is no answer (a {type(answer).__name__})")
    return answer
