"""Global memory of any size, whose cells and books exist a page at a time, as soon as a thread touches the page.

What this is for: books of who touched what take sixty bytes for each byte. Of operands with 2^31 elements, or of rows
that lie as far apart, a launch touches little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...verdicts.violation import Code, Unsupported
from .books import TOO_MUCH, extended
from .extents import Extent
from .formats import Lanes
from .space import Space

#: Bytes of a page, and how many of them memory begins with and has at most.
PAGE, _FIRST, _MOST = 1024, 64, 3 << 13
#: A launch that touches more than one page in so many has room for all; before that, its room grows by this factor.
_SHARE = 4


@dataclass(frozen=True)
class StorageRegion:
    """A storage in memory.

    Attributes:
        place: its first byte. content: its bytes, as they were before the launch.
        known: (numbers of its pages) -> which of their bytes were ever written; None for all.
    """

    place: int
    content: Any
    known: Any = None

    @property
    def pages(self) -> tuple[int, int]:
        """Its first page, and that behind its last one."""
        return self.place // PAGE, -(-(self.place + self.content.size) // PAGE)

    def cut(self, page: int) -> tuple[slice, slice]:
        """Which of a page's bytes are of this storage, and which bytes of the storage these are."""
        first = page * PAGE - self.place
        low, high = max(first, 0), min(first + PAGE, self.content.size)
        return slice(low - first, high - first), slice(low, high)


class SparseSpace(Space):
    """Global memory with these storages, at increasing places.

    Args:
        regions: what is in it. extents: what addresses may reach. size: bytes, with what has no storage.
        blocks, threads, poison: as for `Space`.
    """

    def __init__(
        self,
        regions: Sequence[StorageRegion],
        extents: Sequence[Extent],
        size: int,
        blocks: int,
        threads: int,
        poison: int,
    ) -> None:
        super().__init__("global", PAGE * _FIRST - 16, blocks, threads, poison=poison, apart=False)
        self._size, self._regions, self._extents, self._poison = size, regions, extents, poison
        self._operands = [(each.first, each.behind, each.name) for each in extents if each.count]
        bounds = np.array([each.pages for each in regions], np.int64).reshape(-1, 2)
        self._first, self._behind = bounds[:, 0], bounds[:, 1]
        lengths = self._behind - self._first
        #: The number of a page in this table is one more than that of all pages of storages before it.
        self._offsets = np.r_[1 + np.cumsum(lengths) - lengths - self._first, 0]
        # Of the table memory takes only what is looked up, too; slot 0 belongs to nobody.
        self._slots = np.zeros(1 + int(lengths.sum()), np.int32)
        self._pages, self._homes = [0], [0]
        self.books.starts = sorted(each.first for each in extents)
        if all(each.known is None for each in regions):
            self._whole = sorted((each.first, each.behind) for each in extents if each.count and each.is_dense)

    def _cells_of(self, at: Lanes) -> Lanes:
        pages = np.asarray(at) // PAGE
        home = np.searchsorted(self._behind, pages, "right")
        inside = pages >= np.r_[self._first, np.iinfo(np.int64).max][home]
        number = np.where(inside, pages + self._offsets[home], 0)
        slots = self._slots[number]
        missing = inside & (slots == 0)
        if missing.any():
            fresh, where = np.unique(number[missing], return_index=True)
            self._open(fresh, pages[missing][where], home[missing][where])
            slots = self._slots[number]
        return slots.astype(np.int64) * PAGE + at % PAGE

    def _address_of(self, cell: int) -> int:
        return self._pages[cell // PAGE] * PAGE + cell % PAGE

    def _open(self, numbers: Lanes, pages: Lanes, homes: Lanes) -> None:
        """Give pages cells, as they were before the launch."""
        first = len(self._pages)
        if first + numbers.size > _MOST:
            raise Unsupported(Code.OPCODE, f"a launch that {TOO_MUCH}: {_MOST} pages of {PAGE} bytes")
        if (first + numbers.size) * PAGE > self.cells.size:
            # Most launches touch all of their operands, and each extension fills memory that nobody has touched yet.
            need, whole = (first + numbers.size) * PAGE, min(self._slots.size, _MOST) * PAGE
            self._extend(whole if need > whole // _SHARE else max(_SHARE * self.cells.size, need))
        self._slots[numbers] = np.arange(first, first + numbers.size)
        self._pages += pages.tolist()
        self._homes += homes.tolist()
        cells = slice(first * PAGE, (first + numbers.size) * PAGE)
        addresses = np.add.outer(pages * PAGE, np.arange(PAGE)).reshape(-1)
        allowed = np.zeros(addresses.size, bool)
        for extent in self._extents:
            allowed |= extent.holds(addresses)
        self.allowed[cells] = self.defined[cells] = allowed
        for i, (page, home) in enumerate(zip(pages.tolist(), homes.tolist(), strict=True), first):
            region = self._regions[home]
            inside, own = region.cut(page)
            self.cells[i * PAGE : (i + 1) * PAGE][inside] = region.content[own]
            if region.known is not None:
                self.defined[i * PAGE : (i + 1) * PAGE] &= region.known(page - region.pages[0])

    def _extend(self, count: int) -> None:
        """Have so many cells."""
        self.cells = extended(self.cells, count, self._poison)
        self.allowed, self.defined = extended(self.allowed, count, False), extended(self.defined, count, False)
        self.stores = extended(self.stores, count, False)
        self.books.extend(count)

    def touched(self, home: int) -> Iterator[tuple[int, slice]]:
        """The pages of a storage that a thread has touched: of each its number there, and its cells."""
        for slot in range(1, len(self._pages)):
            if self._homes[slot] == home:
                yield self._pages[slot] - self._regions[home].pages[0], slice(slot * PAGE, (slot + 1) * PAGE)

    def changes(self) -> dict[int, bytes]:
        """What the launch changed: pages, by their numbers."""
        changed = {}
        for slot in range(1, len(self._pages)):
            cells, region = self.cells[slot * PAGE : (slot + 1) * PAGE], self._regions[self._homes[slot]]
            inside, own = region.cut(self._pages[slot])
            if (cells[inside] != region.content[own]).any():
                changed[self._pages[slot]] = cells[inside].tobytes()
        return changed

    def write_back(self) -> None:
        """Leave what the launch changed in the storages."""
        for slot in np.flatnonzero(self.stores[: len(self._pages) * PAGE].reshape(-1, PAGE).any(1)).tolist():
            inside, own = self._regions[self._homes[slot]].cut(self._pages[slot])
            self._regions[self._homes[slot]].content[own] = self.cells[slot * PAGE : (slot + 1) * PAGE][inside]
