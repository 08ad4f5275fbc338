"""What the C library does with memory that a process frees: handed back to the system, or kept for the next array.

Who reads and calls the same large problem many times allocates the same sizes again and again. By default glibc gives
a large array back when it is freed, and the system has to clear every page of the next one before it is used, which can
take longer than what is computed in it.
"""

from __future__ import annotations

import ctypes

#: Parameters of glibc's `mallopt` (malloc.h): when the end of the heap is handed back, and how many arrays at most are
#: mapped one by one.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
#: As a size without a sign it is the largest there is.
_NEVER = -1


def keep_freed_memory() -> bool:
    """Have this process keep what it frees; whether the C library is one that can be told so.

    It is for processes that this package starts, or is: in a process of the user the allocator is the user's.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, _NEVER)) and bool(mallopt(_MMAP_MAX, 0))
