"""A process that ends when the process that started it ends, however that happens."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

# These numbers are those of linux/prctl.h, which Python has no names for.
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
#: How many times orphans are looked for, each time after those found before were ended.
_GENERATIONS = 100


def end_with(owner: int) -> None:
    """Have the kernel kill this process when its owner ends; if the owner has ended already, end now.

    An owner that is killed can tell nobody to stop, so a helper process that waits for a message would stay for good.
    """
    end_with_parent()
    if os.getppid() != owner:  # the owner ended before the kernel was told
        os._exit(1)


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends from now on."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def adopt_orphans(on: bool) -> None:
    """Have processes whose parent ends become children of this one, so that `children` finds them; or stop doing so.

    Only as their parent can this process, after it has ended a worker, end what the worker's op left running.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, int(on))


def hide_memory() -> None:
    """Let no process of this user that is not the administrator look into this one; or leave its memory in a file."""
    _prctl(_PR_SET_DUMPABLE, 0)


def show_memory() -> None:
    """Take `hide_memory` back, which a copy of a process begins with."""
    _prctl(_PR_SET_DUMPABLE, 1)


def hide_words() -> None:
    """Take the words of the command line, but for the program, from what the system shows of this process."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = map(int, fields[45:47])
        if 0 < start < end:
            first = len(ctypes.string_at(start, end - start).partition(b"\0")[0])
            ctypes.memset(start + first, 0, end - start - first)


def began_with(pid: int, variable: str) -> bool:
    """Whether a process was started with a setting `NAME=value` in its environment."""
    try:
        return variable.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is somebody else's
        return False


def running() -> list[int]:
    """Process ids of all processes; some may have ended."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def program_name(pid: int) -> str:
    """What the system calls the program of a process; empty where the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    return ""


def children(parent: int) -> list[int]:
    """Process ids of the direct children of a process that are running."""
    return [pid for pid in running() if parent_of(pid) == parent]


def parent_of(pid: int) -> int | None:
    """The parent of a process; None of one that has ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name of the program stands in parentheses and may itself hold parentheses and spaces.
    fields = status[status.rfind(b")") + 2 :].split()
    return None if fields[0] == b"Z" else int(fields[1])  # one that has ended stays in the table until it is asked


def end_orphans(mark: str) -> list[str]:
    """End the processes that an ended worker has left behind, which have become children of this one; their names.

    This process may have other children, which nothing here may touch; so only those are ended that have the worker's
    mark, `NAME=value`, in their environment.
    """
    return end_all(lambda: [pid for pid in children(os.getpid()) if began_with(pid, mark)])


def end_all(find: Callable[[], list[int]]) -> list[str]:
    """End processes until `find` finds none; the names of those that have not ended by themselves.

    A process that one of them has started becomes a child of this one only when its parent ends, so `find` is called
    again and again. A program that starts processes faster than they are ended is given up after `_GENERATIONS` calls.
    """
    names = []
    for _ in range(_GENERATIONS):
        pids = find()
        names += [_end(pid) for pid in pids]
        if not pids:
            break
    return [name for name in names if name]


def _end(pid: int) -> str:
    """End a process; its name, which is empty if it had ended by itself."""
    name = program_name(pid)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
        # A process that was killed stays in the system's table until its parent has asked how it ended.
        os.waitpid(pid, 0)
    return name


def _prctl(option: int, value: int) -> None:
    """Call prctl(2) of Linux. Other systems do not have it; there, nothing happens."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
