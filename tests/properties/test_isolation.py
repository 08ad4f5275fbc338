"""A process that has given up its rights: what it cannot do any more, and what a right candidate still can."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from opassay.properties.candidates.host import isolation
from opassay.properties.candidates.host.isolation import GUARDS, Isolation, Rooms, confine, offer
from opassay.properties.places import lifeline
from opassay.properties.places.namespaces import Namespace

#: The signals and the network are kept from a candidate by a kernel of this version of Landlock or a later one.
OFFER = offer()
_WHOLE = not OFFER.lacks
needs_all = pytest.mark.skipif(not _WHOLE, reason="the kernel cannot isolate: opassay doctor says what it lacks")


def confined(
    run: Callable[[], object], folder: Path, *, readable: list[str] | None = None, wanted: str = "auto",
    namespace: bool = True,
) -> str:  # fmt: skip
    """What a function raises in a confined copy of this process, by its type; empty for nothing.

    Args:
        run: the function. folder: for the copy. readable, wanted: as for `Rooms`. namespace: whether it may have one.
    """
    own = folder / "shared" / "own"
    own.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        message = b""
        try:
            if not namespace:
                vars(isolation)["enter_namespace"] = lambda *_: Namespace()
            result = confine(Rooms(str(own), readable or [], wanted))
            assert wanted == "none" or [*result.holds, *["processes"] * (not namespace)] == OFFER.holds, result
            run()
        except BaseException as err:
            message = type(err).__name__.encode()
        finally:
            os.write(writing, message)
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        message = pipe.read()
    os.waitpid(pid, 0)
    return message.decode()


JUDGE = os.getpid()


def _writing(path: str) -> Callable[[], None]:
    return lambda: open(path, "wb").close()


def _by_call(name: str, *words: int) -> Callable[[], None]:
    def run() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if getattr(libc, name)(*words) < 0:
            raise OSError(ctypes.get_errno(), name)

    return run


FORBIDDEN: dict[str, Callable[[], object]] = {
    "reads the memory of its judge": lambda: open(f"/proc/{JUDGE}/mem", "rb").close(),
    "writes it": lambda: open(f"/proc/{JUDGE}/mem", "r+b").close(),
    "reads the environment of its judge": lambda: open(f"/proc/{JUDGE}/environ", "rb").close(),
    "opens a descriptor of its judge": lambda: os.close(os.open(f"/proc/{JUDGE}/fd/0", os.O_RDONLY)),
    "stops its judge": lambda: os.kill(JUDGE, signal.SIGCONT),  # as SIGSTOP, which would stop the test
    "limits its judge": lambda: resource.prlimit(JUDGE, resource.RLIMIT_CORE, (0, 0)),
    "traces its judge": _by_call("ptrace", 16, JUDGE, 0, 0),
    "writes this file": _writing(__file__),
    "writes the package": _writing(str(Path(lifeline.__file__).with_name("new.py"))),
    "writes where temporary files are": _writing(os.path.join(tempfile.gettempdir(), "opassay-not-here")),
    "writes the terminal": _writing("/dev/tty"),
    "removes this file": lambda: os.unlink(__file__),
    "renames this file": lambda: os.rename(__file__, f"{__file__}.old"),
    "links to this file from elsewhere": lambda: os.link(__file__, f"{__file__}.link"),
    "opens a socket of TCP": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).close(),
    "opens a socket of UDP": lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close(),
    "asks the kernel by netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),
    "makes memory that outlives it": _by_call("shmget", 0, 4096, 0o1600),
}


@needs_all
@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_would_reach_the_judge_is_refused(what: str, tmp_path: Path) -> None:
    assert confined(FORBIDDEN[what], tmp_path, namespace=False) in ("PermissionError", "OSError")
    assert confined(FORBIDDEN[what], tmp_path)
    assert Path(__file__).is_file()


@needs_all
def test_most_of_what_is_refused_is_possible_without_isolation(tmp_path: Path) -> None:
    """Else a test of a refusal would say nothing; those that would change something are left out."""
    harmless = [name for name in FORBIDDEN if name.split()[0] in ("reads", "opens", "limits", "asks", "stops")]
    possible = [name for name in harmless if not confined(FORBIDDEN[name], tmp_path, wanted="none")]
    assert len(possible) >= 6, possible


def _computes() -> None:
    import multiprocessing
    import threading
    from multiprocessing import shared_memory

    assert os.path.realpath(tempfile.mkdtemp()).startswith(os.path.realpath(os.environ["TMPDIR"]))
    Path("~/kernel.log").expanduser().write_text("its own home")
    thread = threading.Thread(target=bool)
    thread.start()
    thread.join()
    memory = shared_memory.SharedMemory(create=True, size=64)
    assert memory.buf is not None
    memory.buf[0] = 7
    memory.close()
    memory.unlink()
    multiprocessing.get_context("fork").SimpleQueue().put(1)
    parent, child = socket.socketpair()
    parent.send(b"a")
    assert child.recv(1) == b"a"
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.kill(pid, signal.SIGCONT)
    os.waitpid(pid, 0)
    subprocess.run(["/bin/sh", "-c", "cat /proc/cpuinfo /proc/self/status > $TMPDIR/read"], check=True)
    Path("/dev/null").write_text("x")


@needs_all
def test_a_confined_process_has_what_a_right_candidate_needs(tmp_path: Path) -> None:
    assert confined(_computes, tmp_path) == ""


@needs_all
def test_folders_that_are_named_can_be_read_and_not_written(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "weights").write_text("1")
    read = (tmp_path / "data" / "weights").read_bytes
    assert confined(read, tmp_path) == "PermissionError"
    assert confined(read, tmp_path, readable=[str(tmp_path / "data")]) == ""
    writing = _writing(str(tmp_path / "data" / "weights"))
    # Its file system may be for reading alone, which is another error.
    assert confined(writing, tmp_path, readable=[str(tmp_path / "data")]) in ("PermissionError", "OSError")


@needs_all
def test_a_package_that_is_installed_to_be_edited_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "mine.py").write_text("")
    finder = ModuleType("__editable___mine_finder")
    finder.MAPPING = {"mine": str(tmp_path / "source" / "mine.py")}  # type: ignore[attr-defined]
    read = (tmp_path / "source" / "mine.py").read_bytes
    assert confined(read, tmp_path) == "PermissionError"
    monkeypatch.setitem(sys.modules, finder.__name__, finder)
    assert confined(read, tmp_path) == ""


def test_the_judge_tells_which_guards_are_lacking() -> None:
    assert Isolation().lacks == [guard for guard in GUARDS if guard != "processes"]
    assert str(Isolation("landlock-4", ["files", "memory", "network"])) == "landlock-4; the candidate may reach signals"
    assert msgspec.convert(msgspec.to_builtins(offer()), Isolation) == offer()


def test_a_process_without_the_wish_for_isolation_gives_up_nothing(tmp_path: Path) -> None:
    assert confined(_writing(str(tmp_path / "beside")), tmp_path, wanted="none") == ""
    assert (tmp_path / "beside").is_file()


def _hide() -> None:
    assert len(Path("/proc/self/cmdline").read_bytes().strip(b"\0").split(b"\0")) > 1
    lifeline.hide_words()
    words = Path("/proc/self/cmdline").read_bytes().strip(b"\0")
    assert words
    assert b"\0" not in words


def test_a_process_hides_the_words_of_its_command_line(tmp_path: Path) -> None:
    assert confined(_hide, tmp_path, wanted="none") == ""


def test_beside_a_gpu_a_process_may_name_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA writes to /proc/self/task/*/comm before it does anything, and gives up where it may not."""
    assert "/proc/self/task" not in isolation._devices()
    monkeypatch.setattr("glob.glob", lambda pattern: ["/dev/nvidia0"] if "nvidia" in pattern else [])
    assert isolation._devices() == ["/dev/nvidia0", "/proc/self/task"]
