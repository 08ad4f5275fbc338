"""Geometry of the accuracy plot: errors and detectability on a log2 axis of ulps. Pixels out, no drawing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...oracles.verdict import Cell, Measure, Verdict
from ..text import by_key, has_ulps, number

LEFT, TOP, FOOT, ROW = 128.0, 24.0, 34.0, 22.0
WIDTH = 1170.0
_ZERO_GAP = 72.0  # room left of the axis for exact results
_OVER_GAP = 172.0  # room right of it for errors off the scale, with their numbers
_LONGEST = 13  # doublings; where a result cancels, its error in ulp has no limit, and the plot would be empty
_SHORT = {"float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16"}
_SERIES = 4  # kinds of marks
#: So that the marks of several subjects in one row stay apart.
_OFFSETS = {1: (0.0,), 2: (-4.8, 4.8), 3: (-7.0, 0.0, 7.0), 4: (-8.1, -2.7, 2.7, 8.1)}


@dataclass(frozen=True)
class Point:
    """Where an error stands: "scale", or "zero" for exact, or "over" for more than the scale shows."""

    x: float
    place: str


@dataclass(frozen=True)
class Mark:
    """One cell: the 99th percentile, a stem down to the median, and the largest error."""

    y: float
    series: int  # kind of mark, by the place in the list of series
    p99: Point | None
    median: Point | None
    largest: Point
    detect: float | None  # x of the median detectability
    said: str  # what is off the scale, in numbers
    bad: bool  # outside its bound
    title: str
    cell_id: str


@dataclass(frozen=True)
class Row:
    y: float
    property: str  # empty but in the first row of a property
    dtype: str
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Tick:
    x: float
    label: str


@dataclass(frozen=True)
class Plot:
    """One op's accuracy, ready to draw."""

    width: float
    height: float
    floor: float  # y of the lower end of the grid
    axis: tuple[float, float]  # x of the ends of the scale
    zero: float  # x of the column of exact results
    over: float  # x of the column of errors off the scale
    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    half: float  # x of 0.5 ulp


@dataclass(frozen=True)
class _Scale:
    low: int  # log2 of the left end, ulps
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

    def shows(self, value: float) -> bool:
        return 0 < value <= 2.0**self.high

    def point(self, value: float) -> Point:
        if self.shows(value):
            return Point(self.x(value), "scale")
        zero, over = self.columns
        return Point(zero, "zero") if value == 0 else Point(over, "over")


def accuracy_plot(verdicts: Sequence[Verdict], series: Sequence[str]) -> Plot | None:
    """The plot of one op; None if no property of it compares values.

    Args:
        verdicts: of one op, in the report's order.
        series: "subject device" in the order of the legend.
    """
    compared = [verdict for verdict in verdicts if has_ulps(verdict.measure)]
    if not compared:
        return None
    scale = _scale([verdict.measure for verdict in compared])
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
        ticks=_ticks(scale),
        half=scale.x(0.5),
    )


def series_name(cell: Cell) -> str:
    return f"{cell.subject} {cell.device}"


def short_dtype(dtype: str) -> str:
    return _SHORT.get(dtype, dtype[:6])


def _scale(measures: Sequence[Measure]) -> _Scale:
    """An axis for the percentiles, which are bounded in practice; the largest errors may leave it."""
    tops = _usable([measure.ulp_p99 for measure in measures]) or _usable([measure.max_ulp for measure in measures])
    # A quarter of an ulp is always inside, so that the line at half an ulp, the error of
    # correct rounding, is on the axis.
    lows = [*tops, *_usable([measure.ulp_median for measure in measures]), 0.25]
    low = max(math.floor(math.log2(min(lows))), -4)
    # Where results cancel, an error has no limit in ulp. Such values stand beside the axis; drawn to scale, one of them
    # would press all others together at the left end.
    inside = [value for value in tops if value <= 2.0 ** (low + _LONGEST)]
    high = math.ceil(math.log2(max(inside, default=4.0)))
    # At least six doublings are shown. Otherwise small differences would look large in the plot of a very accurate op.
    return _Scale(low, max(high, low + 6))


def _usable(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value) and value > 0]


def _rows(verdicts: Sequence[Verdict], series: Sequence[str], scale: _Scale) -> tuple[Row, ...]:
    groups = by_key(verdicts, lambda verdict: (verdict.cell.property, verdict.cell.dtype))
    rows: list[Row] = []
    before = ""
    for index, ((name, dtype), mine) in enumerate(groups.items()):
        y = TOP + ROW * (index + 0.5)
        marks = tuple(_mark(verdict, series, scale, y) for verdict in mine)
        # The name of a property stands in its first row only, so that the eye finds the blocks.
        rows.append(Row(y, "" if name == before else name, short_dtype(dtype), marks))
        before = name
    return tuple(rows)


def _mark(verdict: Verdict, series: Sequence[str], scale: _Scale, y: float) -> Mark:
    measure, cell = verdict.measure, verdict.cell
    # There are four kinds of marks; a fifth series takes the first again, and its title still tells it apart.
    index = series.index(series_name(cell)) % _SERIES
    p99, median = (None if math.isnan(v) else scale.point(v) for v in (measure.ulp_p99, measure.ulp_median))
    largest = scale.point(measure.max_ulp)
    figures = f"median {number(measure.ulp_median)}, p99 {number(measure.ulp_p99)}, max {number(measure.max_ulp)} ulp"
    bound = f"error/bound {number(measure.max_ratio)}, detectability {number(measure.detect_median)} ulp"
    said = number(measure.max_ulp) if largest.place == "over" else ""
    # Off the scale both marks stand at one place, so only the numbers tell them apart.
    if p99 is not None and p99.place == "over":
        said = f"p99 {number(measure.ulp_p99)}, max {said}"
    return Mark(
        y=round(y + _OFFSETS[min(len(series), _SERIES)][index], 1),
        series=index,
        p99=p99,
        median=median,
        largest=largest,
        detect=scale.x(measure.detect_median) if scale.shows(measure.detect_median) else None,
        said=said,
        bad=measure.max_ratio > 1,
        title=f"{cell.property} {cell.dtype} {series_name(cell)}: {verdict.outcome}; {figures}; {bound}",
        cell_id=cell.id,
    )


def _ticks(scale: _Scale) -> tuple[Tick, ...]:
    return tuple(Tick(scale.x(2.0**e), _tick_label(e)) for e in range(scale.low, scale.high + 1))


def _tick_label(exponent: int) -> str:
    if exponent < 0:
        return {-1: "½", -2: "¼", -3: "⅛"}.get(exponent, f"1/{2**-exponent}")
    return str(2**exponent)
