"""Where a warm process is met, and whose copies are the same as a new process.

A copy has what its original inherited: limits, groups, namespaces, the environment that torch has read. So there is one
warm process for each of these, and a command that has others does not find it.

This module needs the standard library alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

#: Variables that no library reads when it is imported, so that a copy may have others.
_HARMLESS = frozenset(
    ("_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "TERM_SESSION_ID", "WINDOWID", "TMUX_PANE", "SSH_CLIENT",
     "SSH_CONNECTION", "SSH_TTY", "NO_COLOR", "FORCE_COLOR")
)  # fmt: skip
#: Of /proc/PID/status: what a process has given up, which a copy of another has not.
_SURRENDERS = ("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "CapEff", "CapBnd")
_SPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


class WarmAddress(NamedTuple):
    """A folder of the user alone, and the socket and the password of a warm process there."""

    folder: Path
    key: str

    @property
    def socket(self) -> str:
        return str(self.folder / f"{self.key}.socket")

    @property
    def password(self) -> Path:
        """A file that a confined process cannot read, though it may reach the socket; and the process's number."""
        return self.folder / f"{self.key}.password"

    def count_others(self) -> int:
        """How many warm processes there are in the folder; files of those that were killed are removed."""
        count = 0
        for path in self.folder.glob("*.password"):
            try:
                os.kill(int(path.read_text().split()[1]), 0)
                count += 1
            except (OSError, ValueError, IndexError):
                path.unlink(missing_ok=True)
                path.with_suffix(".socket").unlink(missing_ok=True)
        return count


def find_address(environment: Mapping[str, str]) -> WarmAddress | None:
    """The place for a process like this one, of which the folder is made; None where no folder is the user's alone.

    Args:
        environment: as this process began with it.
    """
    base = environment.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base, f"opassay-{os.getuid()}")
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(0o700)
        status = os.lstat(folder)
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077:
            return WarmAddress(folder, _key_of(environment))
    return None


def surrenders_of(pid: int | str) -> dict[str, str]:
    """Of a process of this user, what it may do and where it is; raises OSError where it has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    rows = dict(line.split(":", 1) for line in lines)
    spaces = {name: os.readlink(f"/proc/{pid}/ns/{name}") for name in _SPACES}
    more = {"root": os.readlink(f"/proc/{pid}/root"), "groups": Path(f"/proc/{pid}/cgroup").read_text()}
    return {**{name: rows[name] for name in _SURRENDERS}, **spaces, **more}


def _key_of(environment: Mapping[str, str]) -> str:
    """What decides whether a copy is the same as a new process, as a short name."""
    limits = Path("/proc/self/limits").read_text()
    parts = [
        sys.executable, sys.version, sys.prefix, list(sys.flags), sys.warnoptions, sorted(sys._xoptions.items()),
        str(Path(__file__).resolve()), {k: v for k, v in environment.items() if k not in _HARMLESS}, limits,
        sorted(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, 0), surrenders_of("self"),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]
