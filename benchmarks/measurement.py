"""What a benchmark says: rows of one table, and where they were measured."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import mpmath
import numpy as np
import torch


@dataclass(frozen=True)
class Row:
    """One number; `target` is what it is held against, `met` whether it is (None where there is none)."""

    benchmark: str
    case: str
    value: float
    unit: str
    target: str = ""
    met: bool | None = None


def at_least(benchmark: str, case: str, value: float, unit: str, target: float) -> Row:
    return Row(benchmark, case, value, unit, f">= {target:g}", value >= target)


def at_most(benchmark: str, case: str, value: float, unit: str, target: float) -> Row:
    return Row(benchmark, case, value, unit, f"<= {target:g}", value <= target)


def line(row: Row) -> str:
    """The row of the table."""
    verdict = {None: "", True: "met", False: "missed"}[row.met]
    return f"{row.benchmark:12} {row.case:58} {row.value:10.4g} {row.unit:12} {row.target:8} {verdict}".rstrip()


def fastest(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Seconds of the fastest run of each call; the calls take turns, so that a slow minute hits all of them alike."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def surroundings() -> dict[str, str]:
    """Versions, CPU name, what else it had to do, and date."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "mpmath": f"{mpmath.__version__} ({mpmath.libmp.BACKEND})",
        "cpu": _cpu_name(),
        "load": f"{os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores",
        "threads": str(torch.get_num_threads()),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or "unknown"
    names = [entry.partition(":")[2].strip() for entry in text.splitlines() if "model name" in entry]
    return names[0] if names else platform.processor() or "unknown"
