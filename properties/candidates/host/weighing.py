"""How much memory a process and all that it started take together, which no limit of one process holds.

What is hard here: a limit of a process counts its private memory alone, so ten children take ten times as much, and a
file in memory is nobody's. So the judge looks while it waits. Memory that several processes share is counted in each
at first, which is quick; only where that is too much it is counted exactly.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

#: Seconds between two looks.
_EVERY = 0.25
#: Processes that a candidate may have at the same time.
_MOST = 512
#: What is in memory and is called a file.
_IN_MEMORY, _SHARED = ("/memfd:", "/dev/shm/"), "/dev/shm"


def watch_load(root: int, most: int) -> Callable[[], str]:
    """What says, whenever it is called, by how much a process and its descendants take too much; empty for not.

    Args:
        root: the process. most: bytes that they may take together; 0 for no limit.
    """
    # A short call pays nothing.
    last = time.monotonic()

    def look() -> str:
        nonlocal last
        if not most or time.monotonic() - last < _EVERY:
            return ""
        pids = descendants(root)
        text = _excess(pids, most)
        last = time.monotonic()
        return text

    return look


def _excess(pids: list[int], most: int) -> str:
    if len(pids) > _MOST:
        return f"it has {len(pids)} processes, more than {_MOST}"
    files = _in_files(pids)
    quick = sum(_sum_lines(f"/proc/{pid}/status", "RssAnon:", "RssShmem:") for pid in pids) + files
    if quick <= most:
        return ""
    rollups = [f"/proc/{pid}/smaps_rollup" for pid in pids]
    # A file in memory that is mapped is counted among what is shared, too.
    shared = max(sum(_sum_lines(path, "Pss_Shmem:") for path in rollups), files)
    memory = sum(_sum_lines(path, "Pss_Anon:") for path in rollups) + shared
    return f"its processes have {memory / 2**30:.3g} GiB, more than {most / 2**30:.3g}" if memory > most else ""


def descendants(root: int) -> list[int]:
    """A process and all below it, as they are now."""
    pids = [root]
    for pid in pids:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError):
                    pids += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return list(dict.fromkeys(pids))


def _sum_lines(path: str, *names: str) -> int:
    """Bytes that lines of a file of the kernel say; 0 where a process has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = [line.split() for line in Path(path).read_text().splitlines() if line.startswith(names)]
        return sum(int(word[1]) * 1024 for word in words)
    return 0


def _in_files(pids: list[int]) -> int:
    """Bytes of files in memory: those in a `/dev/shm` of the processes' own, and those that are open, each once."""
    sizes: dict[tuple[int, int], int] = {}
    own, used = _own_shared(pids[0])
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith(_IN_MEMORY):
                        status = entry.stat()
                        sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return used + sum(size for (device, _), size in sizes.items() if device != own)


def _own_shared(root: int) -> tuple[int, int]:
    """The device of a process's own `/dev/shm`, and bytes that it has; -1 and 0 where it is this process's, too."""
    with contextlib.suppress(OSError):
        place = f"/proc/{root}/root{_SHARED}"
        device = os.stat(place).st_dev
        if device != os.stat(_SHARED).st_dev:
            has = os.statvfs(place)
            return device, (has.f_blocks - has.f_bfree) * has.f_frsize
    return -1, 0
