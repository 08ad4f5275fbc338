"""What calls leave in memory: what of one call lives on, and whether memory grows with the number of calls."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from ....oracles.judge.judge import Judge
from ....oracles.op.declaration import flat_outputs
from ....oracles.verdicts.verdict import Code
from .truth import Truth

#: Calls of each window. Memory grows with the calls where it grows in every one of these windows, one after the other:
#: what is filled once grows in one of them, and what is of bounded size stops.
WINDOWS = (64, 128, 256)
#: The least that a leak adds per call: of objects, every second call keeps one; of bytes, half a pointer. The smallest
#: thing to keep is a pointer in a list, 8 bytes. A list of m pointers is enlarged by m/8 at once, so that the growth of
#: a window is right but for m bytes: a list with as many pointers as there are calls in four windows shows half of it.
_OBJECTS, _BYTES = 0.5, 4.0


class _Mallinfo(ctypes.Structure):
    """What glibc's mallinfo2 tells, in bytes; malloc's own chunks are `uordblks`, those mapped for it `hblkhd`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


def _reader() -> Callable[[], Any] | None:
    """glibc's account of malloc; None where the C library has none."""
    try:
        found = ctypes.CDLL(None).mallinfo2
    except (OSError, AttributeError):
        return None
    found.restype = _Mallinfo
    return found


_ACCOUNT = _reader()


@contextlib.contextmanager
def set_aside() -> Iterator[None]:
    """Within the block, what is there already is no concern of the garbage collector, which is then fast.

    A collection of a process with torch in it takes a fifth of a second, and there are several of them per sample.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _in_use() -> tuple[int, int]:
    """(objects that Python holds, bytes that malloc holds), without garbage and Python's lists of free objects."""
    gc.collect()
    # Python's cache of methods keeps the names that it was asked for, and torch's C++ makes a new object of a name for
    # every question about a custom function.
    sys._clear_type_cache()
    account = _ACCOUNT() if _ACCOUNT is not None else None
    return sys.getallocatedblocks(), account.uordblks + account.hblkhd if account is not None else 0


def require_no_growth(judge: Judge, call: Callable[[], None], what: str) -> None:
    """Violation where memory grows with the calls, in every one of several windows.

    Args:
        call: what is called. what: what messages call it.
    """
    before = _in_use()
    grown: list[str] = []
    # One window is enough for a subject that keeps nothing.
    for window in WINDOWS:
        for _ in range(window):
            call()
        after = _in_use()
        objects, size = (new - old for new, old in zip(after, before, strict=True))
        if objects < _OBJECTS * window and size < _BYTES * window:
            judge.tally.count(1)
            return
        grown.append(f"{window} calls: {objects:+d} objects of Python, {size:+d} bytes of malloc")
        before = after
    raise judge.broken(Code.MEMORY, "memory grows with the number of calls", grown, where=what)


def require_nothing_kept(judge: Judge, truth: Truth, what: str) -> None:
    """Violation where memory of a call's inputs, outputs or gradients lives on after the caller dropped them."""
    given = truth.copies()
    outputs = flat_outputs(judge.call(judge.subject, *given, what=what))
    grads = truth.derived(judge, given, outputs, what)
    named: list[tuple[str, Any]] = [(judge.op.label(i), a) for i, a in enumerate(given)]
    named += [(f"out[{i}]", y) for i, y in enumerate(outputs)]
    named += [(f"the gradient in {judge.op.label(i)}", g) for i, g in zip(truth.problem.wrt, grads, strict=False)]
    # A storage is asked about, and not a tensor: what is kept may be another tensor of the same memory.
    living = [(name, StorageWeakRef(t.untyped_storage())) for name, t in named if isinstance(t, Tensor) and t.numel()]
    # The gradient of an identity is the cotangent, and the caller keeps that one.
    held = {StorageWeakRef(g.untyped_storage()) for g in truth.cotangents}
    living = [(name, storage) for name, storage in living if storage not in held]
    # Each of these names holds what must not be held.
    del given, outputs, grads, named
    kept = [name for name, storage in living if not storage.expired()]
    if not kept:
        judge.tally.count(len(living))
        return
    gc.collect()
    until = "" if any(not storage.expired() for _, storage in living) else " until garbage is collected"
    raise judge.broken(
        Code.MEMORY, f"keeps the memory of {kept[0]} after the caller dropped it{until}", kept[1:], where=what
    )
