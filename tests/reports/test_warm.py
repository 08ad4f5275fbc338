"""A command that a copy of a warm process carries out says and does what it does by itself, and harms no other."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from opassay.properties.places.lifeline import children
from opassay.reports.cli.warm_copies import stamps
from opassay.reports.warm import command
from opassay.reports.warm.address import find_address, surrenders_of

#: The script as its users call it; `python -m` has other folders of modules, and is never warm.
_SCRIPT = Path(sys.executable).with_name("opassay")
_KERNELS = """
import os, sys, time, torch
def reference(x): return torch.softmax(x, -1)
def kernel(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)
def twice(x): return 2 * torch.softmax(x, -1)
def slow(x):
    time.sleep(60)
    return kernel(x)
def poison(x):
    torch.softmax = lambda x, dim: 2 * x
    torch.Tensor.exp = torch.Tensor.sin
    os.environ["PYTHONPATH"] = "/nowhere"
    sys.modules["numpy"] = None
    return kernel(x)
def inputs(): return (torch.randn(4, 16),)
"""
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(os, "pidfd_open") or not _SCRIPT.exists(),
    reason="needs Linux, os.pidfd_open and the installed script",
)


class Warm:
    """A folder with kernels, and the warm process that commands there use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "mine.py").write_text(_KERNELS)
        rest = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "CI")}
        self.environment = {**rest, "XDG_RUNTIME_DIR": str(folder), command.VARIABLE: "1"}

    def words(self, *words: str) -> list[str]:
        return [str(_SCRIPT), "judge", *words]

    def run(self, *words: str, **environment: str) -> tuple[int, str, str]:
        done = subprocess.run(
            self.words(*words), cwd=self.folder, env={**self.environment, **environment}, capture_output=True,
            text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return done.returncode, _without_chance(done.stdout), _without_chance(done.stderr)

    @property
    def sockets(self) -> list[Path]:
        return [*self.folder.glob("opassay-*/*.socket")]

    @property
    def processes(self) -> list[int]:
        """Warm processes whose place is in this folder."""
        pids = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes().split(b"\0")
                pids += [int(path.parent.name)] * any(word.startswith(bytes(self.folder)) for word in words[-3:])
        return pids

    def wait(self, condition: str = "sockets") -> None:
        until = time.monotonic() + 60
        while not getattr(self, condition):
            assert time.monotonic() < until, "no warm process has begun to listen"
            time.sleep(0.05)

    def uses(self) -> int:
        """Ticks of the processor that copies have taken; they count when they have ended."""
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.processes]
        return sum(int(each[13]) + int(each[14]) for each in fields)


def _without_chance(text: str) -> str:
    return re.sub(r'"seconds": [\d.]+|[0-9a-f]{40}', "", text)


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    folder = Path(tempfile.mkdtemp(prefix="warm-", dir="/tmp"))  # a socket's path has at most 107 characters
    own = Warm(folder)
    try:
        assert own.run("mine.py", "-q", "--seed", "1", "-k", "FWD:given")[0] == 0
        own.wait()
        yield own
    finally:
        for pid in own.processes:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    "words",
    [
        ("mine.py", "-v", "--seed", "1", "-k", "FWD:given"),
        ("mine.py:twice", "--spec", "mine.py:reference", "--seed", "1", "--json", "-k", "FWD:given"),
        ("mine.py", "--contract", "nope"), ("absent.py",),
    ],
)  # fmt: skip
def test_warm_and_cold_say_the_same(warm: Warm, words: Sequence[str]) -> None:
    before = warm.uses()
    hot = warm.run(*words)
    assert warm.uses() > before, "no copy was asked"
    assert hot == warm.run(*words, **{command.VARIABLE: "0"})
    assert hot[0] in (0, 1, 2)


def test_what_one_candidate_does_reaches_no_later_one(warm: Warm) -> None:
    clean = warm.run("mine.py", "--seed", "2", "-k", "FWD:given")
    words = "mine.py:poison", "--spec", "mine.py:reference", "--seed", "2", "-k", "FWD:given"
    for level in ("auto", "none"):
        warm.run(*words, "--isolation", level)
    assert warm.run("mine.py", "--seed", "2", "-k", "FWD:given") == clean
    assert len(warm.processes) == 1


