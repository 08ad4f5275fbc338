"""How long a candidate takes beside its spec, in one process and in turn; it is no part of a verdict."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch

from ..arguments import CallArguments, Inputs, call, lacking, parameters_of
from ..results import result_of

#: Calls of each before any counts; how many count at least and at most; seconds after which no more than these begin.
_WARM, _LEAST, _MOST, _SECONDS = 2, 5, 200, 2.0


class Timing(msgspec.Struct, frozen=True):
    """Seconds of calls of the spec and of the candidate in turn; or why there are none."""

    spec: list[float] = []
    candidate: list[float] = []
    failure: str = ""

    def require(self) -> Timing:
        """Itself; ValueError where it is not what `measure` gives, for a stranger's process may have said it."""
        both = (*self.spec, *self.candidate)
        if len(self.spec) != len(self.candidate) or not _LEAST <= len(self.spec) <= _MOST:
            raise ValueError(f"got {len(self.spec)} and {len(self.candidate)} times")
        if self.failure or not all(1e-9 <= seconds < math.inf for seconds in both):
            raise ValueError("got a time that is none")
        return self

    @property
    def record(self) -> dict[str, float | str]:
        """Median and quartiles of the spec's time over the candidate's, how many runs, and the median times, in s."""
        if self.failure:
            return {"failure": self.failure[:500]}
        low, ratio, high = statistics.quantiles(map(float.__truediv__, self.spec, self.candidate), n=4)
        times = {"spec": statistics.median(self.spec), "candidate": statistics.median(self.candidate)}
        return {"ratio": ratio, "low": low, "high": high, "runs": len(self.spec), **times}

    def __str__(self) -> str:
        if self.failure:
            return f"not taken: {self.failure[:500]}"
        text = (
            "{ratio:.3g} times as fast as the spec ({runs} runs in turn: median; half of them {low:.3g} to {high:.3g})"
        )
        return f"{text}, {{candidate:.3g}} s and {{spec:.3g}} s".format(**self.record)


@torch.no_grad()
def measure(spec: Callable[..., Any], candidate: Callable[..., Any], arguments: Inputs) -> Timing:
    """The times of both, in turn, each call at fresh copies of the arguments."""
    originals, times = CallArguments.of(arguments), Timing()
    needs = lacking(parameters_of(candidate), originals.args)
    places = [y.clone() for y in result_of(call(spec, originals.copied().args)).tensors] if needs else []
    for _ in range(_WARM):
        _seconds(spec, originals)
        _seconds(candidate, originals, places)
    until = time.perf_counter() + _SECONDS
    while len(times.spec) < _LEAST or (len(times.spec) < _MOST and time.perf_counter() < until):
        times.spec.append(_seconds(spec, originals))
        times.candidate.append(_seconds(candidate, originals, places))
    return times


def _seconds(function: Callable[..., Any], arguments: CallArguments, places: Sequence[torch.Tensor] = ()) -> float:
    args, wait = arguments.copied().args, torch.cuda.synchronize if torch.cuda.is_initialized() else bool
    wait()
    start = time.perf_counter()
    call(function, args, places)
    wait()
    return time.perf_counter() - start
