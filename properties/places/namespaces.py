"""Namespaces of Linux: a process sees and signals none outside, and what it started, or has in memory, ends with it.

It is one of processes and one of mounts. In that, `/dev/shm` is empty, and all files can only be read but those of some
folders: what other rules do not keep, such as the times and modes of files, nobody can change there.

Where the administrator's right to make one is missing, a user namespace gives it, if the system lets everybody have
one. The namespace has a `/proc` of its own, or there is none: programs look there for the number that they have. Of the
other mounts it has what the kernel gives.

What is hard here: a process cannot move into a namespace, only what it starts next is there. So three processes take
the place of one. The outer one stays where it was and ends as the inner one ends; the first of the namespace, with
whose end all others end, adopts what loses its parent there; and the inner one goes on.

Sources: pid_namespaces(7), user_namespaces(7), `linux/sched.h` and `linux/mount.h` for the numbers.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .lifeline import end_with_parent

_NEWNS, _NEWUSER, _NEWPID = 0x20000, 0x10000000, 0x20000000
#: Mounts, with those below them, are for this namespace alone; `/proc` runs no program, has no devices, gives no right.
_ALONE, _PROC = 0x4000 | 0x40000, 2 | 4 | 8
#: Where files in memory are, which have no devices and give no right there; a second mount of a folder.
_SHARED, _PLAIN, _BIND = b"/dev/shm", 2 | 4, 0x1000
#: Of mount_setattr(2): its number, that it holds for all mounts below, and that files can only be read.
_SET, _BELOW, _READ_ONLY = 442, 0x8000, 1
#: How the inner process ended, as wait(2) tells it.
_STATUS = struct.Struct("i")


class Namespace(NamedTuple):
    """Whether a process has a namespace of processes, and whether `/dev/shm` is its own there."""

    alone: bool = False
    shared: bool = False


def offers_namespace() -> bool:
    """Whether a process here can have a pid namespace and a `/proc` of its own, which another process tries."""
    if sys.platform != "linux" or len(os.listdir("/proc/self/task")) > 1:
        return False
    trial = os.fork()
    if trial:
        return os.waitpid(trial, 0)[1] == 0
    status = 1
    try:
        if _unshare():
            first = os.fork()
            if not first:
                os._exit(not _mount_proc())
            status = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    finally:
        os._exit(status)


def enter_namespace(writable: Sequence[str] = (), most: int | None = None) -> Namespace:
    """Go on as another process, in a pid namespace of its own, in which nothing else runs; what of it there is.

    This process must have one thread. What waits for its end and its status gets those of the inner process.

    Args:
        writable: folders outside of which no file can be changed; all can be changed where there are none.
        most: bytes that a `/dev/shm` of its own may have, 0 for no limit; None for that of everybody.
    """
    if not (offers_namespace() and _unshare()):
        return Namespace()
    reader, writer = os.pipe()
    first = os.fork()
    if first:
        _stand_for(first, reader)
    end_with_parent()
    if not _mount_proc():
        os._exit(1)
    shared = most is not None and _mount_shared(most)
    if writable:
        _close_files(list(map(os.fsencode, writable)), [b"/proc", *([_SHARED] if shared else [])])
    inner = os.fork()
    if inner:
        _adopt(inner, writer)
    end_with_parent()
    os.close(reader)
    os.close(writer)
    return Namespace(True, shared)


def _unshare() -> bool:
    """Have what this process starts next be in a new pid namespace, and this process in a new one of mounts."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEWPID | _NEWNS) == 0:
        return True
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_NEWPID | _NEWNS | _NEWUSER):
        return False
    with contextlib.suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        return True
    return False


def _mount_proc() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    mounts = ((b"none", b"/", None, _ALONE), (b"proc", b"/proc", b"proc", _PROC))
    return all(libc.mount(*mount, None) == 0 for mount in mounts)


def _mount_shared(most: int) -> bool:
    size = f"mode=1777,size={most}".encode() if most else b"mode=1777"
    return bool(ctypes.CDLL(None).mount(b"shm", _SHARED, b"tmpfs", _PLAIN, size) == 0)


def _close_files(folders: list[bytes], mounts: list[bytes]) -> None:
    """Have no file changed but below some folders, each of which is a mount of its own then, and some mounts."""
    libc = ctypes.CDLL(None, use_errno=True)
    if any(libc.mount(each, each, None, _BIND, None) for each in folders):
        return
    for path, flags, change in (
        (b"/", _BELOW, (_READ_ONLY, 0)),
        *((each, 0, (0, _READ_ONLY)) for each in (*folders, *mounts)),
    ):
        libc.syscall(_SET, -100, path, flags, struct.pack("<4Q", *change, 0, 0), 32)


def _let_go(handle: int) -> None:
    """Close all files but one, so that nobody waits for this process to close them."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    os.closerange(3, handle)
    os.closerange(handle + 1, 2**20)


def _stand_for(first: int, reader: int) -> None:
    """Wait for the end of the inner process, and end in the same way."""
    _let_go(reader)
    content = os.read(reader, _STATUS.size)
    os.waitpid(first, 0)
    code = os.waitstatus_to_exitcode(_STATUS.unpack(content)[0]) if len(content) == _STATUS.size else -signal.SIGKILL
    if code < 0:
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)


def _adopt(inner: int, writer: int) -> None:
    """Be the parent of all that loses its own until the inner process ends, and end with it."""
    _let_go(writer)
    pid = 0
    while pid != inner:
        pid, status = os.wait()
    os.write(writer, _STATUS.pack(status))
    os._exit(0)
