"""Whether two samples of calls have one distribution: exact tests, whose total risk of a false alarm is stated.

What this is for: an implementation of a random function is right if what it gives is distributed as what the spec
gives. Nothing need be known of that distribution: the spec is called as often as the candidate, and if the two are
alike, every way to divide all of these calls into two halves is as likely as any other. So of the calls in which an
event happens, the number that is the candidate's is hypergeometric, for any event that is defined without regard to
who made a call: that an element is above the middle of all of its values, or that a mean is above the median of all.

What is hard here is independence: of elements, rows and calls. Elements that are to be independent may agree as often
as those of the spec do, and not more: how often neighbours along each axis are on one side, and two calls in a row, are
numbers of a call like a mean.

Every test has an equal part of `RISK`, so that all together are wrong with at most this probability (Bonferroni).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: The probability that a right implementation is refused, at most, of all tests of one judgement together.
RISK = 1e-9
#: Elements of an output that are looked at one by one at most. Outputs of at most so many integers are told apart.
_ELEMENTS, _NUMBERS = 4096, 64
#: A threshold lies in a gap of at least this share of the range of an element.
_GAP = 1e-3
#: Neighbours are compared at these distances.
_LAGS = (1, 2, 4, 8)


@dataclass(frozen=True)
class FrequencyDifference:
    """What differs most between two samples.

    Attributes:
        what: the event, in words. computed, own: in which share of the calls it happened, of candidate and spec.
        risk: the probability of so large a difference for one test. tests: how many tests there were.
        values: the means of a number of which the event is that it is large, of both; None for an element.
    """

    what: str
    computed: float
    own: float
    risk: float
    tests: int
    values: tuple[float, float] | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether chance does not explain it."""
        return self.risk * self.tests < RISK


@dataclass(frozen=True)
class SampleComparison:
    """Two samples, compared.

    Attributes:
        worst: what differs most. calls: of each. visible: the least difference of the frequencies of an element, around
            one half, that would have been seen.
        visible_mean: the same of the share of elements above the middle, in one call.
    """

    worst: FrequencyDifference
    calls: int
    visible: float
    visible_mean: float


def compare(computed: Sequence[Any], own: Sequence[Any], apart: Sequence[Any] = ()) -> SampleComparison:
    """Compare the outputs of calls.

    Args:
        computed, own: for each output an array (calls, *shape) of floating numbers or integers, of the candidate and of
            the spec; of equal shapes.
        apart: for each output how far two values are apart at most that rounding explains; by default nothing.
    """
    calls = len(computed[0])
    tables: list[tuple[str, Any, Any]] = []
    shares = np.zeros(1)
    for number, (a, b) in enumerate(zip(computed, own, strict=True)):
        name = f"output {number}" if len(computed) > 1 else "the output"
        values = np.concatenate([a, b])
        events = list(_events(name, values, apart[number] if apart else 0.0))
        for title, event in events:
            flat = event.reshape(2 * calls, -1)
            some = np.unique(np.linspace(0, flat.shape[1] - 1, _ELEMENTS).astype(np.int64))
            tables.append((f"an element of {title}", flat[:, some], None))
        shares = events[0][1].reshape(2 * calls, -1).mean(1)
        numbers = [_share(*each) for each in events[:2]]
        if values.dtype.kind in "iub":
            numbers += _agreements(name, values)
            numbers.append((f"how often {name} has the number that it has", _typicality(values)))
        else:
            numbers += itertools.chain(*(_agreements(*each) for each in events[:2]))
        for words, each in numbers:
            tables.append((words, (each > np.median(each))[:, None], each))
    tests = 2 * sum(event.shape[1] for _, event, _ in tables)
    worst = min((_difference(*each, tests) for each in tables), key=lambda each: each.risk)
    least = _least_count(calls, tests)
    own_shares = np.sort(shares[calls:])
    shift = float(own_shares[min(least, calls - 1)] - np.median(own_shares)) if calls else math.nan
    return SampleComparison(worst, calls, (2 * least - calls) / calls, shift)


def _events(name: str, values: Any, apart: Any) -> Iterator[tuple[str, Any]]:
    """Events of every element: that its size or itself is above the middle of its values, or their median, or a number.

    The first two are of one kind in all elements, so that their shares and agreements say something.

    Args:
        name: of the output. values: (calls, *shape). apart: how far values are apart that rounding does not explain.
    """
    numbers = np.unique(values) if values.dtype.kind in "iub" else np.zeros(0)
    values = values.astype(np.float64)
    with np.errstate(all="ignore"):
        yield f"the size of {name} is above its middle", _is_above_middle(np.abs(values), apart)
        yield f"{name} is above its middle", _is_above_middle(values, apart)
        ranks = np.abs(np.arange(len(values) - 1) - len(values) / 2).reshape(-1, *(1,) * (values.ndim - 1))
        yield f"{name} is above its median", _is_above(values, apart, lambda middles: ranks)
        distances = np.abs(values - np.median(values, axis=0))
        yield (
            f"{name} is farther from its median than half the times",
            _is_above(distances, apart, lambda middles: ranks),
        )
    if 2 < numbers.size <= _NUMBERS:
        for number in numbers:
            yield f"{name} is {number:.6g}", values == number


