"""The garbage collector, kept from looking again at what lives as long as the process."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def imports_set_aside() -> Iterator[None]:
    """Collect nothing within the block, and nothing of it later: that takes an eighth of the time of a judgement."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()
    _are_imports_aside.cache_clear()


@functools.cache
def _are_imports_aside() -> bool:
    # To count them is to walk through all of them, which takes some milliseconds, so it is done once.
    return gc.get_freeze_count() > 0


@contextlib.contextmanager
def set_aside() -> Iterator[None]:
    """Within the block, the garbage collector ignores all objects that exist at its start, and so does `get_objects`.

    A collection takes a fifth of a second in a process with torch in it. Where the imports are aside for good, what
    exists at the start stays aside, too: to bring it back would bring the imports back with it.
    """
    already = _are_imports_aside()
    gc.freeze()
    try:
        yield
    finally:
        if not already:
            gc.unfreeze()
