"""The memory of one launch: copies of the operands between guard bands, and a book of who touches which byte.

What this is for: an interpreter of kernels runs one program after another, so a race that goes wrong on a GPU goes
right there. Here every address is looked up before it is read or written, and the program that does so is booked. Two
programs that write one byte race; so do one that writes and one that reads it, whatever the order in which they ran.

What is hard here: a kernel knows addresses, not tensors. An address belongs to the operand in whose span it lies; the
bytes between operands belong to no operand, and neither do the gaps of a strided view's storage. And a program has many
loads and stores, each of which is checked: most of them take neighbours in order, so that their ends decide.
"""

from __future__ import annotations

import bisect
import ctypes
import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ..op.declaration import Tensor
from ..verdicts.violation import Code, Violation

#: Bytes on both sides of every operand. A kernel that is wrong by a block lands here, and not in Python's own memory.
GUARD = 1 << 16
#: Every byte of the guard bands: read as a number of any floating dtype, they are NaN.
_CANARY = 0xFF
_NOBODY = -1


@dataclass
class Traffic:
    """Bytes that one launch moves, as booked.

    Attributes:
        loaded, stored: bytes that come from memory, and that go to it. A byte that one program touches again counts
            again; a byte that several programs read counts once, because the GPU's L2 cache serves the others.
        touched: bytes of all loads and stores of all programs.
    """

    loaded: int = 0
    stored: int = 0
    touched: int = 0


@dataclass(eq=False)  # compared by identity, because two operands may have equal bytes
class _Region:
    """One storage: its copy between guard bands, and the accesses to its bytes.

    Attributes:
        start: the address of the storage's first byte in `buffer`.
        allowed: whether a byte belongs to an operand. dense: whether every byte does.
        writer: the program that wrote the item beginning at a byte. reader: one that read it, -2 for several.
        loads, stores: of the item beginning at a byte, by the program that did so most often.
        touched: bytes of all loads and stores.
    """

    buffer: Any
    start: int
    size: int
    allowed: Any
    writer: Any
    reader: Any
    loads: Any
    stores: Any
    dense: bool = False
    touched: int = 0


_SEVERAL = -2


@dataclass
class _Program:
    """The accesses of the running program since it began: byte offsets, by region."""

    loads: list[list[Any]] = field(default_factory=list)
    stores: list[list[Any]] = field(default_factory=list)
    #: Stores since the last barrier, which the other threads of this program may not see yet.
    fresh: list[list[Any]] = field(default_factory=list)


