"""Several verdicts on one cell, each of samples drawn from a seed of its own, as one verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from ....oracles.verdicts.verdict import Bin, Failure, Measure, Verdict
from ...certificate.statement import extents
from ...collect import worse
from ...text import by_key

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
    worst = reduce(worse, verdicts)
    if len(verdicts) == 1:
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


#: Counts of a measure, and errors, ratios and widths.
_SUMMED = ("samples", "discarded", "judged", "not_judged", "refused")
_LARGEST = ("max_ulp", "max_ratio", "detect_median", "detect_worst", "ulp_median", "ulp_p99", "scaled_median",
            "scaled_p99", "scaled_max")  # fmt: skip


def _together(measures: Sequence[Measure]) -> Measure:
    worst = max(measures, key=lambda measure: (measure.worst is not None, measure.max_ratio))
    together: dict[str, Any] = {name: sum(getattr(measure, name) for measure in measures) for name in _SUMMED}
    together |= {name: _largest_number(getattr(measure, name) for measure in measures) for name in _LARGEST}
    sizes = extents(size for measure in measures for size in measure.sizes)[:_MOST]
    return replace(worst, **together, regimes=_regimes(measures), bins=_bins(measures), sizes=sizes)


def _bins(measures: Sequence[Measure]) -> tuple[str, ...]:
    bins = by_key((Bin.of(text) for measure in measures for text in measure.bins), lambda one: (one.kind, one.low))
    return tuple(reduce(Bin.joined, bins[key]).text for key in sorted(bins))


def _largest_number(values: Iterable[float]) -> float:
    """The largest of the numbers; NaN where all are."""
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def _summed_seconds(pairs: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    groups = by_key(pairs, lambda pair: pair[0])
    return tuple((name, sum(seconds for _, seconds in group)) for name, group in groups.items())


def _regimes(measures: Sequence[Measure]) -> tuple[tuple[str, int, int], ...]:
    groups = by_key((regime for measure in measures for regime in measure.regimes), lambda regime: regime[0])
    counts = {name: (sum(one[1] for one in group), sum(one[2] for one in group)) for name, group in groups.items()}
    # Where there are too many regimes, those with the fewest judged elements are kept, as in the tally of one draw.
    least = sorted(counts, key=lambda name: counts[name])[:_MOST]
    return tuple((name, *counts[name]) for name in sorted(least))
