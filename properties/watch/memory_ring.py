"""Memory of the latest blocks of a file, which takes one block after the other.

A page that memory has not had before costs a multiple of what is copied into it, above all in a virtual machine, which
has to get it from its host. So the same few pages are used again, and the disk reads them where they are. A tensor
keeps its address: there the ring is mapped, and the file itself as soon as another block needs the pages.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import time
import weakref
from collections.abc import Iterator

#: Bytes of a block, and how many blocks the ring has.
BLOCK, _SLOTS = 2**23, 8
#: Seconds of a block from which on a disk is slow: then the system keeps what is written, and writes it later.
_PATIENCE = 0.05
_FIXED = 0x10  # MAP_FIXED of Linux: in the place of what is mapped there
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = _LIBC.memcpy.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.memcpy.argtypes = _LIBC.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class MemoryRing:
    """The blocks of a file that were begun last; OSError where the disk has no room for what leaves."""

    def __init__(self, file: int) -> None:
        """Args: file: that can be read and written, and is mapped by whoever writes."""
        self._file = self._direct = file
        self._memory = os.memfd_create("opassay")
        weakref.finalize(self, os.close, self._memory)
        os.truncate(self._memory, _SLOTS * BLOCK)
        self._window = mmap.mmap(self._memory, _SLOTS * BLOCK)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._window))
        with contextlib.suppress(OSError):  # of systems of files that always keep what is written in memory
            direct = os.open(f"/proc/self/fd/{file}", os.O_RDWR | os.O_DIRECT)
            weakref.finalize(self, os.close, direct)
            write_all(direct, 0, self._address, mmap.PAGESIZE)
            self._direct = direct
        # A block, in order: its memory, and where the program has it. Replaced as a whole: Ctrl-C may come at any time.
        self._blocks: dict[int, tuple[int, int]] = {}

    @property
    def start(self) -> int:
        """Of the oldest block in the file; what is before is on the disk, and the ring has nothing of it."""
        return next(iter(self._blocks), 0) * BLOCK

    def put(self, start: int, address: int, source: int, size: int) -> None:
        """Write bytes of memory at `start` of the file, which is mapped at `address`: behind all, or before `start`."""
        for block, place, at, count in _pieces(start, size):
            if block > next(reversed(self._blocks), -1):
                self._begin(block, address + at - place)
            if block in self._blocks:
                _LIBC.memcpy(self._blocks[block][0] + place, source + at, count)
            else:
                write_all(self._file, start + at, source + at, count)

    def has(self, start: int, source: int, size: int) -> bool:
        """Whether the ring has these bytes for `start` of the file."""
        blocks = self._blocks
        return start >= next(iter(blocks), 0) * BLOCK and not any(
            _LIBC.memcmp(blocks[block][0] + place, source + at, count)
            for block, place, at, count in _pieces(start, size)
        )

    def flush(self) -> None:
        """Write the latest block, as far as it is full."""
        for block in list(self._blocks)[-1:]:
            began = time.monotonic()
            write_all(self._direct, block * BLOCK, self._blocks[block][0], BLOCK)
            if time.monotonic() - began > _PATIENCE:
                self._direct = self._file

    def _begin(self, block: int, address: int) -> None:
        """Give the next block memory of the ring, at last that of the oldest."""
        self.flush()
        blocks, memory = dict(self._blocks), self._address + len(self._blocks) * BLOCK
        if len(blocks) == _SLOTS:
            oldest = next(iter(blocks))
            memory, place = blocks.pop(oldest)
            _map(place, self._file, oldest * BLOCK)
        _map(address, self._memory, memory - self._address)
        self._blocks = blocks | {block: (memory, address)}


def _pieces(start: int, size: int) -> Iterator[tuple[int, int, int, int]]:
    """The parts of bytes in blocks: the block, the place in it, the place among the bytes, and how many."""
    for block in range(start // BLOCK, (start + size - 1) // BLOCK + 1):
        begin, end = max(start, block * BLOCK), min(start + size, (block + 1) * BLOCK)
        yield block, begin - block * BLOCK, begin - start, end - begin


def _map(address: int, file: int, start: int) -> None:
    if _LIBC.mmap(address, BLOCK, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | _FIXED, file, start) != address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def write_all(file: int, start: int, address: int, size: int) -> None:
    """Write bytes of memory at a place of a file."""
    content = memoryview((ctypes.c_char * size).from_address(address))
    while content:  # The system may take a part of what is large.
        content = content[os.pwrite(file, content, start + size - len(content)) :]
