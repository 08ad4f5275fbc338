"""The filter of system calls: what is refused, what beside it is not, and that programs go on under it."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from opassay.properties.places import seccomp

PROGRAM = """
import ctypes, errno, fcntl, os, platform, subprocess, sys, threading
from opassay.properties.places import seccomp
libc, numbers = ctypes.CDLL(None, use_errno=True), seccomp._MACHINES[platform.machine()]
fork, new_user = numbers[3][1], 0x10000000
file, folder = open(sys.argv[1]), os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY)
assert seccomp.refuse_calls()

def attempt(act):
    try:
        return act()
    except OSError as err:
        return -err.errno

def call(*words):
    return -ctypes.get_errno() if libc.syscall(*words) < 0 else 0

def count_thread():
    counts = []
    thread = threading.Thread(target=counts.append, args=(1,))
    thread.start()
    thread.join()
    return len(counts)

for act in (
    lambda: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK),
    lambda: call(numbers[3][0], file.fileno(), ctypes.c_ulong(2**32 + fcntl.F_SETLEASE), 0),
    lambda: fcntl.fcntl(folder, fcntl.F_NOTIFY, 1),
    lambda: call(numbers[3][2], new_user),
    lambda: call(numbers[3][2], new_user | 0x20000),
    lambda: call(fork, new_user | 17, 0, 0, 0, 0),
    lambda: call(435, ctypes.create_string_buffer(88), 88),
    lambda: fcntl.fcntl(file, fcntl.F_GETLEASE) - fcntl.F_UNLCK,
    lambda: min(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 0), 0),
    lambda: call(numbers[3][2], 0x400),
    lambda: subprocess.run(["/bin/true"]).returncode,
    lambda: os.posix_spawn("/bin/true", ["true"], {}) * 0,
    lambda: count_thread() - 1,
):
    print(attempt(act))
"""


@pytest.mark.skipif(not seccomp.knows_machine(), reason="the numbers of this machine's calls are not known")
def test_leases_notices_and_new_users_are_refused_and_nothing_beside_them() -> None:
    words = [sys.executable, "-c", PROGRAM, __file__]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    refusals = [-errno.EACCES] * 6 + [-errno.ENOSYS]
    assert list(map(int, done.stdout.split())) == [*refusals, *[0] * 6], done.stderr
