"""A process in a pid namespace of its own: what it sees, how its end is told, and that nothing of it stays."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from opassay.properties.places.lifeline import parent_of
from opassay.properties.places.namespaces import offers_namespace

#: Does not have the administrator's right to make a namespace, where it says so.
DROP = """
import ctypes, struct
libc = ctypes.CDLL(None)
header, data = struct.pack("<Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
libc.capget(header, data)
words = struct.unpack("<6I", data)
libc.capset(header, struct.pack("<6I", *(word & ~(1 << 21) for word in words)))
"""
PROGRAM = """
import os, signal, sys, time
{drop}
from opassay.properties.places.namespaces import enter_namespace
print(os.getpid(), flush=True)
entered = enter_namespace().alone
print(entered, os.getpid(), os.getppid(), sorted(int(n) for n in os.listdir("/proc") if n.isdecimal()), flush=True)
{act}
"""
pytestmark = pytest.mark.skipif(not offers_namespace(), reason="the kernel lets nobody have a pid namespace here")


def run(act: str, drop: str = "") -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", PROGRAM.format(drop=drop, act=act)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("drop", ["", DROP])
def test_a_process_sees_itself_and_the_first_of_its_namespace(drop: str) -> None:
    done = run("os._exit(7)", drop)
    assert done.stdout.splitlines()[1:] == ["True 2 1 [1, 2]"], done.stderr
    assert done.returncode == 7


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_the_signal_that_ends_it_is_told(number: signal.Signals) -> None:
    assert run(f"os.kill(os.getpid(), {int(number)})").returncode == -number


def test_it_cannot_end_the_first_of_its_namespace() -> None:
    assert run("os.kill(1, signal.SIGKILL); os.kill(1, signal.SIGSTOP); os._exit(3)").returncode == 3


LEAVE = """
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    open(sys.argv[1], "w").write(str(int(os.readlink("/proc/self"))))
    time.sleep(600)
time.sleep({seconds})
"""


def sleeping() -> list[int]:
    """Processes outside that run the program of these tests."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    words = {pid: Path(f"/proc/{pid}/cmdline") for pid in pids if parent_of(pid) is not None}
    return [pid for pid, path in words.items() if path.exists() and b"enter_namespace()" in path.read_bytes()]


@pytest.mark.parametrize("first", ["inner", "outer"])
def test_what_it_started_ends_with_it_and_with_what_stands_for_it(first: str, tmp_path: Path) -> None:
    act = LEAVE.format(seconds=0.5 if first == "inner" else 600)
    words = [sys.executable, "-c", PROGRAM.format(drop="", act=act), str(tmp_path / "begun")]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        until = time.monotonic() + 30
        while not (tmp_path / "begun").exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert len(sleeping()) >= 4
        if first == "outer":
            process.kill()
        process.wait(timeout=30)
    until = time.monotonic() + 30
    while sleeping() and time.monotonic() < until:
        time.sleep(0.01)
    assert sleeping() == []


CLOSED = """
import os, sys
{drop}
from opassay.properties.places.namespaces import enter_namespace
own, other = sys.argv[1], sys.argv[2]
space = enter_namespace([own], 2**20)
def attempt(act):
    try:
        act()
        return 0
    except OSError as err:
        return err.errno
def write(path, size=1):
    with open(path, "wb") as file:
        file.write(bytes(size))
print(space, os.listdir("/dev/shm"), *map(attempt, (
    lambda: write(own + "/new"), lambda: os.chmod(own + "/new", 0o600), lambda: os.utime(own + "/new"),
    lambda: write("/dev/shm/new"), lambda: write("/dev/null"), lambda: write("/proc/self/comm"),
    lambda: os.chmod(other, 0o600), lambda: os.utime(other), lambda: write(other), lambda: os.chown(other, 0, 0),
    lambda: write("/dev/shm/large", 2**21),
)))
"""


@pytest.mark.parametrize("drop", ["", DROP])
def test_nobody_outside_finds_a_file_changed_or_left_in_memory(drop: str, tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.write_text("text")
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as theirs:
        before, names = other.stat(), set(os.listdir("/dev/shm"))
        words = [sys.executable, "-c", CLOSED.format(drop=drop), str(own), str(other)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert os.path.exists(theirs.name)
        assert (other.stat().st_ctime_ns, other.read_text()) == (before.st_ctime_ns, "text")
        assert "new" not in set(os.listdir("/dev/shm")) - names
    answers = [0, 0, 0, 0, 0, 0, errno.EROFS, errno.EROFS, errno.EROFS, errno.EROFS, errno.ENOSPC]
    assert done.stdout.split(") ")[1].split() == ["[]", *map(str, answers)], done.stdout + done.stderr
    assert done.stdout.startswith("Namespace(alone=True, shared=True)")
    assert (own / "new").exists()
