"""Geometry of the accuracy plot: errors on the scale of their tensors, in unit roundoffs. Pixels out, no drawing.

An error relative to the largest number of its tensor, over the unit roundoff of the format, is 1 where one rounding of
that number would make it. So all dtypes share one axis, and where results cancel nothing leaves it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...oracles.verdicts.verdict import Verdict
from ..text import by_key, have_same_samples, number, series_name, short_dtype
from .curves import Grid

LEFT, TOP, FOOT, ROW = 190.0, 24.0, 34.0, 17.0
WIDTH = 1080.0
_ZERO_GAP = 72.0  # room left of the axis for exact results
_OVER_GAP = 190.0  # room right of it for errors off the scale, with their numbers
_LONGEST = 13  # doublings; a failure may be off by any factor, and the other marks would be pressed together
_SERIES = 4  # kinds of marks
#: By number of subjects, the vertical shifts in pixels that keep their marks in one row apart.
_OFFSETS = {1: (0.0,), 2: (-3.6, 3.6), 3: (-5.0, 0.0, 5.0), 4: (-6.0, -2.0, 2.0, 6.0)}


@dataclass(frozen=True)
class ChartPoint:
    """Where an error stands: "scale", or "zero" for exact, or "over" for more than the scale shows."""

    x: float
    place: str


@dataclass(frozen=True)
class Mark:
    """One cell: the 99th percentile and the largest error."""

    y: float
    series: int  # kind of mark, by the place in the list of series
    p99: ChartPoint | None
    largest: ChartPoint
    label: str  # what is off the scale, in numbers
    bad: bool  # outside its bound


@dataclass(frozen=True)
class ChartRow:
    y: float
    property: str  # empty but in the first row of a property
    dtype: str
    series: str  # the subject and device of a row that has only one of several
    ratio: str  # largest error over bound of each mark
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Stroke:
    """All marks of one kind as paths: one element of the page for hundreds of marks. A dot is a line of no length."""

    series: int
    bad: bool
    stems: str
    p99: str
    largest: str


@dataclass(frozen=True)
class Plot:
    """One op's accuracy, ready to draw."""

    width: float
    height: float
    floor: float  # y of the lower end of the grid
    axis: tuple[float, float]  # x of the ends of the scale
    zero: float  # x of the column of exact results
    over: float  # x of the column of errors off the scale
    rows: tuple[ChartRow, ...]
    strokes: tuple[Stroke, ...]
    ticks: tuple[Grid, ...]
    one: float  # x of one unit roundoff


@dataclass(frozen=True)
class _Scale:
    low: int  # log2 of the left end, unit roundoffs
    high: int

    @property
    def ends(self) -> tuple[float, float]:
        return LEFT + _ZERO_GAP, WIDTH - _OVER_GAP

    @property
    def columns(self) -> tuple[float, float]:
        """x of exact results and of errors off the scale."""
        left, right = self.ends
        return left - _ZERO_GAP / 2, right + 16

    def x(self, value: float) -> float:
        left, right = self.ends
        # A value below the scale stands at its left end, since an error that is so small needs no place of its own.
        share = (math.log2(value) - self.low) / (self.high - self.low)
        return round(left + min(max(share, 0.0), 1.0) * (right - left), 1)

    def point(self, value: float) -> ChartPoint:
        if 0 < value <= 2.0**self.high:
            return ChartPoint(self.x(value), "scale")
        zero, over = self.columns
        return ChartPoint(zero, "zero") if value == 0 else ChartPoint(over, "over")


def accuracy_plot(verdicts: Sequence[Verdict], series: Sequence[str]) -> Plot | None:
    """The plot of one op's verdicts; None if no property of it compares values. `series`: names, as in the legend."""
    compared = [
        verdict for verdict in verdicts if verdict.measure.judged and not math.isnan(verdict.measure.scaled_max)
    ]
    if not compared:
        return None
    scale = _scale(compared)
    rows = _rows(compared, series, scale)
    zero, over = scale.columns
    floor = TOP + ROW * len(rows) + 4
    return Plot(
        width=WIDTH,
        height=floor + FOOT,
        floor=floor,
        axis=scale.ends,
        zero=zero,
        over=over,
        rows=rows,
        strokes=_strokes(rows),
        ticks=tuple(Grid(scale.x(2.0**e), _tick_label(e)) for e in range(scale.low, scale.high + 1)),
        one=scale.x(1.0),
    )