def _is_above_middle(values: Any, apart: Any) -> Any:
    middle = (values.min(0) + values.max(0)) / 2
    return _is_above(values, apart, lambda middles: np.abs(middles - middle))


def _is_above(values: Any, apart: Any, distance: Callable[[Any], Any]) -> Any:
    """Which values are above a threshold of their element, which lies between two of its values that are apart.

    The candidate and the spec may have one number with two roundings, and a threshold must not lie between those.

    Args:
        values, apart: see `_events`. distance: of the middles between ordered values, how far they are from where the
            threshold should be.
    """
    ordered = np.sort(values, axis=0)
    gaps, middles = np.diff(ordered, axis=0), (ordered[1:] + ordered[:-1]) / 2
    wide = (gaps > apart) & (gaps >= (ordered[-1] - ordered[0]) * _GAP)
    at = np.argmin(np.where(wide, distance(middles), np.inf), axis=0)[None]
    threshold = np.take_along_axis(middles, at, 0)
    return (values > threshold) & wide.any(0)


def _typicality(values: Any) -> Any:
    """How often an element has the number that it has in a call, in all calls; the mean over elements."""
    flat = values.reshape(len(values), -1)
    places = np.broadcast_to(np.arange(flat.shape[1]), flat.shape)
    keys = np.stack([places.ravel(), flat.ravel()], axis=1)
    _, number, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    return (counts[number.reshape(flat.shape)] / len(flat)).mean(1)


def _share(title: str, event: Any) -> tuple[str, Any]:
    return f"the share of elements: {title}", event.reshape(len(event), -1).mean(1)


def _agreements(title: str, values: Any) -> Iterator[tuple[str, Any]]:
    """In which share of neighbours, and of the elements of two calls, values are equal: for each call, or pair."""
    calls = len(values)
    for axis in range(1, values.ndim):
        length = values.shape[axis]
        for lag in (lag for lag in _LAGS if lag < length):
            first, second = (np.take(values, range(start, length - lag + start), axis) for start in (0, lag))
            agreement = (first == second).reshape(calls, -1).mean(1)
            yield f"the share of neighbours that agree, {lag} apart along axis {axis - 1}: {title}", agreement
    blocks = values[: calls // 2], values[calls // 2 :]
    for gap in (gap for gap in _LAGS if 2 * gap <= len(blocks[0])):
        # Pairs of calls that have no call in common.
        starts = [i for i in range(len(blocks[0]) - gap) if i // gap % 2 == 0]
        pairs = [block[starts] == np.roll(block, -gap, 0)[starts] for block in blocks]
        agreement = np.concatenate([pair.reshape(len(starts), -1).mean(1) for pair in pairs])
        yield f"the share of elements in which two calls agree, {gap} apart: {title}", agreement


def _difference(what: str, event: Any, values: Any, tests: int) -> FrequencyDifference:
    """The column of a table of events, one line for each call of both, whose calls are divided most unevenly."""
    half = len(event) // 2
    ones, total = event[:half].sum(0), event.sum(0)
    risks = _tails(half)[total, ones]
    at = int(np.argmin(risks))
    means = None if values is None else (float(values[:half].mean()), float(values[half:].mean()))
    share = float(ones[at]) / half, float(total[at] - ones[at]) / half
    return FrequencyDifference(what, *share, float(risks[at]), tests, means)


_TAILS: dict[int, Any] = {}


def _tails(calls: int) -> Any:
    """[k, a]: the smaller tail at a of how many of k calls are among the first half of 2 · calls, hypergeometric."""
    if calls not in _TAILS:
        logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, 2 * calls + 1)))])
        k, a = np.arange(2 * calls + 1)[:, None], np.arange(calls + 1)[None, :]
        rest = k - a
        possible = (rest >= 0) & (rest <= calls)
        rest = np.where(possible, rest, 0)
        ways = logs[calls] - logs[a] - logs[calls - a] + logs[calls] - logs[rest] - logs[calls - rest]
        logarithm = ways - (logs[2 * calls] - logs[k] - logs[2 * calls - k])
        # Sums of logarithms are off by some 1e-11; the tails are taken larger by far more.
        mass = np.where(possible, np.exp(logarithm), 0.0) * (1 + 1e-6)
        upper = np.cumsum(mass[:, ::-1], axis=1)[:, ::-1]
        _TAILS[calls] = np.minimum(np.minimum(np.cumsum(mass, axis=1), upper), 1.0)
    return _TAILS[calls]


def _least_count(calls: int, tests: int) -> int:
    """Of as many calls with an event as there are of each, the least number of the candidate's that would be seen."""
    visible = np.flatnonzero(_tails(calls)[calls, : calls + 1] * tests < RISK)
    visible = visible[visible > calls / 2]
    return int(visible[0]) if visible.size else calls
