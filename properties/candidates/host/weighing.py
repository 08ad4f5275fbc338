"""How much memory a process and all that it started take together, and how long it waited for a processor.

What is hard here: a limit of a process counts its private memory alone, so ten children take ten times as much, and a
file in memory is nobody's. So the judge looks while it waits. Memory that several processes share is counted in each
at first, which is quick; only where that is too much it is counted exactly. And a candidate must not gain time by
processes and threads that take the processor from each other: what all of them compute together counts, too.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from time import monotonic

#: Seconds until the first look, so that a short question pays nothing.
_AFTER = 0.25
#: At least one second in so many is its own: children that have ended are not seen, so what they take from a process
#: looks like waiting, and would let it go on for ever.
_SHARE = 10.0
#: Of nanoseconds, a second.
_SECOND = 1e9


class OwnTime:
    """Counts the seconds of a question that are a process's own: those in which it computed or waited for anything but
    a processor. Begins when it is made.

    Args:
        root: the process; what it started counts, too.
    """

    def __init__(self, root: int) -> None:
        self._root, self._start = root, monotonic()
        self._before: dict[str, tuple[float, float]] | None = None

    def look(self) -> None:
        """See what the process has taken before, once some time of the question has passed."""
        if self._before is None and monotonic() - self._start > _AFTER:
            self._before = _uses(self._root)

    def seconds(self) -> float:
        """Its own seconds until now; at least those that its threads computed together, as far as they are known."""
        elapsed = monotonic() - self._start
        if self._before is None:
            return elapsed
        computed = waited = 0.0
        for thread, (on, off) in _uses(self._root).items():
            on_before, off_before = self._before.get(thread, (0.0, 0.0))
            computed, waited = computed + on - on_before, max(waited, off - off_before)
        return max(computed, elapsed - waited, elapsed / _SHARE)


def _uses(root: int) -> dict[str, tuple[float, float]]:
    """Of each thread of a process and of what it started: seconds on a processor, and seconds in wait for one."""
    uses = {}
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                # `on`, `off` and a number of turns; a kernel that does not count them says zeros.
                with contextlib.suppress(OSError, ValueError):
                    on, off, _ = map(int, Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split())
                    uses[thread] = on / _SECOND, off / _SECOND
    return uses


#: Seconds between two looks.
_EVERY = 0.25
#: Processes that a candidate may have at the same time.
_MOST = 512
#: What is in memory and is called a file.
_IN_MEMORY, _SHARED = ("/memfd:", "/dev/shm/"), "/dev/shm"
#: Bytes of a file that fills memory; a log, or a name by which libraries find each other, does not.
_LARGE = 2**20


def watch_load(root: int, most: int) -> Callable[[], str]:
    """What says by how much the process `root` and its descendants take more than `most` bytes, if that is not 0."""
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


def left_in_memory(root: int) -> list[str]:
    """A line for a large file in the processes' own `/dev/shm` that none has open: elsewhere it would stay."""
    if _own_shared(root)[0] < 0:
        return []
    nodes = set()
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            nodes |= {int(line.split()[4]) for line in Path(f"/proc/{pid}/maps").read_text().splitlines()}
            nodes |= {entry.stat().st_ino for entry in os.scandir(f"/proc/{pid}/fd") if _SHARED in os.readlink(entry)}
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{root}/root{_SHARED}").rglob("*"):
            status = path.lstat()
            if status.st_blocks * 512 >= _LARGE and status.st_ino not in nodes:
                return [f"a file was left in {_SHARED}: {path.name!a}, {status.st_size} bytes"]
    return []


def _own_shared(root: int) -> tuple[int, int]:
    """The device of a process's own `/dev/shm`, and bytes that it has; -1 and 0 where it is this process's, too."""
    with contextlib.suppress(OSError):
        place = f"/proc/{root}/root{_SHARED}"
        device = os.stat(place).st_dev
        if device != os.stat(_SHARED).st_dev:
            has = os.statvfs(place)
            return device, (has.f_blocks - has.f_bfree) * has.f_frsize
    return -1, 0
