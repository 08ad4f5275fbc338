"""Whether two samples of calls have the same distribution: exact permutation tests with a stated risk of false alarm.

What this is for: an implementation of a random function is right if its outputs have the distribution of the spec's
outputs. The tests need not know that distribution: the spec is called as often as the candidate, and if both have the
same distribution, every division of all calls into two halves is equally likely. So among the calls in which an event
happens, the number of the candidate's calls is hypergeometric, for any event whose definition does not depend on who
made a call: that an element is above the middle of all of its values, or that a mean is above the median of all means.

What is hard here is independence: of elements, rows and calls. Independent elements agree as often as those of the spec
do, and not more often. So the share of elements that agree with those some way along an axis, for every distance, and
with their mirror images, and the share of elements that agree in two calls, are compared as numbers of a call, as a
mean is. Copies anywhere make the share of elements vary more from call to call, so its distance from the median is such
a number, too; and of few elements all pairs are compared.

Every test of an element or a number has an equal part of one half of `RISK`, and every test of a pair one of the other
half, so that the probability of any false alarm is at most `RISK` (Bonferroni).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: The largest probability that a right implementation is refused by any test of one judgement.
RISK = 1e-9
#: The most elements of an output that are tested one by one; and the most different integers in an output for which
#: each integer is an event of its own.
_ELEMENTS, _NUMBERS = 4096, 64
#: A threshold lies between two values of an element whose distance is at least this share of the element's range.
_GAP = 1e-3
#: Calls are compared at these distances, and neighbours that are integers.
_LAGS = (1, 2, 4, 8)
#: The most elements of an output of which all pairs are compared.
_PAIRED = 1024
#: The number of elements whose spectra are in memory at a time.
_SPECTRA = 2**20


@dataclass(frozen=True)
class FrequencyDifference:
    """The largest difference between two samples.

    Attributes:
        what: the event, in words. computed, own: its share of the calls of the candidate, and of the spec.
        risk: the probability of so large a difference in one test. tests: the number of tests.
        values: means over the calls of both of the number whose large values are the event; None for an element.
    """

    what: str
    computed: float
    own: float
    risk: float
    tests: int
    values: tuple[float, float] | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether chance does not explain the difference."""
        return self.risk * self.tests < RISK


@dataclass(frozen=True)
class SampleComparison:
    """A comparison of two samples.

    Attributes:
        worst: the largest difference. calls: the number of calls of each. visible: the smallest difference of an
            element's frequencies, around one half, that the test detects.
        visible_mean: the smallest difference that the test detects in the share of elements above the middle.
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
        apart: for each output the largest distance of two values that rounding explains; 0 by default.
    """
    calls = len(computed[0])
    tables: list[tuple[str, Any, Any]] = []
    pairs: list[tuple[str, Any]] = []
    shares = np.zeros(1)
    for number, (a, b) in enumerate(zip(computed, own, strict=True)):
        name = f"output {number}" if len(computed) > 1 else "the output"
        values = np.concatenate([a, b])
        events = list(_events(name, values, apart[number] if apart else 0.0))
        for title, event in events:
            flat = event.reshape(2 * calls, -1)
            some = np.unique(np.linspace(0, flat.shape[1] - 1, _ELEMENTS).astype(np.int64))
            tables.append((f"an element of {title}", flat[:, some], None))
        pairs += events[:2]
        shares = events[0][1].reshape(2 * calls, -1).mean(1)
        numbers = [_share(*each) for each in events[:2]]
        numbers += [(f"how far from its median is {words}", np.abs(each - np.median(each))) for words, each in numbers]
        if values.dtype.kind in "iub":
            numbers += _agreements(name, values)
            numbers.append((f"how often {name} has the number that it has", _typicality(values)))
        else:
            numbers += itertools.chain(*((*_along_axes(*each), *_of_calls(*each)) for each in events[:2]))
        for words, each in numbers:
            tables.append((words, (each > np.median(each))[:, None], each))
    # Pairs of elements, which are many, have one half of the risk, and everything else the other.
    tests = 4 * sum(event.shape[1] for _, event, _ in tables)
    differences = [_difference(*each, tests) for each in tables]
    differences += [_difference_of_pairs(*each, 2 * len(pairs)) for each in pairs]
    worst = min(differences, key=lambda each: each.risk * each.tests)
    least = _least_count(calls, tests)
    own_shares = np.sort(shares[calls:])
    shift = float(own_shares[min(least, calls - 1)] - np.median(own_shares)) if calls else math.nan
    return SampleComparison(worst, calls, (2 * least - calls) / calls, shift)


