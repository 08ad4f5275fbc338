"""Who touched what in a memory, by the first byte of an element: the thread that wrote it last, and one that read it.

What is hard here: to enter an access takes longer than the access, and most of them meet nobody: between two barriers
threads read what none of them writes. So they are kept as they are, and where they lie. Who comes to such a place has
them entered first (`settle`); a barrier after which they no longer matter throws them away. And one number stands for
all readers of an element: two above all others say that several threads, or threads of several blocks, have read it.

Contests: Triton's layouts have an element in several lanes and warps, which all store their copies to shared memory on
the way to another layout. Copies of a sum may differ in the last bit, as each lane adds in an order of its own and fma
rounds one of two products alone. One of the values is there afterwards, and which one is undefined (NVIDIA, CUDA C++
Programming Guide, "SIMT Architecture", for lanes; for warps no barrier lies between). So that is no fault by itself,
but each of them must do: the hardware (`hardware.Hardware.winner`) says which one it is. Whoever reads it before a
barrier races. In global memory Triton has one of the threads store, so there several values remain a race.
"""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from . import approximations, hardware
from .formats import Lanes

#: Threads of a warp.
WARP = 32
NOBODY, SEVERAL = -1, -2
#: An epoch has the barriers of the block above this bit, and those of the thread's warp alone below it.
OF_BLOCK = 32
#: What is said of a launch whose accesses there is no room for.
TOO_MUCH = "touches more memory than is executed"
#: A first byte, and the one behind the last.
Span: TypeAlias = tuple[int, int]
#: Places of threads that are kept, of one part of memory; and threads that are kept with their blocks and epochs.
_MOST, _MOST_CREWS = 1 << 21, 8


@dataclass(frozen=True)
class Access:
    """Who touches memory, and by which instruction.

    Attributes:
        addresses: of every thread, bytes from the start of the space. threads: their numbers, in the space's counting.
        width, count: bytes of an element, and how many elements one thread touches in a row.
        where: the instruction in words.
        homes: the block of each address, of memory of which blocks have parts; None for that of the thread.
    """

    addresses: Lanes
    threads: Lanes
    width: int
    count: int
    where: str
    homes: Lanes | None = None

    @property
    def whole(self) -> int:
        """Bytes that one thread touches."""
        return self.width * self.count

    def elements(self) -> list[Lanes]:
        """The addresses of elements, by their places in a row."""
        return [self.addresses + number * self.width for number in range(self.count)]

    def element(self, number: int) -> Access:
        """The access of one element of each row."""
        return Access(self.elements()[number], self.threads, self.width, 1, self.where, self.homes)

    def choose(self, choice: Any) -> Access:
        """The access of some of the threads."""
        homes = None if self.homes is None else self.homes[choice]
        return Access(self.addresses[choice], self.threads[choice], self.width, self.count, self.where, homes)


@dataclass(frozen=True, eq=False)
class Crew:
    """Threads: their numbers, those of their blocks, and their epochs."""

    threads: Lanes
    blocks: Lanes
    now: Lanes


class _Part:
    """A part of memory: what was done that is in no book, of how many threads, and where it was read and written."""

    def __init__(self) -> None:
        self.entries: list[tuple[Access, Crew, int, bool]] = []
        self.size, self.spans = 0, dict.fromkeys((False, True), (math.inf, -math.inf))


