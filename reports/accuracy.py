"""The measured accuracy of each op: one line per op and subject, for the report and as a table for documents.

Errors are compared between subjects only where both had the same samples. A cell's samples follow from its name,
which holds the subject. So subjects are compared in SIZE alone, the one question about values whose samples are the
same for all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..oracles.verdicts.verdict import CHECKED, HELD, Verdict
from .text import (
    TextTable,
    by_key,
    code_span,
    group_digits,
    has_ulps,
    have_same_samples,
    markdown,
    number,
    one_line,
    series_name,
    short_dtype,
)

#: Properties whose errors are listed: what a call returns, and what it gives back in reverse mode.
LISTED = ("FWD", "VJP")
#: Properties whose errors are listed where subjects are compared: their samples are the same for all subjects.
COMPARED = ("SIZE",)


@dataclass(frozen=True)
class Figure:
    """One dtype: the errors of each listed property, and the smallest error that could be seen, in ulp."""

    dtype: str
    ratio: str  # largest error/bound of the cells that compare values
    largest: tuple[str, ...]  # one per listed property: error on the scale of its tensor, in unit roundoffs
    median: tuple[str, ...]  # one per listed property, in ulp; no percentile says more where results cancel
    detects: str  # median over the cells of their median detectability


@dataclass(frozen=True)
class Line:
    """The accuracy of one op of one subject, over all properties and dtypes."""

    op: str
    series: str
    passing: int  # cells
    checked: int  # cells
    samples: int
    judged: int  # elements
    ratio: str  # largest error/bound of the cells that compare values
    worst: Verdict | None  # the cell of that ratio
    listed: tuple[str, ...]  # properties whose errors the figures have
    figures: tuple[Figure, ...]


def accuracy(verdicts: Iterable[Verdict]) -> tuple[Line, ...]:
    """The lines of all ops and subjects that were checked, in the order of the plan."""
    checked = [verdict for verdict in verdicts if verdict.outcome in CHECKED]
    # With one device its name would stand in every line and tell nothing.
    one_device = len({verdict.cell.device for verdict in checked}) == 1
    groups = by_key(checked, lambda v: (v.cell.op, v.cell.subject if one_device else series_name(v.cell)))
    listed = COMPARED if len(groups) > len({op for op, _ in groups}) else LISTED
    comparable = _comparable(checked) if listed is COMPARED else {verdict.cell.key for verdict in checked}
    return tuple(_accuracy_row(op, series, mine, listed, comparable) for (op, series), mine in groups.items())


def _comparable(verdicts: Sequence[Verdict]) -> set[str]:
    """Keys of the cells whose samples were the same for all subjects of the op that were asked."""
    keys: set[str] = set()
    groups = by_key(verdicts, lambda verdict: (verdict.cell.op, verdict.cell.property, verdict.cell.dtype))
    for group in groups.values():
        if all(have_same_samples(group[0].measure, other.measure) for other in group):
            keys |= {verdict.cell.key for verdict in group}
    return keys


def _accuracy_row(
    op: str, series: str, verdicts: Sequence[Verdict], listed: tuple[str, ...], comparable: set[str]
) -> Line:
    worst = max((v for v in verdicts if has_ulps(v.measure)), key=lambda v: v.measure.max_ratio, default=None)
    return Line(
        op=op,
        series=series,
        passing=sum(v.outcome in HELD for v in verdicts),
        checked=len(verdicts),
        samples=sum(v.measure.samples for v in verdicts),
        judged=sum(v.measure.judged for v in verdicts),
        ratio=number(worst.measure.max_ratio) if worst else "–",
        worst=worst,
        listed=listed,
        figures=tuple(
            _figure(dtype, verdicts, listed, comparable) for dtype in dict.fromkeys(v.cell.dtype for v in verdicts)
        ),
    )


def _figure(dtype: str, verdicts: Sequence[Verdict], listed: tuple[str, ...], comparable: set[str]) -> Figure:
    properties = {v.cell.property for v in verdicts if v.cell.dtype == dtype and v.cell.key in comparable}
    mine = {v.cell.property: v.measure for v in verdicts if v.cell.dtype == dtype and has_ulps(v.measure)}
    # Only NaN differs from itself. It stands where no width was measured, and the median of values with a
    # NaN among them is arbitrary.
    widths = [m.detect_median for m in mine.values() if m.detect_median == m.detect_median]
    return Figure(
        dtype=dtype,
        ratio=number(max(m.max_ratio for m in mine.values()), 2) if mine else "–",
        largest=tuple(number(mine[name].scaled_max, 2) if name in mine.keys() & properties else "–" for name in listed),
        median=tuple(number(mine[name].ulp_median, 2) if name in mine.keys() & properties else "–" for name in listed),
        detects=number(statistics.median(widths), 2) if widths else "–",
    )


def markdown_table(lines: Sequence[Line]) -> str:
    """The lines as a table in markdown; the subject's column only where there are several."""
    several = len({line.series for line in lines}) > 1
    dtypes = tuple(dict.fromkeys(figure.dtype for line in lines for figure in line.figures))
    short = ", ".join(markdown(short_dtype(name)) for name in dtypes)
    head = ["op", *(["subject"] if several else []), "cells held", "elements judged", f"largest error/bound: {short}"]
    listed = lines[0].listed if lines else LISTED
    head += [f"{name} largest error, u of the scale: {short}" for name in listed]
    head += [*(f"{name} median, ulp: {short}" for name in listed), f"detects, ulp: {short}"]
    rows = [head, ["---"] * len(head)]
    for line in lines:
        by = {figure.dtype: figure for figure in line.figures}
        figures = [by.get(name, Figure(name, "–", ("–",) * len(listed), ("–",) * len(listed), "–")) for name in dtypes]
        row = [code_span(line.op), *([markdown(line.series)] if several else []), f"{line.passing} of {line.checked}"]
        row += [group_digits(line.judged), ", ".join(figure.ratio for figure in figures)]
        row += [", ".join(figure.largest[i] for figure in figures) for i in range(len(listed))]
        row += [", ".join(figure.median[i] for figure in figures) for i in range(len(listed))]
        rows.append([*row, ", ".join(figure.detects for figure in figures)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def text_table(lines: Sequence[Line]) -> TextTable:
    """The lines for a terminal, a row per dtype: errors in u of the scale of the tensor, medians in ulp."""
    listed = lines[0].listed if lines else LISTED
    errors = (*(f"{name} largest (u)" for name in listed), *(f"{name} median (ulp)" for name in listed))
    headings = ("op", "subject", "dtype", "error/bound", *errors, "sees (ulp)")
    rows = [
        (*map(one_line, (line.op, line.series, it.dtype)), it.ratio, *it.largest, *it.median, it.detects)
        for line in lines
        for it in line.figures
    ]
    return TextTable(headings, rows, [])
