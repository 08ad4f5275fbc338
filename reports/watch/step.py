"""Geometry of the step: errors over bounds along the calls, thinned to columns, and the calls in their order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from ...oracles.verdicts.watched import CallRecord, Watched
from ..text import number
from .totals import COMPUTING, UNKEPT

_WIDTH = 1000
_TOP, _FLOOR = 12, 196  # y of the largest error, and of the smallest that has a place of its own
_ZERO, _UNREAD = 207, 215  # y of exact results, and of calls that were not judged
_LOWEST, _HIGHEST = -4, 12  # log10 of error over bound
_COLUMNS = 700
_DOTS = 60  # calls outside that can be clicked in the plot
_CHIPS = 6000  # calls that are written out; after them those outside alone


@dataclass(frozen=True)
class StepPlot:
    """The plot of a step, ready to draw.

    Attributes:
        paths: class and path; in each column a line from the smallest error to the largest one.
        ticks: y and label. one: y of the bound. spans: left end and width in percent, and their phase.
        dots: left end in percent, y, site and call, of calls outside.
    """

    paths: Sequence[tuple[str, str]]
    ticks: Sequence[tuple[float, str]]
    one: float
    spans: Sequence[tuple[float, float, str]]
    dots: Sequence[tuple[float, float, int, int]]


@dataclass(frozen=True)
class Stretch:
    """Calls of one module and pass that follow each other.

    Attributes:
        first: the number of the first one. module, backward: where.
        chips: of calls of one site that follow each other: site, how many, and what was found ("held", "outside",
            "unread", or "other" of what has no numbers).
    """

    first: int
    module: str
    backward: bool
    chips: Sequence[tuple[int, int, str]]


def step_plot(watched: Watched) -> StepPlot | None:
    """The plot of a program's calls; None where none was judged."""
    ratios = [call.ratio for call in watched.calls if not math.isnan(call.ratio)]
    if not ratios:
        return None
    finite = [math.log10(ratio) for ratio in ratios if 0 < ratio < math.inf]
    low = max(math.floor(min([*finite, -2.0])), _LOWEST)
    high = min(math.ceil(max([*finite, 1.0])) + (math.inf in ratios), _HIGHEST)

    def y(ratio: float) -> float:
        share = (math.log10(ratio) - low) / (high - low) if 0 < ratio < math.inf else float(ratio > 0)
        return round(_FLOOR + min(max(share, 0.0), 1.0) * (_TOP - _FLOOR), 1) if ratio else _ZERO

    count = min(len(watched.calls), _COLUMNS)
    ends = [len(watched.calls) * i // count for i in range(count + 1)]
    columns = [watched.calls[start:end] for start, end in pairwise(ends)]
    exponents = range(low, high + 1, 2 if high - low > 9 else 1)
    ticks = [(y(10.0**e), number(10.0**e) if -4 < e < 4 else f"1e{e}") for e in exponents]
    return StepPlot(_paths(watched, columns, y), ticks, y(1.0), _phases(watched, columns), _dots(watched, y))


def _phases(watched: Watched, columns: Sequence[Sequence[CallRecord]]) -> list[tuple[float, float, str]]:
    """Stretches of columns whose calls are mostly forward, backward, or of no module, as those of an optimizer."""
    has_modules = any(site.place.module for site in watched.sites)

    def phase(call: CallRecord) -> str:
        place = watched.sites[call.site].place
        return "backward" if place.node else "forward" if place.module or not has_modules else "elsewhere"

    names = [Counter(map(phase, column)).most_common(1)[0][0] for column in columns]
    phases, start, unit = [], 0, 100 / len(columns)
    for name, run in groupby(names):
        length = len(list(run))
        phases.append((round(start * unit, 2), round(length * unit, 2), name))
        start += length
    return phases


def _paths(
    watched: Watched, columns: Sequence[Sequence[CallRecord]], y: Callable[[float], float]
) -> list[tuple[str, str]]:
    marks: dict[str, list[str]] = {name: [] for name in ("exact", "forward", "backward", "outside", "unread")}
    for i, column in enumerate(columns):
        heights: dict[str, list[float]] = {}
        for call in column:
            site, kind = watched.sites[call.site], finding_of(watched, call)
            if kind == "held":
                kind = "exact" if call.ratio == 0 else "backward" if site.place.node else "forward"
            heights.setdefault(kind, []).append(_UNREAD if kind == "unread" else y(call.ratio))
        for name in heights.keys() & marks.keys():
            low, high = min(heights[name]), max(heights[name])
            x = round(_WIDTH * (i + 0.5) / len(columns), 1)
            marks[name].append(f"M{x:g} {low:g}" + (f"V{high:g}" if high > low else "h0"))
    return [(name, "".join(parts)) for name, parts in marks.items() if parts]


def _dots(watched: Watched, y: Callable[[float], float]) -> list[tuple[float, float, int, int]]:
    outside = [(call.ratio, i, call.site) for i, call in enumerate(watched.calls) if call.ratio > 1]
    share = 100 / len(watched.calls)
    return [
        (round(share * (i + 0.5), 2), y(ratio), site, i) for ratio, i, site in sorted(outside, reverse=True)[:_DOTS]
    ]


def finding_of(watched: Watched, call: CallRecord) -> str:
    """ "held", "outside", "unread", or "other" of a call without numbers."""
    if not math.isnan(call.ratio):
        return "outside" if call.ratio > 1 else "held"
    return "unread" if watched.sites[call.site].kind in COMPUTING | UNKEPT else "other"


def stretches_of(watched: Watched) -> tuple[list[Stretch], int]:
    """The calls in order, those of one module and pass together; and how many are left out."""
    stretches, first, room = [], 0, _CHIPS
    places = [site.place for site in watched.sites]
    for (module, backward), run in groupby(
        watched.calls, lambda call: (places[call.site].module, bool(places[call.site].node))
    ):
        same = groupby(run, lambda call: (call.site, finding_of(watched, call)))
        whole = [(site, len(list(calls)), kind) for (site, kind), calls in same]
        chips = whole if room > 0 else [chip for chip in whole if chip[2] == "outside"]
        if chips:
            stretches.append(Stretch(first, module, backward, chips[:_CHIPS]))
        room -= len(whole)
        first += sum(count for _, count, _ in whole)
    return stretches, first - sum(count for line in stretches for _, count, _ in line.chips)
