"""Pages about several runs, each one HTML file: offline, without scripts, and safe with hostile names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import jinja2
from markupsafe import Markup

from ..record import Run
from ..templates import source_of, templates_of
from ..text import duration, number
from .comparison import ABOUT, Comparison, Kind
from .trends import Course, HistoryRun, Trend, describe_state

_WIDTH, _HEIGHT, _MARGIN = 140, 28, 4  # of a line in a table, in pixels
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def comparison_page(comparison: Comparison, before: Run, now: Run) -> str:
    """The page of two runs and their comparison: what is new, worse, lost, fixed, better, slower, and what differs."""
    kinds = [(kind, ABOUT[kind], comparison.of(kind)) for kind in Kind]
    poor = sum(len(comparison.of(kind)) for kind in (Kind.NEW, Kind.WORSE, Kind.LOST))
    return _page("comparison.html", comparison=comparison, kinds=kinds, poor=poor, runs={"before": before, "now": now})


def history_page(trends: Sequence[Trend], runs: Sequence[HistoryRun], failures: Sequence[Course] = ()) -> str:
    """The page of runs, the oldest first: what held of each op, its largest error, its time; the last failures."""
    return _page("history.html", trends=trends, runs=runs, failures=failures)


def _page(name: str, **values: object) -> str:
    # The style is a file of ours and not text from a run, so it alone is not escaped.
    style = Markup(source_of(__package__, "over_time.css"))
    return _templates().get_template(name).render(style=style, policy=_POLICY, **values)


@cache
def _templates() -> jinja2.Environment:
    return templates_of(__package__, state=describe_state, error_line=_draw_errors, time_line=_draw_times)


def _draw_errors(trend: Trend) -> Markup:
    return _draw_line([point.ratio for point in trend.points], [point.failed for point in trend.points], number)


def _draw_times(trend: Trend) -> Markup:
    return _draw_line([point.seconds for point in trend.points], [0] * len(trend.points), duration)


def _draw_line(values: Sequence[float], failed: Sequence[int], describe: Callable[[float], str]) -> Markup:
    """An SVG line through the values of runs; its title gives the first, the last and the largest value.

    The last run has a mark, and each run in which cells failed. A NaN is left out, an infinity is drawn at the top.

    Args:
        values: one per run. failed: how many cells failed, one per run. describe: the text of a value.
    """
    finite = [value for value in values if math.isfinite(value)]
    top = max(finite, default=0.0) or 1.0
    step = (_WIDTH - 2 * _MARGIN) / max(len(values) - 1, 1)
    places = [
        (_MARGIN + i * step, _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * min(value / top, 1.0), bad)
        for i, (value, bad) in enumerate(zip(values, failed, strict=True))
        if not math.isnan(value)
    ]
    if not places:
        return Markup('<span class="soft">–</span>')
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
    circles = "".join(
        f'<circle class="{"failed" if bad else "held"}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
        for x, y, bad in [*(place for place in places if place[2]), places[-1]]
    )
    most = max(value for value in values if not math.isnan(value))
    text = f"from {describe(values[0])} to {describe(values[-1])}, at most {describe(most)}"
    # Every part is a number or a text of ours, so nothing here has to be escaped.
    return Markup(
        f'<svg role="img" aria-label="{text}" width="{_WIDTH}" height="{_HEIGHT}"><title>{text}</title>'
        f'<polyline class="line" points="{points}"/>{circles}</svg>'
    )
