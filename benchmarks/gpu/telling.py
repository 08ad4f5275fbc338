"""How the parts of a run on a GPU begin and what they print: a line of JSON for everything they find."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

DEVICE = "cuda"
#: Of the seconds that a part has, what it leaves to ending well.
_USED = 0.9


class Time:
    """What is left of the seconds that a part has: the last word of its command line."""

    def __init__(self) -> None:
        self._end = time.monotonic() + _USED * float(sys.argv[-1])

    def left(self) -> float:
        """Seconds; negative where there are none."""
        return self._end - time.monotonic()


def tell(**row: object) -> None:
    """Prints a row."""
    print(json.dumps(row, ensure_ascii=False), flush=True)


def require_gpu() -> None:
    """Ends the part, not run, where there is no GPU."""
    if not torch.cuda.is_available():
        tell(**{"not run": "no CUDA device"})
        sys.exit(0)


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Within the block an exception is told and goes no further: the next thing is measured."""
    try:
        yield
    except Exception as err:
        tell(what=what, failed=f"{type(err).__name__}: {str(err)[:300]}")
        torch.cuda.empty_cache()


def microseconds(call: Callable[[], object], flush: torch.Tensor, repeats: int = 15) -> tuple[float, float]:
    """Median and minimum of a call's time on the GPU, by CUDA events.

    Args:
        call: what is timed. flush: a tensor larger than the L2 cache, which is written before every call; that takes
            long enough for Python to be ahead of the GPU. repeats: how often.
    """
    for _ in range(3):
        call()
    pairs = []
    for _ in range(repeats):
        flush.zero_()
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        call()
        ended.record()
        pairs.append((begun, ended))
    torch.cuda.synchronize()
    times = sorted(begun.elapsed_time(ended) * 1e3 for begun, ended in pairs)
    return times[len(times) // 2], times[0]


def flushing() -> torch.Tensor:
    """A tensor of four times the L2 cache, 256 MiB at least."""
    size = max(4 * torch.cuda.get_device_properties(0).L2_cache_size, 1 << 28)
    return torch.empty(size, dtype=torch.uint8, device=DEVICE)


def copy_bandwidth(flush: torch.Tensor, size: int = 1 << 30) -> float:
    """Bytes read and written in a second by a copy of so many bytes: what fractions are of."""
    source, target = (torch.empty(size, dtype=torch.uint8, device=DEVICE) for _ in range(2))
    median, _ = microseconds(lambda: target.copy_(source), flush)
    return 2 * size / median * 1e6
