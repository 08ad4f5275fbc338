"""Memory of copies that lies in a file: the system writes it out where memory is short, and other processes read it.

A program's calls write many times what is alive at once. Pages of a file that nobody reads count for no process.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import tempfile
import threading
import weakref
from pathlib import Path

import torch

from ..places.wire import DTYPES

Tensor = torch.Tensor
#: Bytes of a part of the file that is mapped at once, and the bytes of which every tensor begins at a multiple.
_PART, _STEP = 2**26, 64
_READ = [0]


#: Those that are in use.
_OPEN: weakref.WeakSet[MappedMemory] = weakref.WeakSet()


class MappedMemory:
    """The memory of tensors that nobody writes any more.

    Attributes:
        nbytes: of the tensors that are still used.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Args: path: of the file, for other processes; None for one that has no name."""
        self.nbytes = 0
        self._file = tempfile.TemporaryFile() if path is None else path.open("w+b")  # noqa: SIM115
        weakref.finalize(self, self._file.close)  # a file that is left to the collector is warned of
        self._parts: list[mmap.mmap] = []
        self._start = self._end = self._recent = 0
        self._free: dict[int, list[tuple[int, memoryview]]] = {}
        self._starts: dict[int, int] = {}
        self._others: list[Tensor] = []
        self._lock = threading.Lock()
        _OPEN.add(self)

    def copy(self, tensor: Tensor) -> Tensor:
        """A copy of a tensor, with its strides where no two of its elements share memory.

        That of a tensor on another device than the host, or of a dtype that no file has, is a clone.
        """
        count = tensor.numel()
        if not count or tensor.device.type != "cpu" or str(tensor.dtype).removeprefix("torch.") not in DTYPES:
            return tensor.clone()
        start, memory = self._take(count * tensor.itemsize)
        flat = torch.frombuffer(memory, dtype=tensor.dtype, count=count)
        strides = tensor.stride() if tensor.is_contiguous() else torch.empty_like(tensor, device="meta").stride()
        copied = flat.as_strided(tensor.shape, strides)
        if strides != tensor.stride() or tensor.is_conj() or tensor.is_neg():
            return copied.copy_(tensor)
        # To touch a page of the file for the first time costs more than to hand the system what it is to have.
        self._write(start, tensor.as_strided((count,), (1,)).view(torch.uint8).numpy().data)
        return copied

    def place_of(self, tensor: Tensor) -> tuple[int, tuple[int, ...]]:
        """Where the first element of a tensor is in the file, and the strides; one that lies elsewhere is copied."""
        start = self._starts.get(tensor.untyped_storage().data_ptr()) if tensor.device.type == "cpu" else None
        if start is not None:
            return start + int(tensor.storage_offset()) * tensor.itemsize, tensor.stride()
        if not tensor.numel():
            return 0, tensor.stride()
        own = self.copy(tensor.detach().cpu().resolve_conj().resolve_neg().contiguous())
        self._others.append(own)
        return self._starts[own.untyped_storage().data_ptr()], own.stride()

    def _write(self, start: int, content: memoryview) -> None:
        while content:  # The system may take a part of what is large.
            done = os.pwrite(self._file.fileno(), content, start)
            start, content = start + done, content[done:]

    def _take(self, size: int) -> tuple[int, memoryview]:
        size += -size % _STEP
        with self._lock:
            self.nbytes += size
            self._recent += size
            if self._recent > _PART:
                self._recent = 0
                release_memory()
            places = self._free.get(size)
            start, memory = places.pop() if places else self._carve(size)
        # The tensor's storage holds this view of the bytes, and lets it go with its last user.
        view = memory[:]
        weakref.finalize(view, self._give_back, size, start, memory).atexit = False
        return start, view

    def _carve(self, size: int) -> tuple[int, memoryview]:
        if self._start + size > self._end:
            self._map(max(_PART, size + -size % mmap.ALLOCATIONGRANULARITY))
        start, self._start = self._start, self._start + size
        part, begins = self._parts[-1], self._end - len(self._parts[-1])
        memory = memoryview(part)[start - begins : start - begins + size]
        self._starts[torch.frombuffer(memory, dtype=torch.uint8).data_ptr()] = start
        return start, memory

    def release(self) -> None:
        """Leave to the file what was written or read: it is no memory of this process until it is read again."""
        for part in self._parts:
            with contextlib.suppress(AttributeError, OSError):  # not every system takes the advice
                part.madvise(mmap.MADV_DONTNEED)

    def _map(self, size: int) -> None:
        self._start, self._end = self._end, self._end + size
        os.truncate(self._file.fileno(), self._end)
        self._parts.append(mmap.mmap(self._file.fileno(), size, offset=self._start))

    def _give_back(self, size: int, start: int, memory: memoryview) -> None:
        self.nbytes -= size
        self._free.setdefault(size, []).append((start, memory))


def note_read(nbytes: int) -> None:
    """Give memory back where so many bytes of copies have been read since it was given back."""
    _READ[0] += nbytes
    if _READ[0] > _PART:
        _READ[0] = 0
        release_memory()


def release_memory() -> None:
    """Give back to the system what this process does not need now: pages of files, and memory that was freed."""
    for memory in tuple(_OPEN):
        memory.release()
    with contextlib.suppress(AttributeError, OSError):  # of the C library of Linux alone
        ctypes.CDLL(None).malloc_trim(0)
