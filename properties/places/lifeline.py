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
_PR_SET_CHILD_SUBREAPER = 36
#: How often orphans are looked for again after some were ended.
_GENERATIONS = 100


def end_with(owner: int) -> None:
    """Have the kernel kill this process when its owner ends; if the owner has ended already, end now.

    An owner that is killed can tell nobody to stop, so a helper process that waits for a message would stay for good.

    Args:
        owner: process id of the process that started this one.
    """
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != owner:  # the owner ended before the kernel was told
        os._exit(1)


def adopt_orphans(wanted: bool) -> None:
    """Have processes whose parent ends become children of this one, or no longer, so that `children` finds them.

    Only then can whoever ends a worker also end the processes that the worker's op started and left behind.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, int(wanted))


def began_with(pid: int, variable: str) -> bool:
    """Whether a process was started with a setting `NAME=value` in its environment."""
    try:
        return variable.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is somebody else's
        return False


def children(parent: int) -> list[int]:
    """Process ids of the direct children of a process that are running."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            status = (entry / "stat").read_bytes()
        except OSError:  # the process ended between the listing and the reading
            continue
        # The name of the program stands in parentheses and may itself hold parentheses and spaces.
        fields = status[status.rfind(b")") + 2 :].split()
        if int(fields[1]) == parent and fields[0] != b"Z":  # one that has ended stays in the table until it is asked
            found.append(int(entry.name))
    return found


def end_orphans(mark: str) -> list[str]:
    """End the processes that an ended worker has left behind, which have become children of this one; their names.

    This process may have children of its own, which nothing here may touch; so each is asked for the worker's mark.
    """
    return end_all(lambda: [pid for pid in children(os.getpid()) if began_with(pid, mark)])


def end_all(found: Callable[[], list[int]]) -> list[str]:
    """End the processes that are found, until none is; the names of those that have not ended of themselves.

    What one of them has started becomes a child of this process only when that one ends, so it is looked again; a
    program that starts others faster than they are ended is given up after so many generations.

    Args:
        found: the process ids of those that are left.
    """
    names = []
    for _ in range(_GENERATIONS):
        left = found()
        names += [_end(pid) for pid in left]
        if not left:
            break
    return [name for name in names if name]


def _end(pid: int) -> str:
    """The name of a process that is ended; none if it has ended of itself."""
    name = ""
    with contextlib.suppress(OSError):
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        os.kill(pid, signal.SIGKILL)
        # A process that was killed stays in the system's table until its parent has asked how it ended.
        os.waitpid(pid, 0)
    return name


def _prctl(option: int, value: int) -> None:
    """prctl(2) of Linux; on another system, where there is none, nothing is promised and nothing happens."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
