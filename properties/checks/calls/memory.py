"""Memory after calls: whether tensors of one call live on, and whether memory grows with the number of calls."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from ....oracles.judge.judge import Judge
from ....oracles.op.declaration import flat_outputs
from ....oracles.verdicts.verdict import Code
from .truth import Truth

#: Calls of each window. Memory counts as growing with the calls where it grows in each of these consecutive windows: a
#: cache that is filled once grows in one of them, and a cache of bounded size stops growing.
WINDOWS = (64, 128, 256)
#: The least growth per call that is a leak: half an object, or 4 bytes, which is half a pointer. The smallest thing to
#: keep is a pointer in a list, 8 bytes. A list of m pointers is enlarged by m/8 of them at once, so the growth of a
#: window is measured with an error of up to m bytes; with m as large as four windows, half of the growth shows.
_OBJECTS, _BYTES = 0.5, 4.0


class _Mallinfo(ctypes.Structure):
    """The result of glibc's mallinfo2, in bytes; malloc's own chunks are `uordblks`, those mapped for it `hblkhd`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


def _reader() -> Callable[[], Any] | None:
    """glibc's account of malloc; None where the C library has none."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    mallinfo.restype = _Mallinfo
    return mallinfo


_ACCOUNT = _reader()


def _on_gpus() -> int:
    """Bytes of the tensors on all GPUs, by torch's allocator."""
    total = 0
    for device in range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0):
        torch.cuda.synchronize(device)  # what waits to be done takes memory of the host
        total += torch.cuda.memory_allocated(device)
    return total


def _in_use() -> tuple[int, int, int]:
    """(Python's objects, bytes of malloc, bytes on GPUs), without garbage and Python's lists of free objects."""
    gc.collect()
    on_gpus = _on_gpus()
    # Python's cache of methods keeps the names that it was asked for, and torch's C++ makes a new object of a name for
    # every question about a custom function.
    sys._clear_type_cache()
    account = _ACCOUNT() if _ACCOUNT is not None else None
    return sys.getallocatedblocks(), account.uordblks + account.hblkhd if account is not None else 0, on_gpus


def require_no_growth(judge: Judge, call: Callable[[], None], what: str) -> None:
    """Violation where memory grows with the calls, in every one of several windows."""
    before = _in_use()
    grown: list[str] = []
    # One window is enough for a subject that keeps nothing.
    for window in WINDOWS:
        for _ in range(window):
            call()
        after = _in_use()
        objects, size, on_gpus = (new - old for new, old in zip(after, before, strict=True))
        if objects < _OBJECTS * window and max(size, on_gpus) < _BYTES * window:
            judge.tally.count(1)
            return
        counted = f"{objects:+d} objects of Python, {size:+d} bytes of malloc, {on_gpus:+d} bytes on GPUs"
        grown.append(f"{window} calls: {counted}")
        before = after
    raise judge.violation(Code.MEMORY, "memory grows with the number of calls", grown, where=what)


def settle_autograd(device: str) -> None:
    """Wait until autograd has let go the tensors of the last backward pass over a device.

    Passes over a GPU end in a thread of its own, which still holds the gradients when the caller has them. It does one
    after the other, so it holds nothing of the last one when another has gone through it.
    """
    if device != "cpu":
        x = torch.zeros((), device=device, requires_grad=True)
        torch.autograd.grad(2 * x, x)


def require_release(judge: Judge, truth: Truth, what: str) -> None:
    """Violation where memory of a call's inputs, outputs or gradients is alive after the caller dropped them."""
    arguments = truth.copies()
    outputs = flat_outputs(judge.call(judge.subject, *arguments, what=what))
    grads = truth.differentiate(judge, arguments, outputs, what)
    named: list[tuple[str, Any]] = [(judge.op.label(i), a) for i, a in enumerate(arguments)]
    named += [(f"out[{i}]", y) for i, y in enumerate(outputs)]
    named += [(f"the gradient in {judge.op.label(i)}", g) for i, g in zip(truth.problem.wrt, grads, strict=False)]
    # Storages are watched, and not tensors, because the op may keep another tensor of the same memory.
    living = [(name, StorageWeakRef(t.untyped_storage())) for name, t in named if isinstance(t, Tensor) and t.numel()]
    # The gradient of an identity is the cotangent, and the caller keeps that one.
    cotangents = {StorageWeakRef(g.untyped_storage()) for g in truth.cotangents}
    living = [(name, storage) for name, storage in living if storage not in cotangents]
    # Each of these variables holds tensors that nothing but the op may still hold below.
    del arguments, outputs, grads, named
    settle_autograd(judge.device)
    leaks = [name for name, storage in living if not storage.expired()]
    if not leaks:
        judge.tally.count(len(living))
        return
    gc.collect()
    until = "" if any(not storage.expired() for _, storage in living) else " until garbage is collected"
    raise judge.violation(
        Code.MEMORY, f"keeps the memory of {leaks[0]} after the caller dropped it{until}", leaks[1:], where=what
    )
