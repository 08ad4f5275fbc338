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
    """One number; `target` is what it is held against, `reaches_target` whether it is (None where there is none)."""

    benchmark: str
    case: str
    value: float
    unit: str
    target: str = ""
    reaches_target: bool | None = None


def at_least(benchmark: str, case: str, value: float, unit: str, target: float) -> Row:
    return Row(benchmark, case, value, unit, f">= {target:g}", value >= target)


def at_most(benchmark: str, case: str, value: float, unit: str, target: float) -> Row:
    return Row(benchmark, case, value, unit, f"<= {target:g}", value <= target)


def line(row: Row) -> str:
    """The row of the table."""
    verdict = {None: "", True: "met", False: "missed"}[row.reaches_target]
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


@dataclass(frozen=True)
class Ratio:
    """How many times as long one call takes as another, in runs that take turns.

    Attributes:
        median, low, high: of the ratios of single runs, the middle one and the quartiles. seconds: a median run of the
            first call.
    """

    median: float
    low: float
    high: float
    seconds: float


def compare(call: Callable[[], object], other: Callable[[], object], rounds: int) -> Ratio:
    """The ratio of two calls; which of them comes first changes with every round, so that neither has a warm cache."""
    times = np.empty((rounds, 2))
    for number in range(-1, rounds):  # the first round is not counted
        for at in (0, 1) if number % 2 else (1, 0):
            start = time.perf_counter()
            (other if at else call)()
            times[number, at] = time.perf_counter() - start
    low, median, high = np.quantile(times[:, 0] / times[:, 1], (0.25, 0.5, 0.75))
    return Ratio(float(median), float(low), float(high), float(np.median(times[:, 0])))


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