def _scale(verdicts: Sequence[Verdict]) -> _Scale:
    """An axis for the percentiles and for errors within their bounds; the error of a failure may lie beyond its end."""
    tops = _usable([verdict.measure.scaled_max for verdict in verdicts])
    lows = [*tops, *_usable([verdict.measure.scaled_p99 for verdict in verdicts]), 0.5]
    low = max(math.floor(math.log2(min(lows))), -5)
    inside = [value for value in tops if value <= 2.0 ** (low + _LONGEST)]
    high = math.ceil(math.log2(max(inside, default=4.0)))
    # At least six doublings are shown. Otherwise small differences would look large in the plot of a very accurate op.
    return _Scale(low, max(high, low + 6))


def _usable(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value) and value > 0]


def _rows(verdicts: Sequence[Verdict], series: Sequence[str], scale: _Scale) -> tuple[ChartRow, ...]:
    groups = by_key(verdicts, lambda verdict: (verdict.cell.property, verdict.cell.dtype))
    # Where there is one device its name says nothing.
    devices = {verdict.cell.device for verdict in verdicts}
    names = {series_name(v.cell): v.cell.subject if len(devices) == 1 else series_name(v.cell) for v in verdicts}
    rows: list[ChartRow] = []
    before = ""
    for (name, dtype), group in groups.items():
        # Marks of several subjects in one row are compared by whoever looks at it, so they need equal samples.
        alike = all(have_same_samples(group[0].measure, other.measure) for other in group)
        for mine in [group] if alike else [[verdict] for verdict in group]:
            y = TOP + ROW * (len(rows) + 0.5)
            one = names[series_name(mine[0].cell)] if len(series) > 1 and len(mine) == 1 else ""
            ratio = " / ".join(number(verdict.measure.max_ratio, 2) for verdict in mine)
            marks = tuple(_mark(verdict, series, scale, y, len(mine)) for verdict in mine)
            # The name of a property stands in its first row only, so that the eye finds the blocks.
            rows.append(ChartRow(y, "" if name == before else name, short_dtype(dtype), one, ratio, marks))
            before = name
    return tuple(rows)


def _strokes(rows: Sequence[ChartRow]) -> tuple[Stroke, ...]:
    kinds = by_key((mark for row in rows for mark in row.marks), lambda mark: (mark.series, mark.bad))
    return tuple(
        Stroke(
            series,
            bad,
            "".join(f"M{m.p99.x:g} {m.y:g}H{m.largest.x:g}" for m in marks if m.p99 and m.largest.place == "scale"),
            "".join(f"M{m.p99.x:g} {m.y:g}h0" for m in marks if m.p99 and m.p99.place != "over"),
            "".join(f"M{m.largest.x:g} {m.y:g}h0" for m in marks),
        )
        for (series, bad), marks in kinds.items()
    )


def _mark(verdict: Verdict, series: Sequence[str], scale: _Scale, y: float, marks: int) -> Mark:
    # There are four kinds of marks; a fifth series takes the first again, and the table still tells it apart.
    index = series.index(series_name(verdict.cell)) % _SERIES
    p99, largest = verdict.measure.scaled_p99, scale.point(verdict.measure.scaled_max)
    label = f"{number(verdict.measure.scaled_max)} u" if largest.place == "over" else ""
    shift = _OFFSETS[min(len(series), _SERIES)][index] if marks > 1 else 0.0
    return Mark(
        y=round(y + shift, 1),
        series=index,
        p99=None if math.isnan(p99) else scale.point(p99),
        largest=largest,
        label=label,
        bad=verdict.measure.max_ratio > 1,
    )


def _tick_label(exponent: int) -> str:
    if exponent < 0:
        return {-1: "½", -2: "¼", -3: "⅛"}.get(exponent, f"1/{2**-exponent}")
    return str(2**exponent)