def _events(name: str, values: Any, apart: Any) -> Iterator[tuple[str, Any]]:
    """Events of every element, such as that it is above the median of its values; an event is bool (calls, *shape).

    The first two compare each element with the middle of its range, so that shares and agreements over elements have a
    meaning.

    Args:
        name: of the output. values: (calls, *shape). apart: the largest distance of values that rounding explains.
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
    """Whether values are above the threshold of their element.

    A threshold lies between two values whose distance rounding does not explain: the candidate and the spec may round
    the same number differently, and a threshold must not separate these two roundings.

    Args:
        values, apart: see `_events`. distance: (possible thresholds) -> their distance from the best one.
    """
    ordered = np.sort(values, axis=0)
    gaps, middles = np.diff(ordered, axis=0), (ordered[1:] + ordered[:-1]) / 2
    wide = (gaps > apart) & (gaps >= (ordered[-1] - ordered[0]) * _GAP)
    at = np.argmin(np.where(wide, distance(middles), np.inf), axis=0)[None]
    threshold = np.take_along_axis(middles, at, 0)
    return (values > threshold) & wide.any(0)


def _typicality(values: Any) -> Any:
    """For each call the mean over elements of how often, in all calls, an element has the number of this call."""
    flat = values.reshape(len(values), -1)
    places = np.broadcast_to(np.arange(flat.shape[1]), flat.shape)
    keys = np.stack([places.ravel(), flat.ravel()], axis=1)
    _, number, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    return (counts[number.reshape(flat.shape)] / len(flat)).mean(1)


def _share(title: str, event: Any) -> tuple[str, Any]:
    return f"the share of elements: {title}", event.reshape(len(event), -1).mean(1)


def _agreements(title: str, values: Any) -> Iterator[tuple[str, Any]]:
    """The shares of equal neighbours in each call, and of equal elements in each pair of calls; with their titles."""
    calls = len(values)
    for axis in range(1, values.ndim):
        length = values.shape[axis]
        for lag in (lag for lag in _LAGS if lag < length):
            first, second = (np.take(values, range(start, length - lag + start), axis) for start in (0, lag))
            agreement = (first == second).reshape(calls, -1).mean(1)
            yield f"the share of neighbours that agree, {lag} apart along axis {axis - 1}: {title}", agreement
    yield from _of_calls(title, values)


def _along_axes(title: str, event: Any) -> Iterator[tuple[str, Any]]:
    """In each call the shares of elements of an event that agree with those at each distance along each axis, and with
    their mirror images around each place; with their titles.
    """
    for axis in range(1, event.ndim):
        signs, n = np.moveaxis(event, axis, -1), event.shape[axis]
        signs = np.reshape(signs, (len(event), -1, n))
        size = max(1, _SPECTRA // max(signs[0].size, 1))
        parts = [_correlations(signs[i : i + size] * 2.0 - 1.0) for i in range(0, len(signs), size)] if n > 1 else []
        if not parts:
            continue
        apart, mirrored = (np.concatenate(part, axis=0) for part in zip(*parts, strict=True))
        for lag in range(1, n):
            agreement = (1 + apart[:, lag] / signs[0, :, lag:].size) / 2
            yield f"the share of elements that agree, {lag} apart along axis {axis - 1}: {title}", agreement
        for total in range(1, 2 * n - 2):
            pairs = signs[0, :, 0].size * (n - abs(total - (n - 1)))
            agreement = (1 + mirrored[:, total] / pairs) / 2
            yield f"the share of elements that agree, mirrored at {total / 2} of axis {axis - 1}: {title}", agreement


def _correlations(signs: Any) -> tuple[Any, Any]:
    """Sums of products of signs (calls, rows, n) along the last axis: [call, d] of those d apart, and [call, s] of
    those whose places have the sum s.
    """
    n = signs.shape[-1]
    spectra = np.fft.rfft(signs, 2 * n)
    powers = (np.abs(spectra) ** 2).sum(1), (spectra**2).sum(1)
    # Sums of signs are integers, and rounding in the transforms must not tell equal ones apart.
    apart, mirrored = (np.rint(np.fft.irfft(each, 2 * n)) for each in powers)
    return apart[:, :n], mirrored


def _of_calls(title: str, values: Any) -> Iterator[tuple[str, Any]]:
    """The shares of equal elements in each pair of calls, with their titles."""
    calls = len(values)
    blocks = values[: calls // 2], values[calls // 2 :]
    for gap in (gap for gap in _LAGS if 2 * gap <= len(blocks[0])):
        # Pairs of calls that have no call in common.
        starts = [i for i in range(len(blocks[0]) - gap) if i // gap % 2 == 0]
        pairs = [block[starts] == np.roll(block, -gap, 0)[starts] for block in blocks]
        agreement = np.concatenate([pair.reshape(len(starts), -1).mean(1) for pair in pairs])
        yield f"the share of elements in which two calls agree, {gap} apart: {title}", agreement


def _difference(what: str, event: Any, values: Any, tests: int) -> FrequencyDifference:
    """The event, a column of a table with a row for each call, whose calls are divided most unevenly.

    Args:
        what: the event in words. event: (calls of the candidate, then of the spec; columns). values, tests: see
            `FrequencyDifference`.
    """
    half = len(event) // 2
    ones, total = event[:half].sum(0), event.sum(0)
    risks = _tails(half)[total, ones]
    at = int(np.argmin(risks))
    means = None if values is None else (float(values[:half].mean()), float(values[half:].mean()))
    share = float(ones[at]) / half, float(total[at] - ones[at]) / half
    return FrequencyDifference(what, *share, float(risks[at]), tests, means)


def _difference_of_pairs(title: str, event: Any, groups: int) -> FrequencyDifference:
    """The pair of elements that agree in the calls of the candidate and of the spec most unevenly, as copies do.

    Args:
        title, event: (calls of the candidate, then of the spec; *shape). groups: how many such tables share the risk.
    """
    half, flat = len(event) // 2, event.reshape(len(event), -1)
    some = np.unique(np.linspace(0, flat.shape[1] - 1, _PAIRED).astype(np.int64))
    signs = flat[:, some].astype(np.float32) * 2 - 1
    # Sums of at most 2^24 signs are exact in float32.
    own, others = (((len(part) + part.T @ part) / 2).astype(np.int64) for part in (signs[:half], signs[half:]))
    risks = _tails(half)[own + others, own]
    i, j = np.unravel_index(np.argmin(risks), risks.shape)
    what = f"the elements {some[i]} and {some[j]} agree, counted in order of memory: {title}"
    share = float(own[i, j]) / half, float(others[i, j]) / half
    return FrequencyDifference(what, *share, float(risks[i, j]), 2 * groups * risks.size)


_TAILS: dict[int, Any] = {}


def _tails(calls: int) -> Any:
    """[k, a]: the smaller tail at a of the number of k calls in the first half of 2 · calls, a hypergeometric one."""
    if calls not in _TAILS:
        logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, 2 * calls + 1)))])
        k, a = np.arange(2 * calls + 1)[:, None], np.arange(calls + 1)[None, :]
        rest = k - a
        possible = (rest >= 0) & (rest <= calls)
        rest = np.where(possible, rest, 0)
        ways = logs[calls] - logs[a] - logs[calls - a] + logs[calls] - logs[rest] - logs[calls - rest]
        logarithm = ways - (logs[2 * calls] - logs[k] - logs[2 * calls - k])
        # Sums of logarithms have errors of about 1e-11, so the tails are enlarged by far more than that.
        mass = np.where(possible, np.exp(logarithm), 0.0) * (1 + 1e-6)
        upper = np.cumsum(mass[:, ::-1], axis=1)[:, ::-1]
        _TAILS[calls] = np.minimum(np.minimum(np.cumsum(mass, axis=1), upper), 1.0)
    return _TAILS[calls]


def _least_count(calls: int, tests: int) -> int:
    """If `calls` of all 2 · calls have an event, the smallest number of the candidate's among them that is detected."""
    visible = np.flatnonzero(_tails(calls)[calls, : calls + 1] * tests < RISK)
    visible = visible[visible > calls / 2]
    return int(visible[0]) if visible.size else calls