class Books:
    """The books of a memory.

    Args:
        count: bytes. blocks, threads: how many blocks, of how many threads. apart: whether each has a part of its own
            that no other block touches.

    Attributes:
        starts: where a further part of memory begins; what touches two parts is entered at once.
        writer, writes: a thread and its epoch. reader, read, reading, warp: the same, its block and its warp.
        by, contest: the instruction that stored last, and the warp of those who stored different values.
        atomic: whether it was written by an atomic operation. times: when it was written and read last.
    """

    def __init__(self, count: int, blocks: int, threads: int, apart: bool) -> None:
        self._count, self._threads, self.apart = count, threads, apart
        self._epochs = np.zeros(blocks, np.int64)
        self._warp_epochs = np.zeros(blocks * threads // WARP + 1, np.int64)
        #: The blocks that have done anything since their last barrier.
        self._busy = np.zeros(blocks, bool)
        self._crews: dict[int, Crew] = {}
        self.starts: list[int] = []
        self._parts: dict[int, _Part] = defaultdict(_Part)
        # Memory that nobody has touched yet takes long to fill: numbers of threads have half the bytes where they can.
        number = np.int32 if blocks * threads < 2**31 else np.int64
        self._rows: tuple[Lanes, Lanes] = np.zeros((5, 0), number), np.zeros((3, 0), np.int64)
        self.atomic, self.times = np.zeros(0, bool), np.zeros((2, 0), np.int32)

    def extend(self, count: int, opens: bool = False) -> None:
        """Have so many bytes; books that were not needed so far remain closed."""
        self._count = count
        if opens or self.atomic.size:
            numbers, rows = self._rows = tuple(extended(each, count, NOBODY) for each in self._rows)
            self.writer, self.reader, self.reading, self.warp, self.contest = numbers
            self.writes, self.read, self.by = rows
            self.atomic, self.times = extended(self.atomic, count, False), extended(self.times, count, 0)

    def gather(self, threads: Lanes) -> Crew:
        """Threads, with their blocks and their present epochs."""
        crew = self._crews.get(id(threads))  # which keeps these, so that no others have their number
        if crew is None:
            if len(self._crews) > _MOST_CREWS:
                self._crews = {}
            blocks = threads // self._threads
            now = self._epochs[blocks] << OF_BLOCK | self._warp_epochs[threads // WARP]
            crew = self._crews[id(threads)] = Crew(threads, blocks, now)
            self._busy[blocks] = True
        return crew

    def pass_barrier(self, blocks: Lanes) -> slice:
        """Blocks pass a barrier; if nothing that was done matters any more, where something was written."""
        self._epochs[blocks] += 1
        self._busy[blocks], self._crews = False, {}
        if not self.apart or self._busy.any() or not self._parts:
            return slice(0)
        low, behind = self._parts.pop(0).spans[True]
        return slice(int(low), int(behind)) if low < behind else slice(0)

    def pass_warp_barrier(self, warps: Lanes) -> None:
        """Warps pass a barrier of their own."""
        self._warp_epochs[warps] += 1
        self._crews = {}

    def _touched(self, span: Span) -> list[_Part]:
        """The parts that a span touches; none for a thread that is alone in its memory, for it meets nobody."""
        if self.apart and self._threads == 1:
            return []
        first, last = bisect.bisect_right(self.starts, span[0]), bisect.bisect_left(self.starts, span[1])
        return [self._parts[number] for number in range(first, last + 1)]

    def meets(self, span: Span, writes: bool) -> bool:
        """Whether elements of a span may have been written, or read."""
        return any(part.spans[writes][0] < span[1] and span[0] < part.spans[writes][1] for part in self._touched(span))

    def keep(self, access: Access, crew: Crew, span: Span, clock: int, writes: bool) -> None:
        """Keep an access that meets nobody, or enter it."""
        (part, *others), size = self._touched(span) or [_Part()], access.addresses.size
        self.stretch(span, writes)
        if others or part.size + size > _MOST:
            self.settle(span)
            self._enter(access, crew, clock, writes)
        else:
            part.entries.append((access, crew, clock, writes))
            part.size += size
        for at in access.elements() if writes and self.atomic.size else ():
            self.atomic[at] = False

    def stretch(self, span: Span, writes: bool) -> None:
        """Elements of a span were written, or read."""
        for part in self._touched(span):
            low, behind = part.spans[writes]
            part.spans[writes] = min(low, span[0]), max(behind, span[1])

    def settle(self, span: Span) -> Books:
        """Enter what was kept of a span, and give the books."""
        if not self.atomic.size:
            self.extend(self._count, opens=True)
        for part in self._touched(span):
            for entry in part.entries:
                self._enter(*entry)
            part.entries, part.size = [], 0
        return self

    def _enter(self, access: Access, crew: Crew, clock: int, writes: bool) -> None:
        for at in access.elements():
            if writes:
                self.note_writer(access.where, at, crew, clock, False)
            else:
                self.note_reader(at, crew, clock)

    def note_writer(self, where: str, at: Lanes, crew: Crew, clock: int, atomic: bool, rivals: Any = ()) -> None:
        """Threads have written elements. rivals: where others have stored others, and where some of another warp."""
        contested, across = rivals or (False, False)
        self.writer[at], self.writes[at], self.atomic[at] = crew.threads, crew.now, atomic
        self.times[0][at], self.by[at], warps = clock, hash(where), crew.threads // WARP
        self.contest[at] = np.where(contested, np.where(across, SEVERAL, warps), NOBODY)
        self.contest[at[contested & (self.contest[at] != warps)]] = SEVERAL

    def note_reader(self, at: Lanes, crew: Crew, clock: int) -> None:
        """Threads have read elements."""
        threads, blocks, block = crew.threads, crew.blocks, self.reading[at]
        several = (block != NOBODY) & (block != blocks)
        warps = threads // WARP
        alike = self.warp[at] == warps
        again = (self.reader[at] != NOBODY) & (self.reader[at] != threads) & is_open(self.read[at], crew.now, alike)
        self.reader[at] = np.where(again, SEVERAL, threads)
        self.warp[at] = np.where(again & ~alike, SEVERAL, warps)
        self.reader[at[self.reader[at] != threads]] = SEVERAL  # threads that read one element at once
        self.warp[at[self.warp[at] != warps]] = SEVERAL
        self.reading[at] = np.where(several, SEVERAL, blocks)
        self.times[1][at] = clock
        if not self.apart:
            self.reading[at[self.reading[at] != blocks]] = SEVERAL
        self.read[at] = crew.now

    def recent(self, at: Lanes, crew: Crew) -> Lanes:
        """Where another thread has written with no barrier since; of another block, ever."""
        others = self.writer[at]
        same = others // self._threads == crew.blocks
        return (others != NOBODY) & (~same | is_open(self.writes[at], crew.now, others // WARP == crew.threads // WARP))

    def readers(self, at: Lanes, crew: Crew) -> tuple[Lanes, Lanes]:
        """Where another thread of the block has read in this epoch, and where one of another block ever has."""
        reader, block = self.reader[at], self.reading[at]
        here = (reader != NOBODY) & (reader != crew.threads) & (block == crew.blocks)
        here &= is_open(self.read[at], crew.now, self.warp[at] == crew.threads // WARP)
        return here, (block != NOBODY) & (block != crew.blocks)

    def contested(self, at: Lanes, crew: Crew) -> Lanes:
        """Where threads have stored different values, and no barrier lies between that and now."""
        warps = self.contest[at]
        return (warps != NOBODY) & is_open(self.writes[at], crew.now, warps == crew.threads // WARP)


def rank_stores(threads: Lanes, elements: Lanes, bits: Lanes) -> Lanes:
    """Numbers of threads that store to the same elements; the thread with the largest wins. The call is counted.

    The count shows that the results of a launch may depend on the hardware, so that it is executed on several
    (`account.py`).
    """
    approximations.executed[approximations.STORE] += 1
    winner = hardware.current().winner
    if winner == "any":  # odd factors make another order of the lanes of each element
        return (threads * 7 + elements * 11) % WARP
    sign = np.array(1, bits.dtype) << (8 * bits.itemsize - 1)
    size = (bits & ~sign).astype(np.int64)
    size = np.where(bits & sign, -size, size)  # in the order of the numbers, for every format of floats
    return -size if winner == "smallest" else size


def is_open(epochs: Lanes, now: Lanes, alike: Lanes) -> Lanes:
    """Whether no barrier lies between epochs and the present ones; `alike` says where the threads are of one warp."""
    return (epochs >> OF_BLOCK == now >> OF_BLOCK) & (~alike | (epochs == now))


def extended(array: Lanes, count: int, filler: int) -> Lanes:
    """The array with so many cells, the further ones filled."""
    longer = np.full((*array.shape[:-1], count), filler, array.dtype)
    longer[..., : array.shape[-1]] = array
    return longer
