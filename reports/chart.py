"""Geometry of the accuracy plot: errors and detectability on a log2 axis of ulps. Pixels out, no drawing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..oracles.verdict import Cell, Verdict
from .text import number

LEFT, RIGHT, TOP, ROW = 128.0, 30.0, 24.0, 13.0
WIDTH = 1100.0
_ZERO_GAP = 68.0  # room left of the axis for exact results, and right of it for errors off the scale
_LONGEST = 24  # doublings; where a result cancels, its error in ulp has no limit, and the plot would be empty
_SHORT = {"float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16"}
_OFFSETS = (-2.6, 2.6, -5.0, 5.0)  # so that the marks of two subjects in one row stay apart


@dataclass(frozen=True)
class Mark:
    x: float
    y: float
    series: int  # index into Plot.series
    shape: str  # "dot" inside the scale, "zero" exact, "over" off the scale or infinite
    bad: bool
    detect: float | None  # x of the median detectability
    title: str
    facets: str


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
    strong: bool


@dataclass(frozen=True)
class Plot:
    """One op's accuracy, ready to draw."""

    width: float
    height: float
    axis: tuple[float, float]  # x of the ends of the scale
    zero: float  # x of the column of exact results
    over: float  # x of the column of errors off the scale
    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    half: float  # x of 0.5 ulp
    series: tuple[str, ...]


@dataclass(frozen=True)
class _Scale:
    low: int  # log2 of the left end, ulps
    high: int

    def x(self, value: float) -> float:
        left, right = LEFT + _ZERO_GAP, WIDTH - RIGHT - _ZERO_GAP
        share = (math.log2(value) - self.low) / (self.high - self.low)
        return left + min(max(share, 0.0), 1.0) * (right - left)


def accuracy_plot(verdicts: Sequence[Verdict], series: Sequence[str]) -> Plot | None:
    """The plot of one op; None if nothing was measured.

    Args:
        verdicts: of one op, in the report's order.
        series: "subject device" in the order of the legend.
    """
    measured = [verdict for verdict in verdicts if _is_measured(verdict)]
    if not measured:
        return None
    scale = _scale(measured)
    rows = _rows(measured, series, scale)
    left, right = scale.x(2.0**scale.low), scale.x(2.0**scale.high)
    return Plot(
        width=WIDTH,
        height=TOP + ROW * len(rows) + 34,
        axis=(left, right),
        zero=left - _ZERO_GAP / 2,
        over=right + _ZERO_GAP / 2,
        rows=rows,
        ticks=_ticks(scale),
        half=scale.x(0.5),
        series=tuple(series),
    )


def series_name(cell: Cell) -> str:
    return f"{cell.subject} {cell.device}"


def short_dtype(dtype: str) -> str:
    return _SHORT.get(dtype, dtype[:6])


def _is_measured(verdict: Verdict) -> bool:
    measure = verdict.measure
    return measure.judged > 0 and (measure.max_ulp > 0 or measure.detect_median > 0)


def _scale(verdicts: Sequence[Verdict]) -> _Scale:
    measures = [verdict.measure for verdict in verdicts]
    values = [m.max_ulp for m in measures] + [m.detect_median for m in measures]
    usable = [value for value in values if math.isfinite(value) and value > 0]
    low = math.floor(math.log2(min(usable, default=0.25)))
    high = math.ceil(math.log2(max(usable, default=4.0)))
    low, high = max(min(low, -2), -4), max(high, 3)
    return _Scale(low, min(high, low + _LONGEST))


def _rows(verdicts: Sequence[Verdict], series: Sequence[str], scale: _Scale) -> tuple[Row, ...]:
    grouped: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        grouped.setdefault((verdict.cell.property, verdict.cell.dtype), []).append(verdict)
    rows: list[Row] = []
    before = ""
    for index, ((name, dtype), mine) in enumerate(grouped.items()):
        y = TOP + ROW * (index + 0.5)
        marks = tuple(_mark(verdict, series, scale, y) for verdict in mine)
        rows.append(Row(y, "" if name == before else name, short_dtype(dtype), marks))
        before = name
    return tuple(rows)


def _mark(verdict: Verdict, series: Sequence[str], scale: _Scale, y: float) -> Mark:
    measure, cell = verdict.measure, verdict.cell
    index = series.index(series_name(cell))
    value, detect = measure.max_ulp, measure.detect_median
    shape, x = "dot", 0.0
    if value == 0:
        shape = "zero"
    elif value <= 2.0**scale.high:
        x = scale.x(value)
    else:
        shape = "over"
    seen = 0 < detect <= 2.0**scale.high
    title = (
        f"{cell.property} {cell.dtype} {series_name(cell)}: {verdict.outcome}, max {number(value)} ulp,"
        f" error/bound {number(measure.max_ratio)}, detectability {number(detect)} ulp"
    )
    return Mark(
        x=round(x, 1),
        y=round(y + (_OFFSETS[index % 4] if len(series) > 1 else 0.0), 1),
        series=index % 4,
        shape=shape,
        bad=measure.max_ratio > 1 or not math.isfinite(value),
        detect=round(scale.x(detect), 1) if seen else None,
        title=title,
        facets=f"{cell.dtype} {cell.subject}",
    )


def _ticks(scale: _Scale) -> tuple[Tick, ...]:
    span = scale.high - scale.low
    step = 1 if span <= 14 else 2 if span <= 28 else 4
    exponents = range(scale.low, scale.high + 1)
    return tuple(Tick(round(scale.x(2.0**e), 1), _tick_label(e), e == -1) for e in exponents if e % step == 0)


def _tick_label(exponent: int) -> str:
    if -4 <= exponent <= 9:
        return f"{2.0**exponent:g}"
    return f"2^{exponent}"
