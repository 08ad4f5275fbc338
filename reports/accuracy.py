"""The measured accuracy of each op: one line per op and subject, for the report and as a table for documents."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..oracles.verdict import CHECKED, HELD, Verdict
from .page.chart import series_name, short_dtype
from .text import by_key, code_span, grouped, has_ulps, markdown, number

#: Properties whose errors are listed: what a call returns, and what it gives back in reverse mode.
LISTED = ("FWD", "VJP")


@dataclass(frozen=True)
class Figure:
    """One dtype: the median error of each listed property, and the smallest error that could be seen; in ulp."""

    dtype: str
    ratio: str  # largest error/bound of the cells that compare values
    median: tuple[str, ...]  # one per property of LISTED; no percentile says more where results cancel
    detects: str  # median over the cells of their median detectability


@dataclass(frozen=True)
class Line:
    """One op of one subject."""

    op: str
    series: str
    held: int
    checked: int
    samples: int
    judged: int
    ratio: str  # largest error/bound of the cells that compare values
    worst: Verdict | None  # the cell of that ratio
    figures: tuple[Figure, ...]


def accuracy(verdicts: Iterable[Verdict]) -> tuple[Line, ...]:
    """The lines of all ops and subjects that were checked, in the order of the plan."""
    checked = [verdict for verdict in verdicts if verdict.outcome in CHECKED]
    # With one device its name would stand in every line and tell nothing.
    one_device = len({verdict.cell.device for verdict in checked}) == 1
    groups = by_key(checked, lambda v: (v.cell.op, v.cell.subject if one_device else series_name(v.cell)))
    return tuple(_line(op, series, mine) for (op, series), mine in groups.items())


def _line(op: str, series: str, verdicts: Sequence[Verdict]) -> Line:
    worst = max((v for v in verdicts if has_ulps(v.measure)), key=lambda v: v.measure.max_ratio, default=None)
    return Line(
        op=op,
        series=series,
        held=sum(v.outcome in HELD for v in verdicts),
        checked=len(verdicts),
        samples=sum(v.measure.samples for v in verdicts),
        judged=sum(v.measure.judged for v in verdicts),
        ratio=number(worst.measure.max_ratio) if worst else "–",
        worst=worst,
        figures=tuple(_figure(dtype, verdicts) for dtype in dict.fromkeys(v.cell.dtype for v in verdicts)),
    )


def _figure(dtype: str, verdicts: Sequence[Verdict]) -> Figure:
    mine = {v.cell.property: v.measure for v in verdicts if v.cell.dtype == dtype and has_ulps(v.measure)}
    # Only NaN differs from itself. It stands where no width was measured, and the median of values with a
    # NaN among them is arbitrary.
    seen = [m.detect_median for m in mine.values() if m.detect_median == m.detect_median]
    return Figure(
        dtype=dtype,
        ratio=number(max(m.max_ratio for m in mine.values()), 2) if mine else "–",
        median=tuple(number(mine[name].ulp_median, 2) if name in mine else "–" for name in LISTED),
        detects=number(statistics.median(seen), 2) if seen else "–",
    )


def markdown_table(lines: Sequence[Line]) -> str:
    """The lines as a table in markdown; the subject's column only where there are several."""
    several = len({line.series for line in lines}) > 1
    dtypes = tuple(dict.fromkeys(figure.dtype for line in lines for figure in line.figures))
    short = ", ".join(markdown(short_dtype(name)) for name in dtypes)
    head = ["op", *(["subject"] if several else []), "cells held", "elements judged", f"largest error/bound: {short}"]
    head += [*(f"{name} median, ulp: {short}" for name in LISTED), f"detects, ulp: {short}"]
    rows = [head, ["---"] * len(head)]
    for line in lines:
        by = {figure.dtype: figure for figure in line.figures}
        found = [by.get(name, Figure(name, "–", ("–",) * len(LISTED), "–")) for name in dtypes]
        row = [code_span(line.op), *([markdown(line.series)] if several else []), f"{line.held} of {line.checked}"]
        row += [grouped(line.judged), ", ".join(figure.ratio for figure in found)]
        row += [", ".join(figure.median[i] for figure in found) for i in range(len(LISTED))]
        rows.append([*row, ", ".join(figure.detects for figure in found)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
