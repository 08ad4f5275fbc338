"""A state space, global memory or the shared memory of several blocks, with a shadow that knows who touched what.

What this is for: executed on a CPU, threads come one after the other, so a race that goes wrong on a GPU goes right.
Here every element knows the thread that wrote it last and one that read it, and at which epoch: the number of barriers
that the block had passed. Two threads of one block race if nothing but the order of execution lies between them, that
is, in one epoch; threads of two blocks race in any. Equal values that are written twice are no race, because no order
shows in them.

What is hard here: one number stands for all readers of an element. Two numbers above all others say that several
threads, or threads of several blocks, have read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...verdicts.verdict import Code
from ...verdicts.violation import Violation
from .formats import BITS, Lanes

_NOBODY, _SEVERAL = -1, -2


@dataclass(frozen=True)
class Access:
    """Who touches memory, and by which instruction.

    Attributes:
        addresses: of every thread, bytes from the start of the space. threads: their numbers, in the space's counting.
        width, count: bytes of an element, and how many elements one thread touches in a row.
        where: the instruction in words.
    """

    addresses: Lanes
    threads: Lanes
    width: int
    count: int
    where: str

    def choose(self, chosen: Any) -> Access:
        """The access of some of the threads."""
        return Access(self.addresses[chosen], self.threads[chosen], self.width, self.count, self.where)


class Space:
    """Bytes by address.

    Args:
        name: for messages. size: bytes. blocks, threads: how many blocks use it, of how many threads.
        poison: the byte that fills it. apart: whether each block has a part of its own, of `size // blocks` bytes.

    Attributes:
        cells: the bytes. allowed: which of them an address may reach. defined: which were ever written.
        undefined: how many elements were read to which nothing was written.
    """

    def __init__(self, name: str, size: int, blocks: int, threads: int, *, poison: int, apart: bool) -> None:
        self.name, self._threads, self._apart = name, threads, apart
        self._part = size // max(blocks, 1)
        self.cells = np.full(-(-size // 16) * 16 + 16, poison, np.uint8)
        count = self.cells.size
        self.allowed = np.full(count, apart)
        self.defined = np.zeros(count, bool)
        self.undefined = 0
        self._epochs = np.zeros(blocks, np.int64)
        #: By the first byte of an element: a thread and its block's epoch; of readers the block, too.
        self._writer, self._written, self._reader, self._read, self._reading = np.full((5, count), _NOBODY, np.int64)
        self._views = {width: self.cells.view(BITS[width]) for width in BITS}

    def pass_barrier(self, blocks: Lanes) -> None:
        """Blocks pass a barrier: what their threads did before it comes before what they do from now on."""
        self._epochs[blocks] += 1

    def load(self, access: Access) -> list[Lanes]:
        """The bits of every element, by its place in a row.

        Raises:
            Violation: an address is misaligned or outside, or another thread wrote the element in this epoch.
        """
        self._check(access)
        blocks = access.threads // self._threads
        now = self._epochs[blocks]
        loaded = []
        for number in range(access.count):
            at = access.addresses + number * access.width
            self.undefined += int(np.count_nonzero(~self.defined[at]))
            wrote = self._writer[at]
            self._require_no_race(
                access, at, wrote, self._recent(wrote, self._written[at], blocks, now), "reads", "wrote"
            )
            self._note_reader(at, access.threads, blocks, now)
            loaded.append(self._views[access.width][at // access.width])
        return loaded

    def store(self, access: Access, values: list[Lanes]) -> None:
        """Write bits, by their places in a row.

        Raises:
            Violation: as `load`; or another thread has read or written another value there in this epoch.
        """
        self._check(access)
        blocks = access.threads // self._threads
        now = self._epochs[blocks]
        cells = self._views[access.width]
        for number, value in enumerate(values):
            at = access.addresses + number * access.width
            changed = cells[at // access.width] != value
            wrote = self._writer[at]
            racing = self._recent(wrote, self._written[at], blocks, now) & changed
            self._require_no_race(access, at, wrote, racing, "writes", "wrote")
            self._require_no_race(
                access, at, self._reader[at], self._readers(at, access, blocks, now) & changed, "writes", "read"
            )
            cells[at // access.width] = value
            self._writer[at] = access.threads
            # Of threads that write one element at once the last one stands there now.
            racing = (self._writer[at] != access.threads) & (cells[at // access.width] != value)
            self._require_no_race(access, at, self._writer[at], racing, "writes", "writes at once")
            self._written[at] = now
            for byte in range(access.width):
                self.defined[at + byte] = True

    def _recent(self, others: Lanes, epochs: Lanes, blocks: Lanes, now: Lanes) -> Lanes:
        """Where another thread did something with no barrier since; of another block, ever."""
        there = others != _NOBODY
        if not there.any():
            return there
        same = others // self._threads == blocks
        return there & (~same | (epochs == now))

    def _readers(self, at: Lanes, access: Access, blocks: Lanes, now: Lanes) -> Lanes:
        """Where another thread has read in this epoch, or one of another block ever."""
        reader, block = self._reader[at], self._reading[at]
        here = (reader != _NOBODY) & (reader != access.threads) & (self._read[at] == now) & (block == blocks)
        return here | ((block != _NOBODY) & (block != blocks))

    def _note_reader(self, at: Lanes, threads: Lanes, blocks: Lanes, now: Lanes) -> None:
        block = self._reading[at]
        several = (block != _NOBODY) & (block != blocks)
        again = (self._reader[at] != _NOBODY) & (self._reader[at] != threads) & (self._read[at] == now)
        self._reader[at] = np.where(again, _SEVERAL, threads)
        self._reader[at[self._reader[at] != threads]] = _SEVERAL  # threads that read one element at once
        self._reading[at] = np.where(several, _SEVERAL, blocks)
        if not self._apart:
            self._reading[at[self._reading[at] != blocks]] = _SEVERAL
        self._read[at] = now

    def _require_no_race(self, access: Access, at: Lanes, others: Lanes, racing: Lanes, does: str, did: str) -> None:
        racing = racing & (others != access.threads)
        if not racing.any():
            return
        first = int(np.flatnonzero(racing)[0])
        other = "several threads" if others[first] == _SEVERAL else self._thread(int(others[first]))
        title = (
            f"{access.where}: {self._thread(int(access.threads[first]))} {does} what {other} {did}, in no decided order"
        )
        raise Violation(Code.RACE, title, [f"{self._place(int(at[first]))}; {int(racing.sum())} elements in all"])

    def _thread(self, number: int) -> str:
        return f"thread {number % self._threads} of block {number // self._threads}"

    def _place(self, address: int) -> str:
        return f"byte {address % self._part if self._apart else address} of {self.name} memory"

    def _check(self, access: Access) -> None:
        at, whole = access.addresses, access.width * access.count
        if not at.size:
            return
        low, high = int(at.min()), int(at.max())
        if low < 0 or high + whole > self.cells.size:
            wrong = (at < 0) | (at + whole > self.cells.size)
        elif self._apart:
            block = access.threads // self._threads
            wrong = (at < block * self._part) | (at + whole > (block + 1) * self._part)
        else:
            wrong = ~(self.allowed[at] & self.allowed[at + whole - 1])
        whole_title = f"{access.where}: {{}} touches {whole} bytes of {self.name} memory"
        self._require_none(access, at % whole != 0, Code.MISALIGNED, f"{whole_title} at no multiple of {whole}")
        self._require_none(access, wrong, Code.OUT_OF_BOUNDS, f"{whole_title} that is no operand's")

    def _require_none(self, access: Access, wrong: Lanes, code: Code, title: str) -> None:
        """Raise a Violation where an access is wrong; the title has a place for the thread."""
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            thread = self._thread(int(access.threads[first]))
            raise Violation(code, title.format(thread), [self._place(int(access.addresses[first]))])
