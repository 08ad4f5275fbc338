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
from collections import deque
from pathlib import Path

import torch

from ...oracles.op.bits import same_bits
from ..places.wire import DTYPES
from .memory_ring import BLOCK, MemoryRing, write_all

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
        self._ring: MemoryRing | None = None
        self._parts: list[mmap.mmap] = []
        self._start = self._end = 0
        self._free: dict[int, deque[tuple[int, memoryview]]] = {}
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
        strides = tensor.stride() if tensor.is_contiguous() else torch.empty_like(tensor, device="meta").stride()
        if strides != tensor.stride() or tensor.is_conj() or tensor.is_neg() or not tensor.data_ptr():
            tensor = torch.empty_like(tensor).copy_(tensor)
        with self._lock:
            start, memory = self._take(tensor.nbytes)
            flat = torch.frombuffer(memory, dtype=tensor.dtype, count=count)
            self._starts[flat.data_ptr()] = start
            if self._ring is not None:
                self._ring.put(start, flat.data_ptr(), tensor.data_ptr(), tensor.nbytes)
            else:
                # To touch a page of the file for the first time costs more than to hand the system what it is to have.
                write_all(self._file.fileno(), start, tensor.data_ptr(), tensor.nbytes)
        return flat.as_strided(tensor.shape, strides)

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

    def _take(self, size: int) -> tuple[int, memoryview]:
        size += -size % _STEP
        self.nbytes += size
        if self._ring is None:
            note_read(size)
        places = self._free.setdefault(size, deque())
        is_free = places and (self._ring is None or places[0][0] + size <= self._ring.start)
        start, memory = places.popleft() if is_free else self._carve(size)
        # The tensor's storage holds this view of the bytes, and lets it go with its last user.
        view = memory[:]
        weakref.finalize(view, self._give_back, size, start, memory).atexit = False
        return start, view

    def _carve(self, size: int) -> tuple[int, memoryview]:
        if self._start + size > self._end:
            part = max(_PART, size + -size % BLOCK)
            self._start, self._end = self._end, self._end + part
            os.truncate(self._file.fileno(), self._end)
            self._parts.append(mmap.mmap(self._file.fileno(), part, offset=self._start))
        start, self._start = self._start, self._start + size
        return start, memoryview(self._parts[-1])[len(self._parts[-1]) - (self._end - start) :][:size]

    def release(self) -> None:
        """Leave to the file what was written or read: it is no memory of this process until it is read again."""
        for part in self._parts:
            with contextlib.suppress(AttributeError, OSError):  # not every system takes the advice
                part.madvise(mmap.MADV_DONTNEED)

    def _give_back(self, size: int, start: int, memory: memoryview) -> None:
        self.nbytes -= size
        self._free.setdefault(size, deque()).append((start, memory))


class TensorCopies(MappedMemory):
    """Copies of tensors as they were at a moment, to which nobody writes; one serves as long as memory has its bits.

    What is hard here: memory is also written by what torch's dispatcher never sees (a kernel of Triton, a pointer that
    an extension was handed), and then no version counter changes. So a copy serves again only where its bits are there.
    """

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(path)
        with contextlib.suppress(AttributeError, OSError):  # of systems that have no such memory, or refuse it
            self._ring = MemoryRing(self._file.fileno())
        self._latest: weakref.WeakValueDictionary[tuple[object, ...], Tensor] = weakref.WeakValueDictionary()

    def copy(self, tensor: Tensor) -> Tensor:
        """A tensor of these values in memory of its own, which nobody writes; a sparse one as a dense one.

        Quantized and nested tensors, which nothing reads, are given as they are.
        """
        tensor = tensor.detach()
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
            return tensor.to_dense() if tensor.layout != torch.strided else tensor
        # A matrix and its transpose are one piece of memory, and have one copy.
        is_dense = tensor.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(tensor)
        flat = tensor.as_strided((tensor.numel(),), (1,)) if is_dense else tensor
        storage = tensor.untyped_storage()._cdata
        key = (storage, tensor.storage_offset(), flat.shape, flat.stride(), tensor.dtype, tensor.is_conj())
        copied = self._latest.get(key)
        if copied is None or not self.has(copied.as_strided(flat.shape, (1,)) if is_dense else copied, flat):
            copied = self._latest[key] = self._compact(tensor)
        elif is_dense and (copied.shape, copied.stride()) != (tensor.shape, tensor.stride()):
            copied = copied.as_strided(tensor.shape, tensor.stride())
        return copied

    def has(self, copied: Tensor, tensor: Tensor) -> bool:
        """Whether a copy has the bits of a tensor; no where only the disk could say it."""
        start = self._starts.get(copied.untyped_storage().data_ptr()) if copied.device.type == "cpu" else None
        is_plain = tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()) and tensor.data_ptr()
        if start is None or self._ring is None or not is_plain:
            return same_bits(copied, tensor)
        return self._ring.has(start, tensor.data_ptr(), tensor.nbytes)

    def flush(self) -> None:
        """Have all copies in the file."""
        with self._lock:
            if self._ring is not None:
                self._ring.flush()

    def _compact(self, tensor: Tensor) -> Tensor:
        """A copy with the strides of the tensor; elements that share memory share it in the copy."""
        once = tensor
        for dim, (stride, size) in enumerate(zip(tensor.stride(), tensor.shape, strict=True)):
            once = once.narrow(dim, 0, 1) if stride == 0 < size else once
        copied = super().copy(once)
        return copied if once is tensor else copied.expand(tensor.shape)


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
