"""A candidate's process as a copy of this one: what a new process would import first, it has imported already.

What this is for: to import torch and its compiler takes two seconds of the processor, more than many candidates take to
be judged. A copy is made before the spec is read, so nothing of it is there.

What is hard here: a copy has everything of this process, so all that a program must not get is let go first: files, the
handlers of signals, the group and the session that the terminal's signals reach. And only the thread that makes a copy
is in it, so a process with several threads must not be copied.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ....oracles import process
from ...collector import imports_set_aside
from ...places.lifeline import show_memory
from ...places.process import Process
from . import program

#: The exit status of a copy that could not be prepared; what it runs ends it in another way.
_BROKEN = 70


def process_copied(hello: Mapping[str, Any]) -> Process | None:
    """A candidate's process, a copy of this one; None where this has threads or CUDA. `hello`: its first message."""
    with imports_set_aside():
        process.settle()
        from . import calls, host, module_files  # noqa: F401 (the copy has them, too)
    if not _has_one_thread() or torch.cuda.is_initialized():
        return None
    return Process(hello, command=partial(ProcessCopy, program.main), marked=False)


def _has_one_thread() -> bool:
    with contextlib.suppress(OSError):  # on another system than Linux
        return len(os.listdir("/proc/self/task")) == 1
    return False


class ProcessCopy:
    """A copy of this process, to be used as `subprocess.Popen` is.

    Args:
        run: what it calls before it ends. words: of its command line, as it reads them.
        kept: files that stay open there. printed: where it prints to; None for where this process does.
        environment: of what the copy starts, and what `os.environ` says there.
    """

    def __init__(
        self, run: Callable[[], None], words: Sequence[str], places: Sequence[int], printed: int | None,
        environment: Mapping[str, str],
    ) -> None:  # fmt: skip
        sys.stdout.flush()
        sys.stderr.flush()
        self._status: int | None = None
        self.pid = process.fork()
        if self.pid:
            return
        gc.freeze()  # what is there now is never collected in the copy: that would write to all of it, and so copy it
        try:
            _let_go(places, printed)
            os.environ.clear()
            os.environ.update(environment)
            sys.argv[1:], sys.orig_argv[1:] = words, []
            run()
        finally:
            os._exit(_BROKEN)

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._ended(os.WNOHANG)

    def wait(self) -> int:
        """The exit status, waited for."""
        return self._ended(0) or 0

    def kill(self) -> None:
        """End it at once."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _ended(self, how: int) -> int | None:
        if self._status is None:
            try:
                pid, status = os.waitpid(self.pid, how)
            except ChildProcessError:  # somebody else has asked how it ended
                pid, status = self.pid, 0
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status


def _let_go(places: Sequence[int], printed: int | None) -> None:
    """Leave this process's session, its files and its handlers of signals."""
    os.setsid()
    show_memory()
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) and number != signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    if printed is not None:
        os.dup2(printed, 1)
        os.dup2(printed, 2)
    for handle in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if handle > 2 and handle not in places:
            with contextlib.suppress(OSError):
                os.close(handle)