def test_two_commands_at_once_have_a_copy_each(warm: Warm) -> None:
    before = warm.uses()
    both = [
        subprocess.Popen(warm.words("mine.py", "-q"), cwd=warm.folder, env=warm.environment, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    assert [each.communicate(timeout=120)[0].startswith(b"accepted") for each in both] == [True, True]
    assert warm.uses() > before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_copy_as_it_ends_a_command(warm: Warm, number: signal.Signals) -> None:
    (owner,) = warm.processes
    words = warm.words("mine.py:slow", "--spec", "mine.py:reference")
    done = subprocess.Popen(
        words, cwd=warm.folder, env=warm.environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    until = time.monotonic() + 60
    while not children(owner):
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(1.0)
    done.send_signal(number)
    errors = done.communicate(timeout=60)[1]
    assert done.returncode == (-number if number is signal.SIGKILL else 130)
    assert number is signal.SIGKILL or b"interrupted" in errors
    while children(owner):
        assert time.monotonic() < until, "a copy is left"
        time.sleep(0.05)


def _ask(warm: Warm, password: str, forgo: bool) -> bytes:
    """What the socket answers to a request by another process, which may give up privileges first."""
    request = {"password": password, "words": ["judge", "mine.py", "-q"], "program": "opassay", "mask": 0o022}
    request |= {"folder": str(warm.folder), "environment": warm.environment, "path": sys.path}
    text = json.dumps(request).encode()
    here, there = os.pipe()
    (place,) = warm.sockets
    if not (pid := os.fork()):
        if forgo:
            ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # no new privileges, as a confined candidate has
        answer = b""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(place))
            with open(os.devnull, "r+b") as null:
                socket.send_fds(peer, [len(text).to_bytes(4, "big")], [null.fileno()] * 3)
            peer.sendall(text)
            answer = peer.recv(100)
        os.write(there, answer)
        os._exit(0)
    os.close(there)
    os.waitpid(pid, 0)
    with os.fdopen(here, "rb") as pipe:
        return pipe.read()


def test_who_has_less_rights_or_not_the_password_gets_no_copy(warm: Warm) -> None:
    (file,) = warm.folder.glob("opassay-*/*.password")
    password = file.read_text().split()[0]
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert _ask(warm, password, forgo=False).strip().isdigit()
    assert _ask(warm, password, forgo=True) == b""
    assert _ask(warm, "0" * 32, forgo=False) == b""


def test_a_folder_of_others_is_not_used(tmp_path: Path) -> None:
    mine = tmp_path / f"opassay-{os.getuid()}"
    mine.mkdir(0o755)
    assert find_address({"XDG_RUNTIME_DIR": str(tmp_path)}) is None
    mine.chmod(0o700)
    one, other = (find_address({"XDG_RUNTIME_DIR": str(tmp_path), **more}) for more in ({}, {"OMP_NUM_THREADS": "3"}))
    assert one is not None
    assert other is not None
    assert one.key != other.key, "torch reads that variable when it is imported"
    link = tmp_path / "elsewhere"
    link.mkdir()
    (link / mine.name).symlink_to(mine)
    assert find_address({"XDG_RUNTIME_DIR": str(link)}) is None


def test_there_are_few_warm_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = find_address({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert place is not None
    for name, pid in (("one", os.getpid()), ("killed", 2**22 + 1), ("torn", "")):
        (place.folder / f"{name}.password").write_text(f"secret {pid}")
        (place.folder / f"{name}.socket").touch()
    assert place.count_others() == 1
    assert sorted(path.name for path in place.folder.iterdir()) == ["one.password", "one.socket"]
    warmth = command.Warmth([])
    monkeypatch.setattr(warmth, "_place", place)
    monkeypatch.setattr(warmth, "_environment", {command.VARIABLE: "1"})
    starts: list[object] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **how: starts.append(words))
    warmth.begin()
    assert len(starts) == 1
    (place.folder / "two.password").write_text(f"secret {os.getpid()}")
    warmth.begin()
    assert len(starts) == 1, "two of them are there"


def test_another_environment_and_other_limits_have_another_place() -> None:
    assert surrenders_of("self") == surrenders_of(os.getpid())
    assert {"NoNewPrivs", "Seccomp", "pid", "cgroup", "root"} <= set(surrenders_of("self"))


def test_a_changed_file_ends_the_warm_process(warm: Warm) -> None:
    """The last test here: the module's own warm process goes on with the files that are changed back."""
    module = Path(command.__file__)
    status = module.stat()
    before = stamps()
    try:
        os.utime(module, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
        assert stamps() != before
        (old,) = warm.processes
        assert warm.run("mine.py", "-q", "--seed", "1", "-k", "FWD:given")[0] == 0
        warm.wait()
        until = time.monotonic() + 60
        while old in warm.processes:
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        os.utime(module, ns=(status.st_atime_ns, status.st_mtime_ns))
