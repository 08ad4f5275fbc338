"""Threads, child processes and descriptors that a call leaves in the process. None of these can be taken back."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

#: How many seconds a thread may take to end by itself before it counts as left.
GRACE = 0.05
_CHILDREN = Path("/proc/self/task")
_DESCRIPTORS = "/proc/self/fd"


class _Resources(NamedTuple):
    threads: frozenset[threading.Thread]
    processes: frozenset[int]
    descriptors: frozenset[str]


class Leftovers:
    """Threads that Python started, processes that this one started, descriptors that it opened."""

    def read(self) -> _Resources:
        # Threads are recorded as objects, because the system reuses the number of a thread that has ended.
        return _Resources(frozenset(threading.enumerate()), _children(), _descriptors())

    def restored(self, before: _Resources, compiled: bool) -> list[str]:
        if compiled:  # Torch's compiler keeps pools of threads and processes, which are not the subject's.
            return []
        if not _new_descriptors(before) and not _new_processes(before) and not _new_threads(before):
            return []
        # A file in a cycle of garbage is closed at the next collection, and does not count as left. So the garbage is
        # collected before the resources are listed again.
        gc.collect()
        end = time.monotonic() + GRACE
        for thread in _new_threads(before):
            thread.join(max(0.0, end - time.monotonic()))
        return [
            *(f"left a thread: {thread.name}" for thread in _new_threads(before)),
            *(f"left a child process: {_program_of(number)}" for number in _new_processes(before)),
            *(f"left a file descriptor: {target}" for target in _new_descriptors(before)),
        ]


def _new_threads(before: _Resources) -> list[threading.Thread]:
    # A library's own thread gets a stand-in when it first calls Python code. Python did not start that one, so it is
    # not the subject's.
    started = [t for t in threading.enumerate() if not isinstance(t, threading._DummyThread)]
    return [thread for thread in started if thread not in before.threads]


def _new_processes(before: _Resources) -> list[int]:
    return sorted(_children() - before.processes)


def _new_descriptors(before: _Resources) -> list[str]:
    if torch.cuda.is_initialized():
        return []  # The CUDA driver opens descriptors at any time, so a new one says nothing about the subject.
    targets = []
    for number in sorted(_descriptors() - before.descriptors):
        with contextlib.suppress(OSError):
            targets.append(os.readlink(f"{_DESCRIPTORS}/{number}"))
    return targets


def _children() -> frozenset[int]:
    """Numbers of the processes that any thread of this one started; empty where the kernel does not list them."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return frozenset()  # There are no children; asking this is much faster than listing them.
    numbers: set[int] = set()
    for task in _list_safely(_CHILDREN.iterdir):
        numbers.update(map(int, _text(task / "children").split()))
    return frozenset(numbers)


def _descriptors() -> frozenset[str]:
    """Numbers of the open descriptors, without the lowest free number, which the listing itself takes."""
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    return frozenset(_list_safely(lambda: os.listdir(_DESCRIPTORS))) - {str(free)}


def _list_safely(listing: Callable[[], Any]) -> list[Any]:
    try:
        return list(listing())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _program_of(number: int) -> str:
    return _text(Path(f"/proc/{number}/comm")).strip() or "unknown"
