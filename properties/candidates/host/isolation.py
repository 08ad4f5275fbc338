"""What a candidate's process gives up before it reads anything of a stranger, as far as the kernel lets it.

What this is for: judge and candidate have one user, so without that a candidate could write the judge's memory, its
output, the spec, itself and this package, and stop the judge for good.

What is hard here: a right candidate may compile, start processes and threads, share memory and use a GPU. So all that
it needs stays: what is installed can be read and executed, device files can be written, and a folder of its own has
the caches and the temporary files that compilers make.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import resource
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from ...places import landlock, seccomp
from ...places.lifeline import running
from ...places.namespaces import enter_namespace, offers_namespace
from ...rehearsal.environment import LIBRARY

#: What a process may be kept from: to read and write files of others, to reach into other processes, to signal them,
#: to open sockets of the network; and to see other processes, or have its own go on after its end.
GUARDS = ("files", "memory", "signals", "network", "processes")
#: What systems without namespaces for everybody cannot keep it from.
_DISPENSABLE = "processes"
#: Where installed software and the kernel's files are; those of Python and of the environment are found besides.
_SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/etc", "/proc", "/sys", "/nix", "/gnu", "/snap",
)  # fmt: skip
_VARIABLES = (
    "PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PYTHONPATH", "CUDA_HOME", "CUDA_PATH", "ROCM_PATH", LIBRARY,
)  # fmt: skip
#: Device files: of no hardware, and GPUs. And where memory is shared by name, which other programs do, too.
_DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "dri", "kfd", "dxg")
_SHARED = "/dev/shm"
#: Folders below that of a candidate, by the variables that name them.
_FOLDERS = {
    "HOME": "home", "TMPDIR": "tmp", "XDG_CACHE_HOME": "cache", "TRITON_CACHE_DIR": "cache/triton",
    "TORCHINDUCTOR_CACHE_DIR": "cache/inductor", "TORCH_EXTENSIONS_DIR": "cache/extensions",
    "CUDA_CACHE_PATH": "cache/cuda", "NUMBA_CACHE_DIR": "cache/numba", "MPLCONFIGDIR": "cache/matplotlib",
}  # fmt: skip
#: Of the administrator: to read and write files of other users, which the rules of paths still limit.
_CAPABILITIES = 1 << 1 | 1 << 2
_CAPABILITY_VERSION = 0x20080522
#: Processes and threads that a user may start besides those that he has.
_TASKS = 2048


class Rooms(msgspec.Struct, frozen=True):
    """Where a candidate's process may read and write.

    Attributes:
        folder: its own. readable: besides what every program needs. memory: bytes of it that it may take; 0 for any.
        level: "none" for a process that gives up nothing but its folders.
        meeting: a folder where it meets others over sockets, which it has then; empty for none.
    """

    folder: str
    readable: list[str] = []
    level: str = "auto"
    memory: int = 0
    meeting: str = ""


class Isolation(msgspec.Struct, frozen=True):
    """What a process has given up.

    Attributes:
        by: "landlock" and its version, or "none". holds: those of `GUARDS` that it is kept from.
    """

    by: str = "none"
    holds: list[str] = []

    @property
    def has_namespace(self) -> bool:
        """Whether it has a pid namespace, which is not required of any system."""
        return _DISPENSABLE in self.holds

    @property
    def lacks(self) -> list[str]:
        return [guard for guard in GUARDS if guard not in (*self.holds, _DISPENSABLE)]

    def __str__(self) -> str:
        return f"{self.by}; the candidate may reach {', '.join(self.lacks)}" if self.lacks else self.by


def offer() -> Isolation:
    """What the kernel of this machine offers."""
    # A process with several threads cannot try it.
    words = f"import sys; from {offers_namespace.__module__} import offers_namespace as offer; sys.exit(not offer())"
    alone = subprocess.run([sys.executable, "-c", words], check=False, capture_output=True).returncode == 0
    return _isolation(landlock.version(), seccomp.knows_machine(), alone)


def confine(rooms: Rooms) -> Isolation:
    """Give up, for this process, all that a candidate need not have; what has been given up.

    It returns in another process where this one can have a namespace: see `namespaces.enter_namespace`. A rule holds
    for the thread that makes it, so a process with several threads gives up nothing of that.
    """
    _make_folders(rooms.folder)
    if rooms.level == "none":
        return Isolation()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_tasks()
    if sys.platform != "linux" or len(os.listdir("/proc/self/task")) > 1:
        return Isolation()
    own = [rooms.folder, *filter(None, [rooms.meeting])]
    readable, writable = _readable(rooms), [*own, *_devices()]
    hidden = any(Path(path).is_relative_to(_SHARED) for path in (rooms.folder, *readable))
    space = enter_namespace(own, None if hidden else rooms.memory)  # afterwards no new one can be had
    if space.shared:
        writable.append(_SHARED)
    else:
        # Its processes would share memory by name.
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    meets = bool(rooms.meeting)
    filtered = seccomp.refuse_calls(sockets=meets) and not meets
    _drop_capabilities()
    return _isolation(landlock.restrict(readable, writable, tcp=meets), filtered, space.alone)


def writable(folder: str, isolation: Isolation | None) -> list[str]:
    """Where a candidate's process may write: its folder and device files, or anywhere if files are not kept from it."""
    kept_off = isolation is not None and "files" in isolation.holds
    return [os.path.realpath(path) for path in (folder, *_devices())] if kept_off else ["/"]


