"""What goes on by itself in shared memory, from an instruction that begins it to one that waits for it.

A copy writes, and a product of matrices reads, at any time between. So who reads what is being written, and who writes
what is being read or written, races with it, whatever barrier lies between; and where it begins, it comes after what
others did only if a barrier says so (`Space.begin`).

Source: NVIDIA, PTX ISA 9.1, sections 9.7.9.25.3.1 (completion of cp.async), 9.7.15.7.1 (wgmma: "Accessing the registers
[...] or the shared memory containing the input matrices [...] before wgmma.wait_group is undefined").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .books import NOBODY, SEVERAL, Access
from .formats import Lanes


class Ongoing:
    """Which elements, by the first byte, are being read and written.

    Args:
        count: bytes of the memory.

    Attributes:
        any: whether there ever was one.
    """

    def __init__(self, count: int) -> None:
        self.any, self._size = False, count
        self._counts, self._owner = np.zeros((2, 0), np.int16), np.zeros((2, 0), np.int32)

    def add(self, at: Lanes, threads: Lanes, writes: bool) -> None:
        """Threads begin to read elements, or to write them."""
        if not self.any:
            self.any = True
            self._counts = np.zeros((2, self._size), np.int16)
            self._owner = np.full((2, self._size), NOBODY, np.int32)
        np.add.at(self._counts[int(writes)], at, np.int16(1))
        self._owner[int(writes)][at] = threads

    def remove(self, at: Lanes, writes: bool) -> None:
        """That is over."""
        np.subtract.at(self._counts[int(writes)], at, np.int16(1))

    def find(self, at: Lanes, threads: Lanes, reads: bool) -> tuple[Lanes, Lanes]:
        """Who is in the way of threads that read elements or write them, and where.

        Of those that read that is another one that writes; else whoever reads or writes, SEVERAL for themselves.
        """
        reading, writing = (counts.take(at) > 0 for counts in self._counts)
        busy = writing if reads else writing | reading
        if not busy.any():
            return threads, busy
        who = np.where(writing, self._owner[1][at], self._owner[0][at])
        return (who, busy & (who != threads)) if reads else (np.where(who == threads, SEVERAL, who), busy)


@dataclass(frozen=True)
class Going:
    """Work that an instruction began.

    Attributes:
        access: what it touches. groups: the numbers of the threads' groups. words: that it writes; None: it reads.
    """

    access: Access
    groups: Lanes
    words: list[Lanes] | None

    def choose(self, choice: Lanes) -> Going:
        words = None if self.words is None else [word[choice] for word in self.words]
        return Going(self.access.choose(choice), self.groups[choice], words)


class WorkGroups:
    """Work of threads in groups, each of which a thread closes and later waits for.

    Args:
        size: how many threads.
    """

    def __init__(self, size: int) -> None:
        self._closed = np.zeros(size, np.int64)
        self._going: list[Going] = []

    def begin(self, access: Access, words: list[Lanes] | None) -> None:
        """Threads begin something, in the group that each has open."""
        self._going.append(Going(access, self._closed[access.threads], words))

    def close(self, lanes: Lanes) -> None:
        """Threads close the group that each has open."""
        self._closed[lanes] += 1

    def wait(self, lanes: Lanes, but: int | None = 0) -> Iterator[Going]:
        """What is over once threads have waited for all of their closed groups but so many; None: for all work."""
        limits = np.full(self._closed.size, -1, np.int64)
        limits[lanes] = np.iinfo(np.int64).max if but is None else self._closed[lanes] - but
        going, self._going = self._going, []
        for each in going:
            done = each.groups < limits[each.access.threads]
            if not done.all():
                self._going.append(each.choose(~done) if done.any() else each)
            if done.any():
                yield each if done.all() else each.choose(done)
