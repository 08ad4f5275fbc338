"""A state space, global memory or the shared memory of several blocks, with a shadow that knows who touched what.

What this is for: executed on a CPU, threads come one after the other, so a race that goes wrong on a GPU goes right.
Here every element knows the thread that wrote it last and one that read it, and at which epoch: the numbers of barriers
that the block and the thread's warp had passed. Two threads of one block race if nothing but the order of execution
lies between them, that is, in one epoch of the block, and of the warp if they are of one; threads of two blocks race in
any. Equal values that are written twice are no race, because no order shows in them; others, by one instruction of
one block to shared memory, are a contest (`books.py`).

What is hard here: accesses are many, and few of them meet another one. Those that meet none are told from the rest by
where they lie, and kept; the rest are looked up, element by element, in the books.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...verdicts.violation import Code, Violation
from .block_order import BlockOrder
from .books import SEVERAL, Books, Crew, Span, rank_stores
from .books import WARP as WARP
from .books import Access as Access
from .extents import nearest_operand
from .formats import BITS, Lanes, items
from .ongoing import Ongoing


class Space:
    """Bytes by address.

    Args:
        name: for messages. size: bytes. blocks, threads: how many blocks use it, of how many threads.
        poison: the byte that fills it. apart: whether each block has a part of its own, of `size // blocks` bytes.
        numbers: of the blocks in the launch; None where they are counted from 0. joint: whether blocks touch the parts
            of others.

    Attributes:
        cells: the bytes. allowed: which of them an address may reach. defined: which were ever written.
        stores: which were written by the launch; where blocks have parts, since all of them passed a barrier.
        part: bytes of each block. unwritten: the first read of an element to which nothing was written, in words.
        doubt: a race of threads of one block in global memory, one of which reads. A compiler has all threads that
            hold an element load it, and one store it; so what the others read is often dead.
        shared_updates: whether several threads have changed one element by atomic operations.
    """

    def __init__(
        self, name: str, size: int, blocks: int, threads: int, *, poison: int, apart: bool,
        numbers: Lanes | None = None, joint: bool = False,
    ) -> None:  # fmt: skip
        self.name, self._threads, self._apart, self._numbers = name, threads, apart, numbers
        self.part, self.unwritten, self.shared_updates = size // max(blocks, 1), "", False
        self.cells = np.full(-(-size // 16) * 16 + 16, poison, np.uint8)
        self._size = count = self.cells.size
        self.allowed = np.full(count, apart)
        self.defined, self.stores = np.zeros(count, bool), np.zeros(count, bool)
        self.doubt: Violation | None = None
        self._operands: list[tuple[int, int, str]] = []
        #: Spans all of whose bytes are an operand's, and were written before.
        self._whole: list[Span] = []
        self.order = BlockOrder(min(WARP, threads) if apart else threads, within=apart)
        self._ongoing, self.books = Ongoing(count), Books(count, blocks, threads, apart and not joint)

    def allow(self, name: str, runs: list[Span]) -> None:
        """Let addresses reach the elements of an operand, from the first byte to before the last one of each run."""
        for first, last in runs:
            self.allowed[first:last] = self.defined[first:last] = True
        if runs:
            self._operands.append((min(first for first, _ in runs), max(last for _, last in runs), name))
        if len(runs) == 1:
            bisect.insort(self._whole, runs[0])
            self.books.starts = [first for first, _ in self._whole]

    def _cells_of(self, at: Lanes) -> Lanes:
        """The cells of addresses."""
        return at

    def _address_of(self, cell: int) -> int:
        """The address of a cell."""
        return cell

    def pass_barrier(self, blocks: Lanes) -> None:
        """Blocks pass a barrier: what their threads did before it comes before what they do from now on."""
        stale = self.books.pass_barrier(blocks)
        if self._apart != self.books.apart:  # what each warp did comes before what others learn from any of the block
            warps = self._threads // self.order.unit
            self.order.pass_through((blocks[:, None] * warps + np.arange(warps)).reshape(-1))
        if stale.stop:
            self.stores[: self._size // self.part * self.part].reshape(-1, self.part)[:, stale] = False

    def meet(self, threads: Lanes, releases: bool = True) -> None:
        """Threads come to a barrier in this memory, which orders what their warps do with what those of others do."""
        self.order.pass_through(np.unique(threads // self.order.unit), releases)

    def pass_fence(self, threads: Lanes) -> None:
        """Threads order what they did so far before the operations that come."""
        self.order.pass_fence(threads // self.order.unit)

    def load(self, access: Access, strong: bool = False) -> list[Lanes]:
        """The bits of every element, by its place in a row.

        Args:
            access: who reads. strong: whether by an instruction that is ordered with atomic ones, as ld.acquire is.

        Raises:
            Violation: an address is misaligned or outside, or another thread wrote the element in this epoch.
        """
        access, span, index = self._located(access)
        self._note_unwritten(access, span, index)
        crew = self.books.gather(access.threads)
        self._require_idle(access)
        if strong or self._was_written(access, span, index):
            self._require_written(access, crew, span, strong)
        else:
            self.books.keep(access, crew, span, self.order.clock, False)
        if strong and not self._apart:
            self.order.pass_through(crew.blocks, releases=False)
        loaded = items(self.cells, access.whole).take(index).view(BITS[access.width])
        return [loaded] if access.count == 1 else [*np.ascontiguousarray(loaded.reshape(-1, access.count).T)]

    def _was_written(self, access: Access, span: Span, index: Lanes) -> bool:
        """Whether the launch has written any of the bytes, and no barrier of all lies between."""
        return self.books.meets(span, True) and bool(items(self.stores, access.whole).take(index).view(np.bool_).any())

    def _require_written(self, access: Access, crew: Crew, span: Span, strong: bool) -> None:
        """Require that what was written to elements comes before they are read."""
        books = self.books.settle(span)
        for at in access.elements():
            wrote, racing = books.writer[at], books.recent(at, crew)
            if strong:
                racing = racing & ~books.atomic[at]
            several, contested = np.full(at.size, SEVERAL), books.contested(at, crew)
            self._require_no_race(access, at, several, contested, ("reads", "wrote at once"))
            within = racing & (wrote // self._threads == crew.blocks) & (not self._apart)
            self._require_no_race(access, at, wrote, within, ("reads", "wrote"), doubtful=True)
            self._require_no_race(access, at, wrote, racing & ~within, ("reads", "wrote"), books.times[0])
            if not strong:
                books.note_reader(at, crew, self.order.clock)
        books.stretch(span, False)

    def store(self, access: Access, values: list[Lanes], strong: bool = False, releases: bool = False) -> None:
        """Write bits, by their places in a row.

        Args:
            access: who writes. values: the bits. strong: as for `load`. releases: what came before (`block_order.py`).

        Raises:
            Violation: as `load`; or another thread has read or written another value there in this epoch.
        """
        access, span, index = self._located(access)
        crew = self.books.gather(access.threads)
        self._require_idle(access, values, strong)
        if strong or not self._store_alone(access, crew, span, index, values):
            self.books.settle(span)
            for at, value in zip(access.elements(), values, strict=True):
                self._contest(access, at, value, crew, strong)
        self._note_stores(access, span, index)
        if strong and not self._apart:
            self.order.pass_through(crew.blocks, releases)

    def _store_alone(self, access: Access, crew: Crew, span: Span, index: Lanes, values: list[Lanes]) -> bool:
        """Write bits where nobody else has been, and keep that; False where one may have been, or threads differ."""
        if self.books.meets(span, False) or self._was_written(access, span, index):
            return False
        bits, cells = np.stack(values, 1), items(self.cells, access.whole)
        before, cells[index] = cells.take(index), bits.view(cells.dtype)[:, 0]
        if (items(self.cells, access.whole).take(index).view(bits.dtype) != bits.reshape(-1)).any():
            cells[index] = before
            return False
        self.books.keep(access, crew, span, self.order.clock, True)
        return True

    def _changes(self, access: Access, at: Lanes, value: Lanes, strong: bool = False) -> Lanes:
        """Where bits differ from what is there, if by a strong operation then where it is of no atomic one."""
        changed = items(self.cells, access.width)[at // access.width] != value
        return changed & ~self.books.atomic[at] if strong and self.books.atomic.size else changed

    def _require_idle(self, access: Access, values: list[Lanes] | None = None, strong: bool = False) -> None:
        """Require that nothing goes on by itself where elements are read, or where `values` change them."""
        words = ("reads", "still copies there") if values is None else ("writes", "still copies or multiplies there")
        for number, at in enumerate(access.elements() if self._ongoing.any else ()):
            who, busy = self._ongoing.find(at, access.threads, values is None)
            if values is not None and busy.any():
                busy &= self._changes(access, at, values[number], strong)
            self._require_no_race(access, at, who, busy, words)

    def begin(self, access: Access, values: list[Lanes] | None = None) -> list[Lanes]:
        """Begin what goes on by itself until `end`: a copy of bits into memory or, without them, reading.

        Returns:
            What is read.

        Raises:
            Violation: as `store` and `load`, by what others did so far.
        """
        loaded = self.load(access) if values is None else []
        if values is not None:
            located, span, _ = self._located(access)
            self._require_idle(located, values)
            if self.books.meets(span, False) or self.books.meets(span, True):
                crew = self.books.settle(span).gather(access.threads)
                for at, value in zip(located.elements(), values, strict=True):
                    self._require_ordered(located, at, crew, self._changes(access, at, value))
        for at in access.elements():
            self._ongoing.add(at, access.threads, values is not None)
        return loaded

    def end(self, access: Access, values: list[Lanes] | None = None) -> None:
        """End what was begun: what was copied is there, and what was read has been read now.

        Raises:
            Violation: as `begin`.
        """
        for at in access.elements():
            self._ongoing.remove(at, values is not None)
        if values is None:
            access, span, _ = self._located(access)
            self.books.keep(access, self.books.gather(access.threads), span, self.order.clock, False)
        else:
            self.store(access, values)

    def _put(self, access: Access, at: Lanes, value: Lanes) -> Lanes:
        """Write bits, and say where another thread of the access has written others to the same element."""
        items(self.cells, access.width)[at // access.width] = value
        self.books.writer[at] = access.threads
        # Of threads that write one element at once the last one stands there now.
        return np.asarray((self.books.writer[at] != access.threads) & self._changes(access, at, value))

    def _contest(self, access: Access, at: Lanes, value: Lanes, crew: Crew, strong: bool) -> None:
        """Write bits; where others do by the same instruction to shared memory, the hardware says who wins."""
        elements, warps, books = at // access.width, access.threads // WARP, self.books
        changed = self._changes(access, at, value, strong)
        wrote, alike = books.writer[at], self._apart & (books.by[at] == hash(access.where))
        contested, words = books.contested(at, crew), ("writes", "wrote at once")
        self._require_no_race(access, at, np.full(at.size, SEVERAL), contested & ~alike & changed, words)
        again = alike & (contested | books.recent(at, crew) & (wrote != access.threads))
        again &= changed | contested
        self._require_ordered(access, at, crew, changed, again)
        if again.any():
            there = items(self.cells, access.width)[elements]
            loses = rank_stores(wrote, elements, there) > rank_stores(access.threads, elements, value)
            value = np.where(again & loses, there, value)
        across = again & ((wrote // WARP != warps) | (books.contest[at] == SEVERAL))
        racing = self._put(access, at, value)
        if not self._apart:
            self._require_no_race(access, at, books.writer[at], racing, ("writes", "writes at once"))
        elif racing.any():
            order = np.argsort(rank_stores(access.threads, elements, value), kind="stable")
            self._put(access.choose(order), at[order], value[order])
        contested = again | np.isin(at, at[racing])
        books.note_writer(access.where, at, crew, self.order.clock, strong, (contested, across))

    def update(self, access: Access, function: Callable[[Lanes, Lanes, int], Lanes], releases: bool) -> list[Lanes]:
        """Change every element by an atomic operation, and give the bits that each thread found, by places in a row.

        Args:
            access: who does it, in the order of its threads. releases: as for `store`.
            function: (bits that are there, which threads of the access, place in the row) -> bits that are to be.

        Raises:
            Violation: an address is misaligned or outside, or another thread touched the element in this epoch by an
                operation that is not atomic.
        """
        access, span, index = self._located(access)
        books, crew = self.books.settle(span), self.books.gather(access.threads)
        cells = items(self.cells, access.width)
        self._note_unwritten(access, span, index)
        before_each = []
        for number, at in enumerate(access.elements()):
            self._require_ordered(access, at, crew, ~books.atomic[at])
            others = books.atomic[at] & (books.writer[at] != access.threads)
            before = np.zeros(at.size, BITS[access.width])
            order = np.argsort(at, kind="stable")
            # How many threads before it touch the same element: those of one rank touch different ones.
            rank = np.arange(at.size) - np.searchsorted(at[order], at[order])
            for turn in range(int(rank.max(initial=-1)) + 1):
                threads = order[rank == turn]
                places = at[threads] // access.width
                before[threads] = cells[places]
                cells[places] = function(before[threads], threads, number)
            self.shared_updates |= bool(others.any() or rank.any())
            books.note_writer(access.where, at, crew, self.order.clock, True)
            before_each.append(before)
        self._note_stores(access, span, index)
        if not self._apart:
            self.order.pass_through(crew.blocks, releases)
        return before_each

    def _require_ordered(
        self, access: Access, at: Lanes, crew: Crew, changed: Lanes, rivals: Lanes | bool = False
    ) -> None:
        """Require that what others did with elements that are written comes before; rivals may have written."""
        books, words = self.books, ("writes", "read")
        racing = books.recent(at, crew) & changed & ~np.asarray(rivals)
        self._require_no_race(access, at, books.writer[at], racing, ("writes", "wrote"), books.times[0])
        within, across = books.readers(at, crew)
        when, reader = books.times[1] if self._apart else None, books.reader[at]
        self._require_no_race(access, at, reader, within & ~across & changed, words, when, not self._apart)
        self._require_no_race(access, at, reader, across & changed, words, books.times[1])

    def _note_unwritten(self, access: Access, span: Span, index: Lanes) -> None:
        if self.unwritten or self._is_whole(span) or items(self.defined, access.whole).take(index).view(np.bool_).all():
            return
        gaps = [(at[i], access.threads[i]) for at in access.elements() for i in np.flatnonzero(~self.defined[at])[:1]]
        for cell, thread in gaps[:1]:
            place = self._place(self._address_of(int(cell)))
            self.unwritten = f"{access.where}: {self._thread(int(thread))} reads {place}"

    def _note_stores(self, access: Access, span: Span, index: Lanes) -> None:
        for marks in (self.stores, self.defined):
            items(marks, access.whole)[index] = items(np.ones(access.whole, bool), access.whole)
        self.books.stretch(span, True)

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
            theirs = np.where(others < 0, others, others // self.order.unit)[some]
            racing[some] = ~self.order.comes_before(theirs, when[at[some]], access.threads[some] // self.order.unit)
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
        return f"thread {number % self._threads} of block {self._number(number // self._threads)}"

    def _number(self, block: int) -> int:
        return block if self._numbers is None else int(self._numbers[block])

    def _place(self, address: int, home: int | None = None) -> str:
        """Where an address is in the part of its block; one that is outside of it, in the part of `home`."""
        home = (address // self.part if home is None else home) if self._apart else 0
        of_block = f" of block {self._number(home)}" if self._apart != self.books.apart else ""
        return f"byte {address - self.part * home} of {self.name} memory{of_block}"

    def _is_whole(self, span: Span) -> bool:
        """Whether all bytes of a span are of one operand without gaps."""
        before = bisect.bisect_right(self._whole, (span[0], self._size)) - 1
        return before >= 0 and self._whole[before][0] <= span[0] and span[1] <= self._whole[before][1]

    def _located(self, access: Access) -> tuple[Access, Span, Lanes]:
        """The access with cells as addresses, their span in the part of a block, and the items of memory they are.

        Raises:
            Violation: an address is misaligned or outside.
        """
        at, whole, end = access.addresses, access.whole, self.part if self._apart else self._size
        if not at.size:
            return access, (0, 0), at
        title = f"{access.where}: {{}} touches {whole} bytes of {self.name} memory"
        if int(np.bitwise_or.reduce(at)) % whole:
            self._require_none(access, at % whole != 0, Code.MISALIGNED, f"{title} at no multiple of {whole}")
        near = at - self._owners(access) * self.part if self._apart else at
        span = int(near.min()), int(near.max()) + whole
        inside = span[0] >= 0 and span[1] <= end
        cells = self._cells_of(at) if inside else at
        title = f"{title} that is no operand's"
        if not inside:
            self._require_none(access, (near < 0) | (near + whole > end), Code.OUT_OF_BOUNDS, title)
        elif not (self._apart or self._is_whole(span)):
            reached = self.allowed[cells] & self.allowed[cells + whole - 1]
            self._require_none(access, ~reached, Code.OUT_OF_BOUNDS, title)
        return access if cells is at else replace(access, addresses=cells), span, cells // whole

    def _require_none(self, access: Access, wrong: Lanes, code: Code, title: str) -> None:
        """Raise a Violation where an access is wrong; the title has a place for the thread."""
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            thread, address = int(access.threads[first]), int(access.addresses[first])
            near = nearest_operand(self._operands, address)
            home = int(self._owners(access)[first]) if self._apart else 0
            raise Violation(code, title.format(self._thread(thread)), [self._place(address, home), *near])

    def _owners(self, access: Access) -> Lanes:
        """The blocks in whose parts of memory an access is."""
        return self.books.gather(access.threads).blocks if access.homes is None else access.homes