def _isolation(abi: int, filtered: bool, alone: bool) -> Isolation:
    # Before version 3 a process could still empty a file.
    holds = {"files": abi >= 3, "memory": abi >= 1, "signals": abi >= 6, "network": filtered, "processes": alone}
    return Isolation(f"landlock-{abi}" if abi else "none", [guard for guard in GUARDS if holds[guard]])


def _make_folders(folder: str) -> None:
    for variable, name in _FOLDERS.items():
        path = os.path.join(folder, name)
        os.makedirs(path, 0o700, exist_ok=True)
        os.environ[variable] = path
    tempfile.tempdir = None  # it is looked for anew


def _readable(rooms: Rooms) -> list[str]:
    """Paths without links: a rule is of what a path leads to, and of nothing on the way."""
    named = [entry for name in _VARIABLES for entry in os.environ.get(name, "").split(os.pathsep)]
    pythons = [sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.realpath(sys.executable))]
    ours = str(Path(__file__).resolve().parents[3])
    every = [*_SYSTEM, *pythons, *named, *sys.path, *_editable(), ours, *rooms.readable, os.path.dirname(rooms.folder)]
    return [os.path.realpath(path) for path in every if path]


def _editable() -> list[str]:
    """Where packages are that were installed to be edited: setuptools makes a module for each, which says it."""
    modules = [module for name, module in sys.modules.items() if name.startswith("__editable__")]
    return [str(path) for module in modules for path in dict(getattr(module, "MAPPING", {})).values()]


def _devices() -> list[str]:
    """Device files, and beside an NVIDIA GPU the threads of this process: CUDA begins by naming them there."""
    paths = [path for name in _DEVICES for path in glob.glob(os.path.join("/dev", name))]
    return [*paths, "/proc/self/task"] if any(path.startswith("/dev/nvidia") for path in paths) else paths


def _limit_tasks() -> None:
    """Limit the processes and threads of this user, whose number the kernel does not limit for the administrator."""
    count = sum(map(_tasks_of_ours, running()))
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most = count + _TASKS if hard < 0 else min(count + _TASKS, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _tasks_of_ours(pid: int) -> int:
    with contextlib.suppress(OSError):
        if os.stat(f"/proc/{pid}").st_uid == os.getuid():
            return len(os.listdir(f"/proc/{pid}/task"))
    return 0


def _drop_capabilities() -> None:
    """Let go what the administrator may do besides; without new privileges no program gets it back."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = struct.pack("<Ii", _CAPABILITY_VERSION, 0), ctypes.create_string_buffer(24)
    if libc.capget(header, data) == 0:
        words = struct.unpack("<6I", data)  # effective, permitted and inheritable, of the lower 32 and of the upper
        libc.capset(header, struct.pack("<6I", *(word & _CAPABILITIES for word in words[:3]), 0, 0, 0))
