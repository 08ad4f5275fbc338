"""Memory that a process frees: the C library gives it back to the system, or keeps it for the next array.

A process that judges one large problem many times allocates the same sizes again and again. By default glibc gives a
large array back when it is freed, and the system has to clear every page of the next one before its first use, which
can take longer than the computation in it.
"""

from __future__ import annotations

import ctypes

#: Parameters of glibc's `mallopt` (malloc.h): when the end of the heap is handed back, and how many arrays at most are
#: mapped one by one.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
#: A threshold that is never reached: read as a size without a sign, -1 is the largest size.
_NEVER = -1


def keep_freed_memory() -> bool:
    """Have this process keep the memory that it frees; returns whether the C library offers that.

    Only for processes that this package starts, or whose main program it is: in a process of the user, the settings of
    the allocator are the user's.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, _NEVER)) and bool(mallopt(_MMAP_MAX, 0))
