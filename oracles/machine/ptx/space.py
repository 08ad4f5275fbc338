"""A state space, global memory or the shared memory of several blocks, with a shadow that knows who touched what.

What this is for: executed on a CPU, threads come one after the other, so a race that goes wrong on a GPU goes right.
Here every element knows the thread that wrote it last and one that read it, and at which epoch: the numbers of barriers
that the block and the thread's warp had passed. Two threads of one block race if nothing but the order of execution
lies between them, that is, in one epoch of the block, and of the warp if they are of one; threads of two blocks race in
any. Equal values that are written twice are no race, because no order shows in them; others, by one instruction of
one block to shared memory, are a contest (`contests.py`).

What is hard here: one number stands for all readers of an element. Two numbers above all others say that several
threads, or threads of several blocks, have read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...verdicts.violation import Code, Violation
from .access import Access as Access
from .access import nearest_operand
from .block_order import BlockOrder
from .contests import NOBODY, OF_BLOCK, SEVERAL, Contests, is_open, rank_stores
from .contests import WARP as WARP
from .formats import BITS, Lanes
from .ongoing import Ongoing


class Space:
    """Bytes by address.

    Args:
        name: for messages. size: bytes. blocks, threads: how many blocks use it, of how many threads.
        poison: the byte that fills it. apart: whether each block has a part of its own, of `size // blocks` bytes.

    Attributes:
        cells: the bytes. allowed: which of them an address may reach. defined: which were ever written.
        part: bytes of each block. unwritten: the first read of an element to which nothing was written, in words.
        doubt: a race of threads of one block in global memory, one of which reads. A compiler has all threads that
            hold an element load it, and one store it; so what the others read is often dead.
        shared_updates: whether several threads have changed one element by atomic operations.
    """

    def __init__(self, name: str, size: int, blocks: int, threads: int, *, poison: int, apart: bool) -> None:
        self.name, self._threads, self._apart = name, threads, apart
        #: Threads of what comes before or after others by way of atomic operations: a block, in its own memory a warp.
        self._unit = min(WARP, threads) if apart else threads
        self.part = size // max(blocks, 1)
        self.cells = np.full(-(-size // 16) * 16 + 16, poison, np.uint8)
        self._size = count = self.cells.size
        self.allowed = np.full(count, apart)
        self.defined = np.zeros(count, bool)
        self.unwritten, self.shared_updates = "", False
        self.doubt: Violation | None = None
        self._epochs = np.zeros(blocks, np.int64)
        self._warp_epochs = np.zeros(blocks * threads // WARP + 1, np.int64)
        #: By the first byte of an element: a thread and its epoch; of readers the block and the warp, too.
        self._shelve(np.full((6, count), NOBODY, np.int64))
        self._operands: list[tuple[int, int, str]] = []
        self._atomic = np.zeros(count, bool)
        #: When an element was written and read last, by the clock of the order of blocks.
        self._times = np.zeros((2, count), np.int32)
        self.order = BlockOrder(within=apart)
        self._contests = Contests(count if apart and threads > 1 else 0)
        self._views = {width: self.cells.view(BITS[width]) for width in BITS}
        self._ongoing = Ongoing(count)

    def _shelve(self, books: Lanes) -> None:
        """Keep books of who wrote and who read, a row each."""
        self._writer, self._writes, self._reader, self._read, self._reading, self._warp = self._books = books

    def allow(self, name: str, runs: list[tuple[int, int]]) -> None:
        """Let addresses reach the elements of an operand, from the first byte to before the last one of each run."""
        for first, last in runs:
            self.allowed[first:last] = self.defined[first:last] = True
        if runs:
            self._operands.append((min(first for first, _ in runs), max(last for _, last in runs), name))

    def _cells_of(self, at: Lanes) -> Lanes:
        """The cells of addresses."""
        return at

    def _address_of(self, cell: int) -> int:
        """The address of a cell."""
        return cell

    def pass_barrier(self, blocks: Lanes) -> None:
        """Blocks pass a barrier: what their threads did before it comes before what they do from now on."""
        self._epochs[blocks] += 1

    def pass_warp_barrier(self, warps: Lanes) -> None:
        """Warps pass a barrier of their own, by their numbers: the same among the threads of each."""
        self._warp_epochs[warps] += 1

    def meet(self, threads: Lanes) -> None:
        """Threads come to a barrier in this memory, which orders what their warps do with what those of others do."""
        self.order.pass_through(np.unique(threads // self._unit))

    def _now(self, access: Access) -> Lanes:
        """The epoch of every thread."""
        epochs = self._epochs[access.threads // self._threads] << OF_BLOCK
        return epochs | self._warp_epochs[access.threads // WARP]

    def load(self, access: Access, strong: bool = False) -> list[Lanes]:
        """The bits of every element, by its place in a row.

        Args:
            access: who reads. strong: whether by an instruction that is ordered with atomic ones, as ld.acquire is.

        Raises:
            Violation: an address is misaligned or outside, or another thread wrote the element in this epoch.
        """
        access = self._located(access)
        blocks = access.threads // self._threads
        now = self._now(access)
        loaded = []
        for number in range(access.count):
            at = access.addresses + number * access.width
            self._note_unwritten(access, at)
            wrote = self._writer[at]
            if self._ongoing.any:
                who, busy = self._ongoing.find_writers(at, access.threads)
                self._require_no_race(access, at, who, busy, ("reads", "still copies there"))
            racing = self._recent(wrote, self._writes[at], access, now)
            if strong:
                racing = racing & ~self._atomic[at]
            contested = self._contested(access, at, now)
            self._require_no_race(access, at, np.full(at.size, SEVERAL), contested, ("reads", "wrote at once"))
            within = racing & (wrote // self._threads == blocks) & (not self._apart)
            self._require_no_race(access, at, wrote, within, ("reads", "wrote"), doubtful=True)
            self._require_no_race(access, at, wrote, racing & ~within, ("reads", "wrote"), self._times[0])
            if not strong:
                self._note_reader(at, access.threads, blocks, now)
            loaded.append(self._views[access.width][at // access.width])
        if strong and not self._apart:
            self.order.pass_through(blocks, releases=False)
        return loaded

    def store(self, access: Access, values: list[Lanes], strong: bool = False, releases: bool = False) -> None:
        """Write bits, by their places in a row.

        Args:
            access: who writes. values: the bits. strong: as for `load`. releases: what came before (`block_order.py`).

        Raises:
            Violation: as `load`; or another thread has read or written another value there in this epoch.
        """
        access = self._located(access)
        blocks = access.threads // self._threads
        now = self._now(access)
        for number, value in enumerate(values):
            at = access.addresses + number * access.width
            changed = self._views[access.width][at // access.width] != value
            if strong:
                changed = changed & ~self._atomic[at]
            if self._ongoing.any:
                who, busy = self._ongoing.find_users(at, access.threads)
                self._require_no_race(access, at, who, busy & changed, ("writes", "still copies or multiplies there"))
            if self._apart and self._threads > 1:
                self._contest(access, at, value, now, changed)
            else:
                self._require_ordered(access, at, blocks, now, changed)
                racing = self._put(access, at, value)
                self._require_no_race(access, at, self._writer[at], racing, ("writes", "writes at once"))
            self._note_writer(at, access, now, strong)
        if strong and not self._apart:
            self.order.pass_through(blocks, releases)

    def begin(self, access: Access, values: list[Lanes] | None = None) -> list[Lanes]:
        """Begin what goes on by itself until `end`: a copy of bits into memory or, without them, reading.

        Returns:
            What is read.

        Raises:
            Violation: as `store` and `load`, by what others did so far.
        """
        loaded: list[Lanes] = []
        if values is None:
            loaded = self.load(access)
        else:
            located = self._located(access)
            now = self._now(located)
            for number, value in enumerate(values):
                at = located.addresses + number * access.width
                changed = self._views[access.width][at // access.width] != value
                self._require_ordered(located, at, access.threads // self._threads, now, changed)
        for number in range(access.count):
            self._ongoing.add(access.addresses + number * access.width, access.threads, values is not None)
        return loaded

    def end(self, access: Access, values: list[Lanes] | None = None) -> None:
        """End what was begun: what was copied is there, and what was read has been read now.

        Raises:
            Violation: as `begin`.
        """
        for number in range(access.count):
            self._ongoing.remove(access.addresses + number * access.width, values is not None)
        if values is not None:
            self.store(access, values)
            return
        for number in range(access.count):
            at, blocks = access.addresses + number * access.width, access.threads // self._threads
            self._note_reader(at, access.threads, blocks, self._now(access))

    def _put(self, access: Access, at: Lanes, value: Lanes) -> Lanes:
        """Write bits, and say where another thread of the access has written others to the same element."""
        cells = self._views[access.width]
        cells[at // access.width] = value
        self._writer[at] = access.threads
        # Of threads that write one element at once the last one stands there now.
        return np.asarray((self._writer[at] != access.threads) & (cells[at // access.width] != value))

    def _contest(self, access: Access, at: Lanes, value: Lanes, now: Lanes, changed: Lanes) -> None:
        """Write bits to shared memory; where others do by the same instruction, the hardware says who wins."""
        elements, wrote, warps = at // access.width, self._writer[at], access.threads // WARP
        alike = self._contests.of_instruction(access.where, at)
        contested = self._contested(access, at, now)
        words = "writes", "wrote at once"
        self._require_no_race(access, at, np.full(at.size, SEVERAL), contested & ~alike & changed, words)
        again = alike & (contested | self._recent(wrote, self._writes[at], access, now) & (wrote != access.threads))
        again &= changed | contested
        self._require_ordered(access, at, access.threads // self._threads, now, changed, again)
        if again.any():
            there = self._views[access.width][elements]
            loses = rank_stores(wrote, elements, there) > rank_stores(access.threads, elements, value)
            value = np.where(again & loses, there, value)
        across = again & ((wrote // WARP != warps) | self._contests.among_warps(at))
        racing = self._put(access, at, value)
        if racing.any():
            order = np.argsort(rank_stores(access.threads, elements, value), kind="stable")
            self._put(access.choose(order), at[order], value[order])
        contested = again | np.isin(at, at[racing])
        self._contests.note(access.where, at, access.threads, contested, across)

    def _contested(self, access: Access, at: Lanes, now: Lanes) -> Lanes:
        """Where reading or writing races with threads that have stored different values at once."""
        return self._contests.open(at, self._writes[at], now, access.threads)

    def update(self, access: Access, function: Callable[[Lanes, Lanes, int], Lanes], releases: bool) -> list[Lanes]:
        """Change every element by an atomic operation, and give the bits that each thread found, by places in a row.

        Args:
            access: who does it, in the order of its threads. releases: as for `store`.
            function: (bits that are there, which threads of the access, place in the row) -> bits that are to be.

        Raises:
            Violation: an address is misaligned or outside, or another thread touched the element in this epoch by an
                operation that is not atomic.
        """
        access = self._located(access)
        blocks = access.threads // self._threads
        now = self._now(access)
        cells = self._views[access.width]
        before_each = []
        for number in range(access.count):
            at = access.addresses + number * access.width
            self._note_unwritten(access, at)
            self._require_ordered(access, at, blocks, now, ~self._atomic[at])
            others = self._atomic[at] & (self._writer[at] != access.threads)
            before = np.zeros(at.size, BITS[access.width])
            order = np.argsort(at, kind="stable")
            first = np.r_[True, at[order][1:] != at[order][:-1]]
            # How many threads before it touch the same element: those of one rank touch different ones.
            rank = np.arange(at.size) - np.maximum.accumulate(np.where(first, np.arange(at.size), 0))
            for turn in range(int(rank.max(initial=-1)) + 1):
                threads = order[rank == turn]
                places = at[threads] // access.width
                before[threads] = cells[places]
                cells[places] = function(before[threads], threads, number)
            self.shared_updates |= bool(others.any() or rank.any())
            self._note_writer(at, access, now, True)
            before_each.append(before)
        if not self._apart:
            self.order.pass_through(blocks, releases)
        return before_each

    def _require_ordered(
        self, access: Access, at: Lanes, blocks: Lanes, now: Lanes, changed: Lanes, rivals: Lanes | bool = False
    ) -> None:
        """Require that what others did with elements that are written comes before; rivals may have written."""
        wrote = self._writer[at]
        racing = self._recent(wrote, self._writes[at], access, now) & changed & ~np.asarray(rivals)
        self._require_no_race(access, at, wrote, racing, ("writes", "wrote"), self._times[0])
        within, across = self._readers(at, access, blocks, now)
        reader, words = self._reader[at], ("writes", "read")
        when = self._times[1] if self._apart else None
        self._require_no_race(access, at, reader, within & ~across & changed, words, when, not self._apart)
        self._require_no_race(access, at, reader, across & changed, words, self._times[1])

    def _note_unwritten(self, access: Access, at: Lanes) -> None:
        if self.unwritten or self.defined[at].all():
            return
        first = int(np.flatnonzero(~self.defined[at])[0])
        thread = self._thread(int(access.threads[first]))
        self.unwritten = f"{access.where}: {thread} reads {self._place(self._address_of(int(at[first])))}"

    def _note_writer(self, at: Lanes, access: Access, now: Lanes, atomic: bool) -> None:
        self._writer[at], self._writes[at], self._atomic[at] = access.threads, now, atomic
        self._times[0][at] = self.order.clock
        for byte in range(access.width):
            self.defined[at + byte] = True

    def _recent(self, others: Lanes, epochs: Lanes, access: Access, now: Lanes) -> Lanes:
        """Where another thread did something with no barrier since; of another block, ever."""
        there = others != NOBODY
        if not there.any():
            return there
        same = others // self._threads == access.threads // self._threads
        return there & (~same | is_open(epochs, now, others // WARP == access.threads // WARP))

    def _readers(self, at: Lanes, access: Access, blocks: Lanes, now: Lanes) -> tuple[Lanes, Lanes]:
        """Where another thread of the block has read in this epoch, and where one of another block ever has."""
        reader, block = self._reader[at], self._reading[at]
        here = (reader != NOBODY) & (reader != access.threads) & (block == blocks)
        here &= is_open(self._read[at], now, self._warp[at] == access.threads // WARP)
        return here, (block != NOBODY) & (block != blocks)

    def _note_reader(self, at: Lanes, threads: Lanes, blocks: Lanes, now: Lanes) -> None:
        block = self._reading[at]
        several = (block != NOBODY) & (block != blocks)
        warps = threads // WARP
        alike = self._warp[at] == warps
        again = (self._reader[at] != NOBODY) & (self._reader[at] != threads) & is_open(self._read[at], now, alike)
        self._reader[at] = np.where(again, SEVERAL, threads)
        self._warp[at] = np.where(again & ~alike, SEVERAL, warps)
        self._reader[at[self._reader[at] != threads]] = SEVERAL  # threads that read one element at once
        self._warp[at[self._warp[at] != warps]] = SEVERAL
        self._reading[at] = np.where(several, SEVERAL, blocks)
        self._times[1][at] = self.order.clock
        if not self._apart:
            self._reading[at[self._reading[at] != blocks]] = SEVERAL
        self._read[at] = now

    def _require_no_race(
        self, access: Access, at: Lanes, others: Lanes, racing: Lanes, words: tuple[str, str],
        when: Lanes | None = None, doubtful: bool = False,
    ) -> None:  # fmt: skip
        """Raise a Violation where threads race with others.

        Args:
            access, at: who touches which elements. others: who did before. racing: where nothing known is between them.
            words: what both do. when: the clock when the others did, by element; None for now.
            doubtful: whether the race is noted, because what is read may be dead.
        """
        racing = racing & (others != access.threads)
        if racing.any() and when is not None:
            some = np.flatnonzero(racing)
            theirs = np.where(others < 0, others, others // self._unit)[some]
            racing[some] = ~self.order.comes_before(theirs, when[at[some]], access.threads[some] // self._unit)
        if not racing.any():
            return
        does, did = words
        first = int(np.flatnonzero(racing)[0])
        other = "several threads" if others[first] == SEVERAL else self._thread(int(others[first]))
        title = (
            f"{access.where}: {self._thread(int(access.threads[first]))} {does} what {other} {did}, in no decided order"
        )
        place = self._place(self._address_of(int(at[first])))
        violation = Violation(Code.RACE, title, [f"{place}; {int(racing.sum())} elements in all"])
        if not doubtful:
            raise violation
        self.doubt = self.doubt or violation

    def _thread(self, number: int) -> str:
        return f"thread {number % self._threads} of block {number // self._threads}"

    def _place(self, address: int, thread: int | None = None) -> str:
        """Where an address is in the part of its block; that of a thread which is outside of it, in the thread's."""
        start = self.part * (address // self.part if thread is None else thread // self._threads) if self._apart else 0
        return f"byte {address - start} of {self.name} memory"

    def _located(self, access: Access) -> Access:
        """The access with cells as addresses; a Violation where one is misaligned or outside."""
        at, whole, size = access.addresses, access.width * access.count, self._size
        if not at.size:
            return access
        cells, low, high = self._cells_of(at), int(at.min()), int(at.max())
        if low < 0 or high + whole > size:
            wrong = (at < 0) | (at + whole > size)
        elif self._apart:
            block = access.threads // self._threads
            wrong = (at < block * self.part) | (at + whole > (block + 1) * self.part)
        else:
            wrong = ~(self.allowed[cells] & self.allowed[self._cells_of(at + whole - 1)])
        whole_title = f"{access.where}: {{}} touches {whole} bytes of {self.name} memory"
        self._require_none(access, at % whole != 0, Code.MISALIGNED, f"{whole_title} at no multiple of {whole}")
        self._require_none(access, wrong, Code.OUT_OF_BOUNDS, f"{whole_title} that is no operand's")
        return replace(access, addresses=cells)

    def _require_none(self, access: Access, wrong: Lanes, code: Code, title: str) -> None:
        """Raise a Violation where an access is wrong; the title has a place for the thread."""
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            thread, address = int(access.threads[first]), int(access.addresses[first])
            near = nearest_operand(self._operands, address)
            raise Violation(code, title.format(self._thread(thread)), [self._place(address, thread), *near])
