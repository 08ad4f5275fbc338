"""How long a candidate takes beside its spec, in one process and in turn; it is no part of a verdict."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch

from ..arguments import CallArguments

#: Pairs of calls before any counts, that count at least and at most, and seconds after which no more than those begin.
_WARM, _LEAST, _MOST, _SECONDS = 2, 5, 200, 2.0


class Timing(msgspec.Struct, frozen=True):
    """Seconds of calls of the spec and of the candidate at the given inputs, in the order in which they were made."""

    spec: list[float] = []
    candidate: list[float] = []

    @property
    def record(self) -> dict[str, float]:
        """The median of the spec's time over the candidate's, its quartiles, how many runs, and the median times."""
        ratios = [ours / theirs for ours, theirs in zip(self.spec, self.candidate, strict=True)]
        low, ratio, high = statistics.quantiles(ratios, n=4)
        times = {"spec": statistics.median(self.spec), "candidate": statistics.median(self.candidate)}
        return {"ratio": ratio, "low": low, "high": high, "runs": len(ratios), **times}

    def __str__(self) -> str:
        of = self.record
        times = f"{of['candidate'] * 1e6:.4g} us, the spec {of['spec'] * 1e6:.4g} us"
        spread = f"median of {of['runs']} interleaved runs, half of them {of['low']:.3g} to {of['high']:.3g}"
        return f"{of['ratio']:.3g} times as fast as the spec ({spread}): {times}"


def read_timing(line: dict[str, Any]) -> Timing:
    """What a stranger's process says of times.

    Raises:
        ValueError: it is no such thing.
    """
    timing = msgspec.convert(line, Timing)
    counts = {len(timing.spec), len(timing.candidate)}
    if len(counts) != 1 or not all(_LEAST <= count <= _MOST for count in counts):
        raise ValueError(f"got {len(timing.spec)} and {len(timing.candidate)} times")
    if not all(0 < seconds < math.inf for seconds in (*timing.spec, *timing.candidate)):
        raise ValueError("got a time that is no positive number")
    return timing


@torch.no_grad()
def measure(spec: Callable[..., Any], candidate: Callable[..., Any], arguments: Sequence[Any]) -> Timing:
    """The times of both, in turn, each call at fresh copies of the arguments."""
    given, times = CallArguments.of(arguments), Timing()
    for function in (spec, candidate) * _WARM:
        _seconds(function, given)
    until = time.perf_counter() + _SECONDS
    while len(times.spec) < _LEAST or (len(times.spec) < _MOST and time.perf_counter() < until):
        times.spec.append(_seconds(spec, given))
        times.candidate.append(_seconds(candidate, given))
    return times


def _seconds(function: Callable[..., Any], arguments: CallArguments) -> float:
    args, wait = arguments.copied().args, torch.cuda.synchronize if torch.cuda.is_initialized() else bool
    wait()
    start = time.perf_counter()
    function(*args)
    wait()
    return time.perf_counter() - start
