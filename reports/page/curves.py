"""Geometry of the plots of errors against magnitude and against reduction length. Pixels out, no drawing.

Both measures should be at most about 1: an error of the scale, in unit roundoffs, is 1 where one rounding makes it, and
error over bound is 1 at the bound. So both share one logarithmic axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...oracles.verdicts.verdict import Bin, Verdict
from ..text import by_key, series_name, short_dtype

WIDTH, HEIGHT = 316.0, 178.0
LEFT, RIGHT, TOP, FOOT = 34.0, 30.0, 8.0, 34.0
_LOW, _LEAST_HIGH = -8, 2  # log2 of the ends of the axis of errors, which rises to what a failing cell has
_HIGHEST = 16
_TICKS = 6  # of an axis, at most
_WORDS = {"magnitude": "largest operand", "length": "terms of the longest sum"}


@dataclass(frozen=True)
class Curve:
    """One dtype: the largest errors of its bins, joined; error over bound is the broken line."""

    dtype: str
    place: int  # in the list of dtypes
    scaled: str
    dots: str
    ratio: str
    end: tuple[float, float]


@dataclass(frozen=True)
class Grid:
    """A line of the grid, and its label."""

    at: float
    label: str


@dataclass(frozen=True)
class Panel:
    property: str
    words: str
    curves: tuple[Curve, ...]
    across: tuple[Grid, ...]
    up: tuple[Grid, ...]
    one: float  # y of 1


@dataclass(frozen=True)
class Figures:
    """The panels of one subject on one device, and the numbers that they show."""

    series: str
    panels: tuple[Panel, ...]
    numbers: tuple[tuple[str, str, Bin], ...]  # property, dtype


def figures(verdicts: Sequence[Verdict], dtypes: Sequence[str]) -> tuple[Figures, ...]:
    """The plots of one op, one row of panels per subject and device, whose samples were not the same."""
    rows = []
    sources = (verdict for verdict in verdicts if verdict.measure.bins)
    for series, mine in by_key(sources, lambda verdict: series_name(verdict.cell)).items():
        bins = [(verdict, Bin.of(text)) for verdict in mine for text in verdict.measure.bins]
        groups = by_key(bins, lambda pair: (pair[0].cell.property, pair[1].kind))
        # Where nothing is summed there is one length only, against which nothing can be drawn.
        wide = {key: pairs for key, pairs in groups.items() if len({one.low for _, one in pairs}) > 1}
        order = sorted(wide, key=lambda key: (key[0], key[1] == "length"))
        panels = tuple(_panel(*key, wide[key], dtypes) for key in order)
        numbers = tuple((verdict.cell.property, verdict.cell.dtype, one) for verdict, one in bins)
        rows.append(Figures(series, panels, numbers))
    return tuple(rows)


def _panel(name: str, kind: str, bins: Sequence[tuple[Verdict, Bin]], dtypes: Sequence[str]) -> Panel:
    lows = [one.low for _, one in bins]
    values = [value for _, one in bins for value in (one.scaled, one.ratio)]
    top = max(math.ceil(math.log2(max([*values, 1.0]))), _LEAST_HIGH)
    warp = _plain_number if kind == "length" else _warped
    across = _axis(warp(min(lows)), warp(max(lows)), LEFT, WIDTH - RIGHT, warp)
    up = _axis(_LOW, min(top, _HIGHEST), HEIGHT - FOOT, TOP, _plain_number)
    groups = by_key(bins, lambda pair: pair[0].cell.dtype)
    return Panel(
        property=name,
        words=_WORDS[kind],
        curves=tuple(_curve(dtype, dtypes.index(dtype), mine, across, up) for dtype, mine in groups.items()),
        across=_grid(_marks(kind, min(lows), max(lows)), across, _count if kind == "length" else _power_of_two),
        up=_grid(_evenly(_LOW, min(top, _HIGHEST)), up, _power_of_two),
        one=up(0),
    )


def _curve(
    dtype: str, place: int, bins: Sequence[tuple[Verdict, Bin]], across: Callable[[float], float],
    up: Callable[[float], float],
) -> Curve:  # fmt: skip
    ranked = sorted(bins, key=lambda pair: pair[1].low)
    scaled = [(across(one.low), up(_log(one.scaled))) for _, one in ranked]
    ratio = [(across(one.low), up(_log(one.ratio))) for _, one in ranked]
    dots = "".join(f"M{x:g} {y:g}h0" for x, y in scaled)
    return Curve(short_dtype(dtype), place, _join_points(scaled), dots, _join_points(ratio), scaled[-1])


def _join_points(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _log(value: float) -> float:
    return math.log2(value) if value > 0 else -math.inf


def _plain_number(at: float) -> float:
    return at


def _warped(at: float) -> float:
    """Exponents near 0, where most samples are, further apart than those of the ends of a format's range."""
    return math.copysign(math.log2(1 + abs(at) / 4), at)


def _axis(
    low: float, high: float, start: float, end: float, warp: Callable[[float], float]
) -> Callable[[float], float]:
    def place(at: float) -> float:
        # What is beyond the ends of the axis stands at them: an error of zero at the lower one.
        share = (min(max(warp(at), low), high) - low) / max(high - low, 1)
        return round(start + share * (end - start))

    return place


def _evenly(low: int, high: int) -> list[int]:
    step = max(1, math.ceil((high - low) / _TICKS))
    return [at for at in range(low, high + 1) if at % step == 0]


def _marks(kind: str, low: int, high: int) -> list[int]:
    if kind == "length":
        return _evenly(low, high)
    return [at for at in (-960, -128, -16, 0, 16, 128, 960) if low <= at <= high]


def _grid(marks: Sequence[int], axis: Callable[[float], float], label: Callable[[int], str]) -> tuple[Grid, ...]:
    return tuple(Grid(axis(at), label(at)) for at in marks)


def _count(exponent: int) -> str:
    return str(2**exponent) if exponent < 14 else _power_of_two(exponent)


def _power_of_two(exponent: int) -> str:
    return "1" if exponent == 0 else f"2^{exponent}"
