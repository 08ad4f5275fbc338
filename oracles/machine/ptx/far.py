"""Calls with operands beyond 2^31 elements, of whose launches some blocks run: at both ends and where indices wrap.

What is hard here: what blocks that do not run would have written is there for nobody. So of each storage it is known
which bytes which launch has written; what reads others, or depends on how many blocks there were, has no verdict. A row
of an output is one to compare where every launch that wrote to its storage has written all of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...op.declaration import Tensor
from ...verdicts.violation import Code, Unsupported
from .extents import Extent
from .formats import Lanes
from .sparse import PAGE, SparseSpace

#: Where indices of 32 bits end, of elements and of bytes.
ENDS = (2**31, 2**32)
#: Launches of so many blocks run as a whole. Of others so many threads do, and so many blocks on each side of a place.
_ALL, _THREADS, _AROUND = 256, 2**15, 32
#: Bytes between operands: an index that wraps reaches no other one.
GUARD = 1 << 36
#: Rows that may be compared, elements of them and of the inputs, and rows however long they are.
_ROWS, _READ, _LEAST = 48, 2**18, 3


def refusal(why: str) -> Unsupported:
    """The exception about a call that cannot be judged by some of its blocks."""
    return Unsupported(Code.OPCODE, why)


def choose_blocks(grid: tuple[int, int, int], threads: int, extents: Sequence[Extent]) -> Lanes | None:
    """The numbers of the blocks that run, in increasing order; None for all.

    Args:
        grid, threads: of the launch, and of a block.
        extents: of its operands: a block is as far along an axis as what it is thought to touch.
    """
    if math.prod(grid) <= _ALL:
        return None
    shares = {0.0, 1.0}
    for extent in extents:
        size = extent.behind - extent.first
        shares |= {end / unit for unit in (size, size // extent.item) for end in ENDS if end < unit}
    around = _AROUND
    axes = [_picks(n, shares, around) for n in grid]
    while around > 1 and math.prod(map(len, axes)) * threads > _THREADS:
        around //= 2
        axes = [_picks(n, shares, around) for n in grid]
    width, height, _ = grid
    x, y, z = np.meshgrid(*axes, indexing="ij")
    return np.sort(np.ravel(x + width * (y + height * z)))


def _picks(count: int, shares: set[float], around: int) -> Lanes:
    """Indices along an axis next to shares of it; of a short one all."""
    if count <= 16:
        return np.arange(count)
    middles = [min(round(share * count), count) for share in shares]
    near = np.unique(np.concatenate([np.arange(middle - around, middle + around) for middle in middles]))
    return near[(near >= 0) & (near < count)]


@dataclass
class FarCall:
    """What is known of the launches of one call.

    Attributes:
        deadline: on the clock of the process, when no more is executed.
        fresh: storages that the call allocated and nobody has written. homes: what keeps their addresses theirs.
        stores: of each storage that some blocks have written, by launch: the bytes that it wrote, by page.
        partial: whether blocks did not run.
        wraps: where indices wrapped on the way to an address, in lines.
    """

    deadline: float
    fresh: set[int] = field(default_factory=set)
    homes: list[Any] = field(default_factory=list)
    stores: dict[int, list[dict[int, Lanes]]] = field(default_factory=dict)
    partial: bool = False
    wraps: list[str] = field(default_factory=list)

    def known(self, storage: int) -> Callable[[int], Lanes] | None:
        """Which bytes of a page of a storage were written, by all who wrote there; None where all are known."""
        nothing = np.zeros(PAGE, bool)
        if storage in self.fresh:
            return lambda page: nothing
        if storage not in self.stores:
            return None
        launches = self.stores[storage]
        return lambda page: functools.reduce(np.logical_and, [each.get(page, nothing) for each in launches])

    def note(self, storage: int, memory: SparseSpace, home: int, whole: bool) -> None:
        """A launch is over, which had a storage as operand.

        Args:
            home: the number of the storage in the launch's memory. whole: whether all of its blocks ran.

        Raises:
            Unsupported: blocks ran, and none of them touched what others wrote before.
        """
        touched = dict(memory.touched(home))
        stores = {page: memory.stores[cells].copy() for page, cells in touched.items() if memory.stores[cells].any()}
        if storage in self.stores and not whole and not touched:
            raise refusal("the blocks that were chosen touch nothing of what an earlier kernel wrote")
        if stores and (not whole or storage in self.fresh or storage in self.stores):
            self.stores.setdefault(storage, []).append(stores)
            self.fresh.discard(storage)

    def is_partial(self, tensor: Tensor) -> bool:
        """Whether a tensor has elements that would have been written by blocks that did not run."""
        storage = tensor.untyped_storage().data_ptr()
        return self.partial and (storage in self.stores or storage in self.fresh)

    def rows_of(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor] = ()) -> list[int]:
        """Rows of the outputs, along axis 0, all elements of which were written: at most so many as can be compared."""
        if not outputs or any(not y.ndim or not y.numel() for y in outputs):
            return []
        read = sum(t.numel() // len(t) for t in (*outputs, *inputs) if t.ndim and len(t) == len(outputs[0]))
        rows: list[int] | None = None
        for y in sorted(outputs, key=lambda y: y.numel()):
            if rows is None:
                rows = _spread(self._candidates(y), min(_ROWS, max(_READ // read, _LEAST)))
            rows = [row for row in rows if self._is_whole(y, row)]
        return rows or []

    def _candidates(self, output: Tensor) -> Lanes:
        """Rows of which a byte was written."""
        storage = output.untyped_storage().data_ptr()
        known = self.known(storage)
        if known is None or storage in self.fresh:
            return np.arange(0)
        pages = set.intersection(*({*each} for each in self.stores[storage]))
        extent, shift = Extent.of(output), storage % 16
        places = [np.flatnonzero(known(page)) + page * PAGE - shift for page in sorted(pages)]
        return np.unique(extent.index(np.concatenate([*places, np.zeros(0, np.int64)]), 0))

    def _is_whole(self, output: Tensor, row: int) -> bool:
        storage = output.untyped_storage().data_ptr()
        known, extent = self.known(storage), Extent.of(output)
        if known is None:
            return True
        first = extent.places(row) + storage % 16
        both = np.concatenate([first, first + extent.item - 1])
        return all(bool(known(page)[some].all()) for page, some in _by_page(both))


def _by_page(at: Lanes) -> Iterator[tuple[int, Lanes]]:
    """Bytes by their pages: the number of each, and where they are in it."""
    pages, order = at // PAGE, np.argsort(at // PAGE, kind="stable")
    numbers, starts = np.unique(pages[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(at[order] % PAGE, starts[1:]), strict=True)


def _spread(rows: Lanes, most: int) -> list[int]:
    """At most so many rows, as evenly among them as may be, and both ends of each stretch as far as there is room."""
    if rows.size <= most:
        return [int(row) for row in rows]
    breaks = np.flatnonzero(np.diff(rows) != 1)
    ends = rows[np.unique(np.r_[0, breaks, breaks + 1, rows.size - 1])]
    if ends.size >= most:
        return [int(row) for row in ends[np.linspace(0, ends.size - 1, most).astype(int)]]
    even = rows[np.linspace(0, rows.size - 1, most - ends.size).astype(int)]
    return [int(row) for row in np.unique(np.r_[ends, even])]
