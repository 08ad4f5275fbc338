"""A tally: counts over the samples of one cell. It decides nothing about a single output."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..bound.accept import Elements
from ..bound.scale import Scaled
from ..op.declaration import Sample
from ..verdicts.verdict import Bin, Measure, Worst, join_runs

#: Parts of a cell's samples: those that were planned, large ones, and more of regimes of which nothing could be judged.
PLANNED, LARGE, MORE = "planned", "large", "more"
#: The most elements that count in the medians of a cell.
_MOST_WIDTHS = 100_000
#: About this many elements of one output count in the medians, so that a large sample does not outweigh all others.
_MOST_OF_ONE = 300
#: The limits of a record: names of regimes, and characters of one name.
_REGIMES, _REGIME_NAME = 64, 512


def regimes_of(name: str) -> tuple[str, ...]:
    """The regimes of a sample: one, or those of its tensors, joined by ", "."""
    return tuple(dict.fromkeys(part for part in name.split(", ") if part)) or ("unnamed",)


class Tally:
    """Counts over the samples of one cell: elements judged and not, by regime; errors in ulp and relative to bounds.

    Attributes:
        samples: how many were judged to their end. judged, not_judged: numbers of elements.
        refused: how many samples the subject refused in part or whole; one with a judged part is in `samples` as well.
        ratio_of_sample: the largest error/bound of the sample that is being judged; a steered search maximizes it.
        last_share: the share of the last sample's elements that were judged.
        last_blank: whether all values of the last sample are zero within their bounds, so that zeros would be right.
        part: the part of the cell that the next samples belong to: PLANNED, LARGE or MORE.
        longest_sum: the number of terms of the longest sum in the last reading.
        bins: errors by magnitude and by length of sums, where the run records these; else None.
        notes: remarks to be added to the reason of the verdict.
        refusals: the number of samples with a documented refusal, by its reason.
        omissions: the number of samples that are left out for what torch's own evaluation of the reference does, by
            reason. left_whole: how many of them the reference does not take at all.
        timing: seconds by activity (`clock`).
    """

    def __init__(self) -> None:
        self.samples = self.judged = self.not_judged = self.refused = 0
        self.ratio_of_sample, self.last_share, self.last_blank = 0.0, 1.0, False
        self.part = PLANNED
        self.longest_sum = 1
        self.bins: dict[tuple[str, int], Bin] | None = None
        self.notes: list[str] = []
        self.timing: dict[str, float] = {}
        self.refusals: dict[str, int] = {}
        self.omissions: dict[str, int] = {}
        self.left_whole = 0
        self._sample_elements = self._sample_nonzero = 0  # of this sample: judged elements, outputs that are not zero
        self._has_omission = False  # whether torch's own evaluation refused something of it
        self._has_refusal = False  # whether the subject refused something of the sample that is being judged
        self._max_ulp = self._max_ratio = 0.0
        self._max_scaled = math.nan  # until an output is measured on its scale
        self._worst: Worst | None = None
        self._widths: list[Any] = []
        self._ulps: list[Any] = []
        self._scaled: list[Any] = []
        self._width_count = 0
        self._signed: dict[str, list[float]] = {}
        self._systematic: dict[str, list[float]] = {}
        self._regime_counts: dict[tuple[str, str], list[int]] = {}  # elements judged and not, by regime and part
        self._value_counts: dict[tuple[str, str], list[int]] = {}  # the same by declared value
        self._sizes: dict[str, set[int]] = {}  # extents by argument and dim
        self._seeds: set[int] = set()
        self._again = False  # whether the seed of the sample was that of another one before
        self._shares: dict[str, list[float]] = {}  # by part, of each sample's elements that were judged

    def note(self, text: str) -> None:
        """Add a remark to the reason of the verdict."""
        self.notes.append(text)

    def note_first(self, head: str, text: str) -> None:
        """Add a remark, unless there is one that begins so."""
        if not any(note.startswith(head) for note in self.notes):
            self.note(head + text)

    def leave_out(self, reason: str, *, whole: bool = False) -> None:
        """The sample is not asked, or not the `whole` of it, because torch's own evaluation of the reference fails."""
        self.left_whole += whole
        self.omissions[reason] = self.omissions.get(reason, 0) + 1
        self._has_omission = True

    def refuse(self, reason: str) -> None:
        """The subject refused something of the sample, for a documented reason."""
        self.refusals[reason] = self.refusals.get(reason, 0) + 1
        self._has_refusal = True

    @contextmanager
    def sample(self, sample: Sample, values: Iterable[tuple[str, str]] = ()) -> Iterator[None]:
        """Count the elements that the block judges, and those that it does not, by regimes and declared values.

        Args:
            sample: the sample that the block judges. values: its declared values, as pairs of name and value.
        """
        self.ratio_of_sample, self._has_refusal, self.last_blank = 0.0, False, False
        self._has_omission = False
        self._sample_elements = self._sample_nonzero = 0
        self._again = sample.seed in self._seeds
        self._seeds.add(sample.seed)
        judged, not_judged = self.judged, self.not_judged
        try:
            yield
        finally:
            # This also runs when a violation ends the sample early, because the elements judged until then are in the
            # totals, and the sums by regime must agree with the totals.
            judged, not_judged = self.judged - judged, self.not_judged - not_judged
            for name in regimes_of(sample.regime):
                _add(self._regime_counts, (name, self.part), judged, not_judged)
            for pair in values:
                _add(self._value_counts, pair, judged, not_judged)
            self.last_share = judged / (judged + not_judged) if judged + not_judged else 1.0
            if judged + not_judged:
                self._shares.setdefault(self.part, []).append(self.last_share)
        # A sample that was refused as a whole says nothing about the property, so it does not count.
        self.refused += self._has_refusal
        self.samples += bool(judged or not_judged or not (self._has_refusal or self._has_omission))

    def saw(self, argument: str, shape: Sequence[int]) -> None:
        """A sample has an argument of this shape."""
        for dim, extent in enumerate(shape):
            self._sizes.setdefault(f"{argument} dim {dim}", set()).add(extent)

    @contextmanager
    def clock(self, what: str) -> Iterator[None]:
        """Add the time of a block to that of an activity: "generate", "reference", "op" or "compare"."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.timing[what] = self.timing.get(what, 0.0) + time.perf_counter() - start

    def count(self, judged: int = 0, not_judged: int = 0) -> None:
        """Add numbers of elements that were judged, and that could not be."""
        self.judged += judged
        self.not_judged += not_judged

    def ratio(self, value: float, *, steers: bool = False) -> None:
        """Record an error as a share of its bound; with `steers`, a steered search tries to make it larger."""
        self._max_ratio = max(self._max_ratio, value)
        if steers:
            self.ratio_of_sample = max(self.ratio_of_sample, value)

    def output(
        self, elements: Elements, name: str, path: str, worst: Callable[[tuple[Any, ...]], Worst],
        systematic: Any = None, scaled: Scaled | None = None,
    ) -> None:  # fmt: skip
        """Record an output that was judged and accepted.

        Args:
            elements: in their accept sets. name: of the output. path: the name of its path.
            worst: (index of an element) -> that element as a report shows it.
            systematic: the part of each bound that may be the same error in every sample, where that is known.
            scaled: the errors on the scale of the tensor, where the caller has computed them.
        """
        if not elements.judged.size:
            self.judged += 1  # An output without elements has been judged by its shape, so it counts as one.
            return
        judged = int(np.count_nonzero(elements.judged))
        self.count(judged, elements.judged.size - judged)
        self._keep(elements, scaled)
        if not judged:
            return
        self._sample_elements += judged
        nonzero = elements.judged & (elements.special | (np.abs(elements.value) > elements.bound))
        self._sample_nonzero += bool(np.any(nonzero))
        self.last_blank = bool(self._sample_elements) and not self._sample_nonzero
        # `biases` needs independent numbers. The errors within a sample share their operands, so each output of a
        # sample gives one number, their mean. A steered search repeats seeds, and two samples of one seed share their
        # data, so the second one gives none.
        if not self._again:
            self._signed.setdefault(f"{path}: {name}", []).append(float(np.mean(elements.signed)))
            if systematic is not None:
                shares = np.where(elements.judged & ~elements.special, systematic / elements.bound, 0.0)
                self._systematic.setdefault(f"{path}: {name}", []).append(float(np.mean(np.minimum(shares, 1.0))))
        at = np.unravel_index(int(np.argmax(elements.ratio)), elements.ratio.shape)
        ratio = float(elements.ratio[at])
        sharp = elements.ulp if scaled is None else np.where(scaled.near_zero, 0.0, elements.ulp)
        self._max_ulp = max(self._max_ulp, float(sharp.max()))
        if scaled is not None:
            largest = float(scaled.errors.max())
            self._max_scaled = float(np.fmax(self._max_scaled, largest))
            self._bin("magnitude", scaled.magnitude, largest, ratio)
            self._bin("length", float(self.longest_sum), largest, ratio)
        # `worst` is a function because describing an element prints numbers in many digits, which takes time. It is
        # called only for an element that is worse than all before it.
        if ratio > self._max_ratio or self._worst is None:
            self._worst = worst(at)
        self.ratio(ratio, steers=True)

    def _bin(self, kind: str, size: float, scaled: float, ratio: float) -> None:
        """Enter the errors of an output into the bin of its size.

        Args:
            kind, size: "magnitude" and the largest operand, or "length" and the terms of the longest sum.
            scaled, ratio: the largest error, on the scale of the tensor and over its bound.
        """
        if self.bins is None or not size > 0:
            return
        low = math.frexp(size)[1] - 1
        # Samples are dense near 1 and sparse in the rest of a format's range, so bins far from 1 are wider.
        step = 1 if kind == "length" else 4 if -32 <= low < 32 else 32
        key, one = (kind, low // step * step), Bin(kind, low // step * step, 1, scaled, min(ratio, 1.0))
        self.bins[key] = self.bins[key].joined(one) if key in self.bins else one

    def _keep(self, elements: Elements, scaled: Scaled | None) -> None:
        """Keep the widths and errors of some elements for the medians, the largest width among them."""
        if self._width_count >= _MOST_WIDTHS:
            return
        plain = elements.judged & ~elements.special
        sharp = plain if scaled is None else plain & ~scaled.near_zero
        widths, ulps = np.ravel(elements.width), np.ravel(elements.ulp)[np.ravel(sharp)]
        # Elements at equal distances are kept. The largest width is added, because the report names it
        # (`detect_worst`) and it may lie between two of these elements.
        self._widths += [widths[:: 1 + widths.size // _MOST_OF_ONE], np.fmax.reduce(widths, keepdims=True)]
        self._ulps.append(ulps[:: 1 + ulps.size // _MOST_OF_ONE])
        if scaled is not None:
            errors = np.ravel(scaled.errors)[np.ravel(plain)]
            self._scaled.append(errors[:: 1 + errors.size // _MOST_OF_ONE])
        self._width_count += min(widths.size, _MOST_OF_ONE)

    def starved(self) -> tuple[str, ...]:
        """The regimes that had elements, none of which could be judged."""
        return tuple(name for name, judged, not_judged in self._regimes() if not_judged and not judged)

    def starved_values(self) -> tuple[tuple[str, str], ...]:
        """The declared values that had elements, none of which could be judged."""
        return tuple(pair for pair, (judged, not_judged) in self._value_counts.items() if not_judged and not judged)

    def sampled_values(self) -> frozenset[tuple[str, str]]:
        """The declared values that samples had."""
        return frozenset(self._value_counts)

    def mostly_judged(self, part: str) -> bool:
        """Whether at least half of the elements of the planned samples, or of the large ones, were judged.

        One large sample has as many elements as a hundred planned ones, and may have as many as ten other large ones.
        So each part is asked about by itself, and the mean of its samples' shares is enough. For large samples only
        that mean counts; for planned ones half of all elements is enough as well.
        """
        mean = float(np.mean(self._shares.get(part, [1.0])))
        if part == LARGE or mean >= 0.5:
            return mean >= 0.5
        counts = [count for (_, of), count in self._regime_counts.items() if of == part]
        return sum(judged for judged, _ in counts) >= sum(not_judged for _, not_judged in counts)

    def measure(self, discarded: int = 0) -> Measure:
        """The measures so far."""
        widths = _finite(self._widths)
        median, widest = (float(np.median(widths)), float(widths.max())) if widths.size else (math.nan, math.nan)
        (typical, p99), scaled = _percentiles(self._ulps), _percentiles(self._scaled)
        sizes = [(name, [(n, n) for n in self._sizes[name]]) for name in sorted(self._sizes)[:_REGIMES]]
        return Measure(
            self.samples, discarded, self.judged, self.not_judged,
            self._max_ulp, self._max_ratio, median, widest, self._worst, typical, p99, self._regimes(), self.refused,
            tuple(f"{name}: {join_runs(runs)}"[:_REGIME_NAME] for name, runs in sizes), *scaled, self._max_scaled,
            tuple(one.text for _, one in sorted((self.bins or {}).items())),
        )  # fmt: skip

    def biases(self) -> dict[str, float]:
        """Outputs whose mean signed error/bound over the samples is larger than chance allows, and that mean.

        Each sample gives one number in [−1, 1]; by Hoeffding's inequality (JASA 58, 1963) the mean of N independent
        ones with expectation zero exceeds sqrt(2 ln(2/p) / N) with probability at most p = 1e-12. The expectation need
        not be zero where the contract allows errors that are the same in every sample; where the largest size of these
        errors is known, its mean is allowed in addition.
        """
        means = {}
        for name, values in self._signed.items():
            mean, allowed = float(np.mean(values)), float(np.mean(self._systematic.get(name, [0.0])))
            if abs(mean) > allowed + math.sqrt(2 * math.log(2e12) / len(values)):
                means[name] = mean
        return means

    def _regimes(self) -> tuple[tuple[str, int, int], ...]:
        """Elements judged and not judged, by regime; of more than `_REGIMES`, those with the fewest judged elements."""
        sums: dict[str, list[int]] = {}
        for (name, _), (judged, not_judged) in self._regime_counts.items():
            _add(sums, name[:_REGIME_NAME], judged, not_judged)
        least = sorted(sums, key=lambda name: sums[name][0])[:_REGIMES]
        return tuple((name, sums[name][0], sums[name][1]) for name in sorted(least))


def _add(counts: dict[Any, list[int]], key: Any, judged: int, not_judged: int) -> None:
    """Add elements that were judged, and that were not, to the counts of a key."""
    before = counts.get(key, [0, 0])
    counts[key] = [before[0] + judged, before[1] + not_judged]


def _percentiles(parts: list[Any]) -> tuple[float, float]:
    """The median and the 99th percentile; NaN of nothing."""
    values = _finite(parts)
    if not values.size:
        return math.nan, math.nan
    median, high = np.quantile(values, (0.5, 0.99)).tolist()
    return median, high


def _finite(parts: list[Any]) -> Any:
    values = np.concatenate(parts) if parts else np.array([])
    return values[np.isfinite(values)]
