"""Several verdicts on one cell, each of samples drawn from a seed of its own, as one verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ....oracles.verdicts.verdict import Bin, Failure, Measure, Verdict
from ...certificate.extents import extents
from ...collect import worse

#: How far the seeds of two draws of a cell are apart. A cell whose errors lean to one side is drawn once more, with
#: the next seed (`properties.engine.cells`), which must not be the first seed of another draw.
STEP = 2
_MOST = 64  # of regimes, sizes and failures in a record


def seeds_of(first: int, count: int) -> list[int]:
    """The seeds of `count` draws of every cell; the first is that of a run."""
    return [first + STEP * draw for draw in range(count)]


def join_verdicts(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on a cell that was drawn several times: the worst of all, and the measures of all together.

    Counts are sums, errors and ratios the largest. Of widths and typical errors each draw has a median, from
    which the median over all draws cannot be had; the largest stands for it.
    """
    worst, *others = verdicts
    for other in others:
        worst = worse(worst, other)
    if not others:
        return worst
    return replace(
        worst,
        measure=_together([verdict.measure for verdict in verdicts]),
        seconds=sum(verdict.seconds for verdict in verdicts),
        timing=_summed_seconds(pair for verdict in verdicts for pair in verdict.timing),
        changed=tuple(dict.fromkeys(line for verdict in verdicts for line in verdict.changed))[:_MOST],
        others=_other_failures(worst, verdicts),
    )


def _other_failures(worst: Verdict, verdicts: Sequence[Verdict]) -> tuple[Failure, ...]:
    if worst.failure is None:
        return ()
    every = [failure for verdict in (worst, *verdicts) for failure in verdict.causes]
    by_kind = {(failure.code, failure.signs.path, failure.signs.output, failure.signs.error): failure for failure in
               reversed(every)}  # fmt: skip
    return tuple(failure for failure in by_kind.values() if failure is not worst.failure)[:_MOST]


def _together(measures: Sequence[Measure]) -> Measure:
    worst = max(measures, key=lambda measure: (measure.worst is not None, measure.max_ratio))
    return replace(
        worst,
        samples=sum(measure.samples for measure in measures),
        discarded=sum(measure.discarded for measure in measures),
        judged=sum(measure.judged for measure in measures),
        not_judged=sum(measure.not_judged for measure in measures),
        refused=sum(measure.refused for measure in measures),
        max_ulp=_largest_number(measure.max_ulp for measure in measures),
        max_ratio=_largest_number(measure.max_ratio for measure in measures),
        detect_median=_largest_number(measure.detect_median for measure in measures),
        detect_worst=_largest_number(measure.detect_worst for measure in measures),
        ulp_median=_largest_number(measure.ulp_median for measure in measures),
        ulp_p99=_largest_number(measure.ulp_p99 for measure in measures),
        scaled_median=_largest_number(measure.scaled_median for measure in measures),
        scaled_p99=_largest_number(measure.scaled_p99 for measure in measures),
        scaled_max=_largest_number(measure.scaled_max for measure in measures),
        regimes=_regimes(measures),
        bins=_bins(measures),
        sizes=extents(size for measure in measures for size in measure.sizes)[:_MOST],
    )


def _bins(measures: Sequence[Measure]) -> tuple[str, ...]:
    bins: dict[tuple[str, int], Bin] = {}
    for one in (Bin.of(text) for measure in measures for text in measure.bins):
        key = one.kind, one.low
        bins[key] = bins[key].joined(one) if key in bins else one
    return tuple(bins[key].text for key in sorted(bins))


def _largest_number(values: Iterable[float]) -> float:
    """The largest of the numbers; NaN where all are."""
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def _summed_seconds(pairs: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    totals: dict[str, float] = {}
    for name, seconds in pairs:
        totals[name] = totals.get(name, 0.0) + seconds
    return tuple(totals.items())


def _regimes(measures: Sequence[Measure]) -> tuple[tuple[str, int, int], ...]:
    counts: dict[str, tuple[int, int]] = {}
    for measure in measures:
        for name, judged, not_judged in measure.regimes:
            before = counts.get(name, (0, 0))
            counts[name] = (before[0] + judged, before[1] + not_judged)
    # Where there are too many regimes, those with the fewest judged elements are kept, as in the tally of one draw.
    least = sorted(counts, key=lambda name: counts[name])[:_MOST]
    return tuple((name, *counts[name]) for name in sorted(least))
