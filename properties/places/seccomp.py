"""A filter of system calls, by seccomp(2): it refuses the network, what would evade Landlock or memory limits, and what
makes other programs wait.

Source: https://docs.kernel.org/userspace-api/seccomp_filter.html; the numbers are those of `asm/unistd.h`.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct
import sys

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
#: BPF instructions: load a word of the call's `seccomp_data`, jump if it is equal, jump if it is not less, jump if it
#: has a bit, and return.
_LOAD, _EQUAL, _AT_LEAST, _HAS_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
#: Offsets in `seccomp_data` of the call's number, of the machine and of the first argument's lower word.
_NUMBER, _MACHINE, _FIRST = 0, 4, 16
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
#: Numbers of this and more are those of x32, a second set of the same calls.
_X32 = 0x40000000

#: Calls that are refused, by line: those that make objects which outlive all processes and count as nobody's memory;
#: those that the filter does not see into, or that open files without a path; those that read and write another
#: process; and those that load programs into the kernel or measure it.
_FORBIDDEN = ("shmget", "semget", "msgget", "mq_open", "add_key", "request_key", "keyctl",
            "io_uring_setup", "open_by_handle_at",
            "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd",
            "bpf", "perf_event_open")  # fmt: skip
_X86 = (29, 64, 68, 240, 248, 249, 250, 425, 304, 101, 310, 311, 438, 321, 298)
_ARM = (194, 190, 186, 180, 217, 218, 219, 425, 265, 117, 270, 271, 438, 280, 241)
#: Calls that are allowed with this first argument only: sockets between processes of this machine, and limits of the
#: calling process itself.
_ONLY = {"socket": int(socket.AF_UNIX), "prlimit64": 0}
_SET_LEASE, _NOTIFY, _NEW_USER = 1024, 1026, 0x10000000
#: Calls that are refused with these words in an argument, its number first: a lease of a file has everybody who opens
#: it wait for 45 s, and in a user namespace a process has rights again that it gave up.
_UNLESS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "fcntl": (1, _EQUAL, (_SET_LEASE, _NOTIFY)),
    "clone": (0, _HAS_BIT, (_NEW_USER,)),
    "unshare": (0, _HAS_BIT, (_NEW_USER,)),
}
#: machine -> its word in `seccomp_data`, and the numbers there of the calls in `_FORBIDDEN`, `_ONLY` and `_UNLESS`.
_MACHINES = {
    "x86_64": (0xC000003E, _X86, (41, 302), (72, 56, 272)),
    "aarch64": (0xC00000B7, _ARM, (198, 261), (25, 220, 97)),
}
#: Says in memory, where a filter does not see, what `clone` says in its arguments; who has no such call uses that.
_CLONE3 = 435


def knows_machine() -> bool:
    """Whether the numbers of this machine's calls are known."""
    return sys.platform == "linux" and platform.machine() in _MACHINES


def refuse_calls(sockets: bool = False) -> bool:
    """Refuse the calls above to this thread and to what it starts from now on, with EACCES; whether that succeeded.

    Args:
        sockets: whether sockets of all kinds are allowed.
    """
    if not knows_machine():
        return False
    program = _program(*_MACHINES[platform.machine()], sockets)
    instructions = ctypes.create_string_buffer(program, len(program))
    whole = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return not libc.prctl(_PR_SET_SECCOMP, _FILTER, whole, 0, 0)


def _program(
    machine: int, numbers: tuple[int, ...], only: tuple[int, ...], unless: tuple[int, ...], sockets: bool = False
) -> bytes:
    """The filter, as BPF instructions.

    Args:
        machine: the word of this machine; calls of another one are refused. numbers: of the calls that are refused.
        only, unless: the numbers of the calls in `_ONLY` and in `_UNLESS`.
        sockets: whether the first of `_ONLY` has no limit.
    """
    no, yes = _step(_RETURN, _REFUSE | errno.EACCES), _step(_RETURN, _ALLOW)
    steps = [_step(_LOAD, _MACHINE), _step(_EQUAL, machine, 1, 0), no, _step(_LOAD, _NUMBER)]
    steps += [_step(_AT_LEAST, _X32, 0, 1), no]
    for number in numbers:
        steps += [_step(_EQUAL, number, 0, 1), no]
    for number, first in [*zip(only, _ONLY.values(), strict=True)][sockets:]:
        steps += [_step(_EQUAL, number, 0, 4), _step(_LOAD, _FIRST), _step(_EQUAL, first, 1, 0), no, yes]
    for number, (argument, code, words) in zip(unless, _UNLESS.values(), strict=True):
        steps += [_step(_EQUAL, number, 0, 2 * len(words) + 2), _step(_LOAD, _FIRST + 8 * argument)]
        steps += [step for word in words for step in (_step(code, word, 0, 1), no)]
        steps += [yes]
    return b"".join([*steps, _step(_EQUAL, _CLONE3, 0, 1), _step(_RETURN, _REFUSE | errno.ENOSYS), yes])


def _step(code: int, word: int, true: int = 0, false: int = 0) -> bytes:
    """One instruction; `true` and `false` say how many instructions are skipped after a comparison with `word`."""
    return struct.pack("<HBBI", code, true, false, word)