class Memory:
    """The operands of one launch.

    Args:
        kernel: its name, for messages. operands: tensors on the CPU.
    """

    def __init__(self, kernel: str, operands: list[Tensor]) -> None:
        self._kernel = kernel
        self._regions: list[_Region] = []
        self._storages: dict[int, int] = {}
        for operand in operands:
            self._take(operand)
        for region in self._regions:
            region.dense = bool(region.allowed.all())
        self._order = sorted(range(len(self._regions)), key=lambda index: self._regions[index].start)
        self._starts = [self._regions[index].start for index in self._order]
        self._number = _NOBODY
        self._program = _Program()
        self._item: dict[int, int] = {}

    def _take(self, operand: Tensor) -> None:
        storage = operand.untyped_storage()
        key = storage.data_ptr()
        if key not in self._storages:
            size = storage.nbytes()
            raw = np.full(size + 2 * GUARD + 64, _CANARY, dtype=np.uint8)
            # A copy has the alignment of its storage modulo 16 bytes, on which the width of a kernel's loads depends.
            offset = GUARD + (-(raw.ctypes.data + GUARD)) % 64 + key % 16
            inside = raw[offset : offset + size]
            inside[:] = bytes_of(storage)
            nothing = np.full(size, _NOBODY, dtype=np.int32)
            self._storages[key] = len(self._regions)
            self._regions.append(
                _Region(
                    raw, raw.ctypes.data + offset, size, np.zeros(size, dtype=bool), nothing, nothing.copy(),
                    np.zeros(size, dtype=np.int32), np.zeros(size, dtype=np.int32),
                )
            )  # fmt: skip
        region = self._regions[self._storages[key]]
        for first, last in runs_of(operand):
            region.allowed[first:last] = True

    def address(self, operand: Tensor) -> int:
        """Where an operand's first element is."""
        storage = operand.untyped_storage()
        region = self._regions[self._storages[storage.data_ptr()]]
        return region.start + int(operand.storage_offset()) * operand.element_size()

    def begin(self, number: int) -> None:
        """Begin a program: all accesses from now on are booked to its number."""
        self._number = number
        self._program = _Program(*([[] for _ in self._regions] for _ in range(3)))

    def end(self) -> None:
        """Book the accesses of the program.

        Raises:
            Violation: the program touched a byte that another one has written, or wrote one that another has read.
        """
        for region, loads, stores in zip(self._regions, self._program.loads, self._program.stores, strict=True):
            load_offsets, load_counts = _distinct(loads)
            store_offsets, store_counts = _distinct(stores)
            load_part, store_part = _as_slice(load_offsets), _as_slice(store_offsets)
            self._require_untouched(region.writer[store_part], "writes", "write", region, store_offsets)
            self._require_untouched(region.writer[load_part], "writes", "read", region, load_offsets)
            self._require_untouched(region.reader[store_part], "read", "write", region, store_offsets)
            region.writer[store_part] = self._number
            region.reader[load_part] = np.where(region.reader[load_part] == _NOBODY, self._number, _SEVERAL)
            region.loads[load_part] = np.maximum(region.loads[load_part], load_counts)
            region.stores[store_part] = np.maximum(region.stores[store_part], store_counts)

    def _require_untouched(self, others: Any, did: str, verb: str, region: _Region, offsets: Any) -> None:
        """Raises a Violation where another program touched one of the bytes before.

        Args:
            others: for each byte the other program, or `_NOBODY`. did, verb: the access of the other program, and of
                this one, in words. region, offsets: of the bytes.
        """
        if (others != _NOBODY).any():
            places = offsets[others != _NOBODY]
            other = int(others[others != _NOBODY][0])
            who = "several programs" if other == _SEVERAL else f"program {other}"
            raise self._race(f"{who} and program {self._number}: the first {did}", verb, region, places)

    def _race(self, who: str, verb: str, region: _Region, places: Any) -> Violation:
        where = f"bytes {', '.join(str(int(b)) for b in places[:4])} of operand storage {self._regions.index(region)}"
        title = f"{self._kernel}: race between programs that no order decides"
        return Violation(Code.RACE, title, [f"{who} and the second {verb}s {where}", f"{places.size} items in all"])

    def load(self, addresses: Any, item: int) -> None:
        """Book a load.

        Args:
            addresses: of the items. item: bytes of one item.

        Raises:
            Violation: an address is outside of every operand, or written since the last barrier.
        """
        for index, offsets in self._located(addresses, item, "loads"):
            fresh = self._program.fresh[index]
            if fresh and np.isin(offsets, np.concatenate(fresh)).any():
                title = (
                    f"{self._kernel}: program {self._number} loads what its threads stored, without a barrier between"
                )
                raise Violation(Code.RACE, title)
            self._program.loads[index].append(offsets)
            self._book(index, offsets, item)

    def store(self, addresses: Any, item: int) -> None:
        """Book a store; errors as for `load`, and where one store writes an item twice."""
        for index, offsets in self._located(addresses, item, "stores"):
            if not _increases(offsets) and np.unique(offsets).size != offsets.size:
                title = f"{self._kernel}: two threads of program {self._number} write one address in one store"
                raise Violation(Code.RACE, title)
            self._program.stores[index].append(offsets)
            self._program.fresh[index].append(offsets)
            self._book(index, offsets, item)

    def _book(self, index: int, offsets: Any, item: int) -> None:
        self._item[index] = item
        self._regions[index].touched += item * int(offsets.size)

    def barrier(self) -> None:
        """A barrier: from now on every thread of the program sees all earlier stores."""
        self._program.fresh = [[] for _ in self._regions]

    def _located(self, addresses: Any, item: int, verb: str) -> list[tuple[int, Any]]:
        flat = np.ravel(addresses).view(np.int64)
        if not flat.size:
            return []
        lowest, highest = int(flat.min()), int(flat.max())
        # Most loads and stores stay in one storage; those of programs with tables of pointers do not.
        if self._region_of(lowest) == self._region_of(highest):
            return [self._inside(self._region_of(lowest), flat, lowest, highest, item, verb)]
        positions = np.searchsorted(np.array(self._starts), flat, side="right") - 1
        parts = [(max(int(position), 0), flat[positions == position]) for position in np.unique(positions)]
        return [
            self._inside(self._order[position], some, int(some.min()), int(some.max()), item, verb)
            for position, some in parts
        ]

    def _region_of(self, address: int) -> int:
        """The index of the last region that begins at an address or before it; that of the first one before all."""
        return self._order[max(bisect.bisect_right(self._starts, address) - 1, 0)]

    def _inside(self, index: int, flat: Any, lowest: int, highest: int, item: int, verb: str) -> tuple[int, Any]:
        """The region's index, and the offsets of addresses in it; a Violation where one is outside of every operand.

        Args:
            index: of the region. flat: the addresses. lowest, highest: of them.
            item, verb: for the message.
        """
        region = self._regions[index]
        offsets = flat - region.start
        spans = lowest >= region.start and highest + item <= region.start + region.size
        if spans and (region.dense or region.allowed[offsets].all()):
            return index, offsets
        inside = (offsets >= 0) & (offsets + item <= region.size)
        inside[inside] = region.allowed[offsets[inside]]
        raise Violation(
            Code.OUT_OF_BOUNDS, f"{self._kernel}: program {self._number} {verb} outside of every operand",
            [f"at byte {int(offsets[~inside][0])} from the start of a storage of {region.size} bytes",
             f"{item} bytes an item"],
        )  # fmt: skip

    def copy_back(self, operands: list[Tensor]) -> None:
        """The operands as the launch left them.

        Raises:
            Violation: a guard band was written.
        """
        for operand in operands:
            storage = operand.untyped_storage()
            region = self._regions[self._storages[storage.data_ptr()]]
            offset = region.start - region.buffer.ctypes.data
            bands = region.buffer[:offset], region.buffer[offset + region.size :]
            if any((band != _CANARY).any() for band in bands):
                raise Violation(Code.OUT_OF_BOUNDS, f"{self._kernel}: wrote around an operand")
            bytes_of(storage)[:] = region.buffer[offset : offset + region.size]

    def traffic(self) -> Traffic:
        """The bytes that the launch moved."""
        moved = Traffic()
        for index, region in enumerate(self._regions):
            item = self._item.get(index, 0)
            moved.loaded += item * int(region.loads.sum())
            moved.stored += item * int(region.stores.sum())
            moved.touched += region.touched
        return moved


