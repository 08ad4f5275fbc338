"""How long a process had no processor although it could have run: time that the machine took, and not the candidate.

What is hard here: a candidate must not gain time by processes and threads that take the processor from each other. So
what all of them compute together counts, too, and that goes on however they wait.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from time import monotonic

from .weighing import descendants

#: Seconds until the first look, so that a short question pays nothing.
_AFTER = 0.25
#: At least one second in so many is its own: children that have ended are not seen, so what they take from a process
#: looks like waiting, and would let it go on for ever.
_MOST = 10.0
#: Of nanoseconds, a second.
_SECOND = 1e9


class OwnTime:
    """Counts the seconds of a question that are a process's own: those in which it computed or waited for anything but
    a processor. Begins when it is made.

    Args:
        root: the process; what it started counts, too.
    """

    def __init__(self, root: int) -> None:
        self._root, self._start = root, monotonic()
        self._before: dict[str, tuple[float, float]] | None = None

    def look(self) -> None:
        """See what the process has taken before, once some time of the question has passed."""
        if self._before is None and monotonic() - self._start > _AFTER:
            self._before = _uses(self._root)

    def seconds(self) -> float:
        """Its own seconds until now; at least those that its threads computed together, as far as they are known."""
        elapsed = monotonic() - self._start
        if self._before is None:
            return elapsed
        computed = waited = 0.0
        for thread, (on, off) in _uses(self._root).items():
            on_before, off_before = self._before.get(thread, (0.0, 0.0))
            computed, waited = computed + on - on_before, max(waited, off - off_before)
        return max(computed, elapsed - waited, elapsed / _MOST)


def _uses(root: int) -> dict[str, tuple[float, float]]:
    """Of each thread of a process and of what it started: seconds on a processor, and seconds in wait for one."""
    uses = {}
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                # `on`, `off` and a number of turns; a kernel that does not count them says zeros.
                with contextlib.suppress(OSError, ValueError):
                    on, off, _ = map(int, Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split())
                    uses[thread] = on / _SECOND, off / _SECOND
    return uses
