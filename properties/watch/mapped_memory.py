"""Memory of copies that lies in a file: the system writes it out where memory is short, and other processes read it.

A program's calls write many times what is alive at once. Pages of the file that nobody reads count for no process.
"""

from __future__ import annotations

import contextlib
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
#: Bytes from which on it costs less to hand them to the system than to touch each page for the first time.
_LARGE = 2**16


class MappedMemory:
    """A file that tensors lie in.

    Attributes:
        nbytes: of the tensors that are still used. path: of the file; None for one that no other process opens.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.nbytes, self.path = 0, path
        self._file = tempfile.TemporaryFile() if path is None else path.open("w+b")  # noqa: SIM115
        self._parts: list[mmap.mmap] = []
        self._start = self._end = self._size = 0
        self._free: dict[int, list[tuple[int, memoryview]]] = {}
        self._starts: dict[int, int] = {}
        self._lock = threading.Lock()

    def copy(self, tensor: Tensor) -> Tensor:
        """A copy of a tensor on the host, with its strides where no two of its elements share memory."""
        count = tensor.numel()
        if not count or tensor.device.type != "cpu" or str(tensor.dtype).removeprefix("torch.") not in DTYPES:
            return tensor.clone()
        start, memory = self._take(count * tensor.itemsize)
        flat = torch.frombuffer(memory, dtype=tensor.dtype, count=count)
        strides = tensor.stride() if tensor.is_contiguous() else torch.empty_like(tensor, device="meta").stride()
        copied = flat.as_strided(tensor.shape, strides)
        if len(memory) < _LARGE or strides != tensor.stride() or tensor.is_conj() or tensor.is_neg():
            return copied.copy_(tensor)
        self._write(start, tensor.as_strided((count,), (1,)).view(torch.uint8).numpy().data)
        return copied

    def start_of(self, tensor: Tensor) -> int:
        """Where the memory of a tensor starts in the file; a tensor that lies elsewhere is copied into it."""
        start = self._starts.get(tensor.untyped_storage().data_ptr()) if tensor.device.type == "cpu" else None
        if start is None:
            flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
            start = self._starts[self.copy(flat).untyped_storage().data_ptr()]
        return start

    def flush(self) -> None:
        """Let other processes see what was written."""
        self._file.flush()

    def _write(self, start: int, content: memoryview) -> None:
        while content:  # The system may take a part of what is large.
            done = os.pwrite(self._file.fileno(), content, start)
            start, content = start + done, content[done:]

    def _take(self, size: int) -> tuple[int, memoryview]:
        size += -size % _STEP
        with self._lock:
            self.nbytes += size
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

    def _map(self, size: int) -> None:
        # What is in earlier parts stays in the file, and is no memory of this process until it is read again.
        for part in self._parts:
            with contextlib.suppress(AttributeError, OSError):  # not every system takes the advice
                part.madvise(mmap.MADV_DONTNEED)
        self._start = self._size
        self._size = self._end = self._start + size
        os.truncate(self._file.fileno(), self._size)
        self._parts.append(mmap.mmap(self._file.fileno(), size, offset=self._start))

    def _give_back(self, size: int, start: int, memory: memoryview) -> None:
        self.nbytes -= size
        self._free.setdefault(size, []).append((start, memory))