def bytes_of(storage: torch.UntypedStorage) -> Any:
    """The bytes of a storage in the memory of this process, whatever its device is; no mode of torch sees it."""
    if storage.nbytes() == 0:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr()))


def runs_of(operand: Tensor) -> list[tuple[int, int]]:
    """First and last byte of the memory that an operand's elements take, as few runs."""
    item = operand.element_size()
    start = int(operand.storage_offset()) * item
    if operand.numel() == 0:
        return []
    if operand.is_contiguous():
        return [(start, start + operand.numel() * item)]
    axes = [np.arange(int(n)) * int(s) for n, s in zip(operand.shape, operand.stride(), strict=True)]
    offsets = np.unique(functools.reduce(np.add.outer, axes)) * item + start
    return [(int(o), int(o) + item) for o in offsets]


def _distinct(offsets: list[Any]) -> tuple[Any, Any]:
    """The offsets in increasing order, each once, and how often each is there."""
    if not offsets:
        return _NOTHING, _NOTHING
    if len(offsets) == 1 and _increases(offsets[0]):
        return offsets[0], 1
    return np.unique(np.concatenate(offsets), return_counts=True)


_NOTHING = np.zeros(0, dtype=np.int64)


def _increases(offsets: Any) -> bool:
    return bool((offsets[1:] > offsets[:-1]).all())


def _as_slice(offsets: Any) -> Any:
    """Increasing offsets as a slice, where they are equally far apart: numpy indexes by it in a tenth of the time."""
    if offsets.size < 2:
        return offsets
    first, step, last = int(offsets[0]), int(offsets[1] - offsets[0]), int(offsets[-1])
    if last - first != step * (offsets.size - 1) or (offsets[1:] - offsets[:-1] != step).any():
        return offsets
    return slice(first, last + 1, step)


@dataclass
class Book:
    """The numbers of launches, and the bytes that they moved, by kernel."""

    launches: Counter[str] = field(default_factory=Counter)
    moved: dict[str, Traffic] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The bytes that all launches loaded and stored."""
        return sum(moved.loaded + moved.stored for moved in self.moved.values())

    def add(self, kernel: str, traffic: Traffic) -> None:
        self.launches[kernel] += 1
        whole = self.moved.setdefault(kernel, Traffic())
        whole.loaded += traffic.loaded
        whole.stored += traffic.stored
        whole.touched += traffic.touched


def poisoned_tensor(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of NaN, or of the lowest integers, so that an element that no kernel writes is seen."""
    poison = float("nan") if dtype.is_floating_point else torch.iinfo(dtype).min
    return torch.full(tuple(shape), poison, dtype=dtype, device=device)
