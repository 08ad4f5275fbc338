"""What torch does for its own logs alone, left out; some are hundreds of lines beside what a verdict tells in one."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

#: The log of calls that fail on tensors without memory; a verdict has the error, where there is one.
FAKE_TENSORS = "torch._subclasses.fake_tensor"


@contextlib.contextmanager
def silent(name: str) -> Iterator[None]:
    """Without what one logger says; afterwards it is as it was.

    Args:
        name: of the logger, as `logging.getLogger` takes it.
    """
    log = logging.getLogger(name)
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


@contextlib.contextmanager
def without_measuring_guards() -> Iterator[None]:
    """Dynamo flushes the processor's caches to measure each guard for its log, which takes a third of a compilation."""
    from torch._dynamo import guards  # here, because the import takes more than a second

    name = "profile_guard_manager"
    measure = getattr(guards, name, None)
    if measure is None:
        yield
        return
    setattr(guards, name, lambda *args: 0.0)
    try:
        yield
    finally:
        setattr(guards, name, measure)
