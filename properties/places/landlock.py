"""Landlock of Linux: a process gives up rights on files, on signals and on sockets, for itself and all that it starts.

Nothing needs a privilege, and nothing can be taken back. Besides what is named here, a process with Landlock can look
into no process without it: not into its memory, its descriptors or its environment, whoever its user is.

Sources: https://docs.kernel.org/userspace-api/landlock.html, and `linux/landlock.h` for the numbers.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable

#: Of the system calls, which are the same on all machines; and of prctl(2).
_CREATE, _ADD, _RESTRICT, _PR_SET_NO_NEW_PRIVS = 444, 445, 446, 38
_VERSION, _PATH_BENEATH = 1, 1
#: Rights on files: to execute, write and read one, to list a folder; all others change what a folder has.
_EXECUTE, _WRITE, _READ, _LIST, _TRUNCATE, _IOCTL = (1 << bit for bit in (0, 1, 2, 3, 14, 15))
_READING = _EXECUTE | _READ | _LIST
#: Those that a rule may name of what is no folder.
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
#: From a version on, so many of the rights on files are known.
_KNOWN = {1: 13, 2: 14, 3: 15, 5: 16}
#: To bind and to connect a socket of TCP, from version 4 on; abstract sockets and signals, from version 6 on.
_TCP, _SCOPES = 0b11, 0b11


def version() -> int:
    """That of the kernel's Landlock; 0 where there is none, or where it is switched off."""
    return max(_call(_CREATE, None, 0, _VERSION), 0) if sys.platform == "linux" else 0


def restrict(readable: Iterable[str], writable: Iterable[str], *, tcp: bool = False) -> int:
    """Let this thread, and what it starts from now on, read and write below some paths, and nothing elsewhere.

    It can signal and reach by abstract sockets only what is restricted with it, and no socket of TCP, as far as the
    kernel's version has that.

    Args:
        readable, writable: files and folders; those that are not there are passed over. Programs below them can be
            executed, and what is writable can be read. tcp: whether sockets of TCP are allowed.

    Returns:
        The version by which it is restricted; 0 where it is not.
    """
    abi = version()
    if not abi:
        return 0
    files = (1 << max(bits for least, bits in _KNOWN.items() if least <= abi)) - 1
    attributes = struct.pack("<QQQ", files, _TCP if abi >= 4 and not tcp else 0, _SCOPES if abi >= 6 else 0)
    rules = _call(_CREATE, attributes, 24 if abi >= 6 else 16 if abi >= 4 else 8, 0)
    if rules < 0:
        return 0
    try:
        for paths, rights in ((readable, _READING), (writable, files)):
            for path in dict.fromkeys(paths):
                _allow(rules, path, rights & files)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or _call(_RESTRICT, rules, 0):
            return 0
    finally:
        os.close(rules)
    return abi


def _allow(rules: int, path: str, rights: int) -> None:
    with contextlib.suppress(OSError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            rights &= -1 if stat.S_ISDIR(os.fstat(place).st_mode) else _OF_FILES
            if _call(_ADD, rules, _PATH_BENEATH, struct.pack("<Qi", rights, place), 0):
                raise OSError(ctypes.get_errno(), f"{path}: no rule can be made of it")
        finally:
            os.close(place)


def _call(*words: int | bytes | None) -> int:
    """A system call by its number; a failure is negative."""
    return int(ctypes.CDLL(None, use_errno=True).syscall(*words))
