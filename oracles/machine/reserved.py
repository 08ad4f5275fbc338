"""Memory of the size that somebody asks for, of which the system gives a page when it is written, and not before.

What this is for: tensors with more than 2^31 elements, in a process that may have a gigabyte. Of rows that repeat all
repetitions are one memory, so that whoever reads any of them finds numbers there.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch

from ..op.declaration import Tensor

#: Memory is mapped with a promise not to fill it, where the system knows that (MAP_NORESERVE of Linux' mman.h); and
#: shared, because limits of a process count what is its own.
UNFILLED = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | (0x4000 if sys.platform == "linux" else 0)
_FIXED = 0x10
#: A prime.
_LARGEST = 4111


def untouched(count: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
    """Zeros of which pages cost nothing that nobody touches."""
    memory = mmap.mmap(-1, max(count, 1) * dtype.itemsize, flags=UNFILLED)
    return _on_device(torch.frombuffer(memory, dtype=torch.uint8).view(dtype)[:count], torch.device(device))


def _on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The same memory as that of a device: a rehearsed one has its memory on the host."""
    if device.type == "cpu":
        return tensor
    host = tensor.untyped_storage()
    storage: Any = torch._C._construct_storage_from_data_pointer(host.data_ptr(), device, host.nbytes())
    storage.host = host  # whose memory lives as long as the tensors of the device
    return torch.empty(0, dtype=tensor.dtype, device=device).set_(storage, 0, tensor.shape, tensor.stride())


def repeat_rows(rows: Tensor, count: int) -> Tensor:
    """So many rows, of which row i is row i modulo the number of those given.

    Args:
        rows: contiguous; their bytes fill whole pages. count: of the rows that are to be.
    """
    size, row = rows.nbytes, rows.nbytes // len(rows)
    assert size % mmap.PAGESIZE == 0
    assert rows.is_contiguous()
    whole = mmap.mmap(-1, -(-count * row // size) * size, flags=UNFILLED)
    base = ctypes.addressof(ctypes.c_char.from_buffer(whole))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    ways = mmap.MAP_SHARED | _FIXED
    with open(os.memfd_create("rows"), "r+b") as file:
        file.write(rows.reshape(-1).view(torch.uint8).cpu().numpy().tobytes())
        file.flush()
        for start in range(base, base + len(whole), size):
            if libc.mmap(start, size, mmap.PROT_READ | mmap.PROT_WRITE, ways, file.fileno(), 0) != start:
                raise OSError(ctypes.get_errno(), "mapping rows again")
    tensor = torch.frombuffer(whole, dtype=torch.uint8)[: count * row].view(rows.dtype)
    return _on_device(tensor.view(count, *rows.shape[1:]), rows.device)


def rows_in_pages(sizes: Sequence[int], most: int) -> int:
    """How many rows of so many bytes each fill whole pages, in `most` bytes if more than a few rows fit there.

    They are a multiple of an odd prime: no power of two, at which indices of 32 bits end, is a multiple of them.
    """
    pages = max(mmap.PAGESIZE // min(size & -size, mmap.PAGESIZE) for size in sizes)
    times = min(max(most // (pages * max(sizes)), 3), _LARGEST)
    return pages * next(n for n in range(times, 2, -1) if all(n % k for k in range(2, int(n**0.5) + 1)))
