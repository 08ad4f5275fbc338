"""What torch's compiler does for its own log alone, left out.

Dynamo is imported where it is used, because the import takes more than a second.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def without_measuring_guards() -> Iterator[None]:
    """Dynamo flushes the processor's caches to measure each guard for its log, which takes a third of a compilation."""
    from torch._dynamo import guards

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
