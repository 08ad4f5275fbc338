"""The course of each op over the runs of a history: what held, the largest error and the time, from run to run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ...oracles.verdicts.verdict import FAILED, HELD, Outcome
from ...reference.dtypes import HALF_TYPES
from ..text import by_key
from .comparison import Limits
from .history import History

#: Half types are rounded once, so that their accept set is mostly one value and their error/bound is 1 by nature. Where
#: an op was asked in wider types, those alone tell whether its error changes.
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class HistoryRun:
    """One run of the history."""

    digest: str
    file: str
    started: str
    revision: str  # the commit
    version: str
    torch: str
    profile: str
    seed: str
    seconds: float
    exit_code: int


@dataclass(frozen=True)
class Point:
    """An op of one subject in one run; its cells are counted by how they ended."""

    run: HistoryRun
    held: int
    failed: int
    undecided: int  # crashed, out of time, or an error of the framework
    ratio: float  # largest error/bound; NaN where none was measured
    seconds: float

    @property
    def state(self) -> str:
        """A failure outweighs what is not decided, and that outweighs what held."""
        return "failed" if self.failed else "undecided" if self.undecided else "held" if self.held else "not checked"


@dataclass(frozen=True)
class Trend:
    """An op of one subject on one device, over all runs that planned it, the oldest first."""

    op: str
    device: str
    subject: str
    points: tuple[Point, ...]

    @property
    def last(self) -> Point:
        return self.points[-1]

    @property
    def since(self) -> Point:
        """The first run from which on the op has been in the state in which it is now."""
        first = self.last
        for point in reversed(self.points):
            if point.state != first.state:
                break
            first = point
        return first

    @property
    def errors(self) -> str:
        """Whether the largest error of the last run is `larger`, `smaller` or `steady` beside those before it."""
        return _course([point.ratio for point in self.points], Limits().error)

    @property
    def pace(self) -> str:
        """Whether the time of the last run is `larger`, `smaller` or `steady` beside those before it."""
        return _course([point.seconds for point in self.points], Limits().time)


def describe_state(point: Point) -> str:
    """`81 held`, `2 failed, 79 held`."""
    counts = {"failed": point.failed, "undecided": point.undecided, "held": point.held}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or point.state


def runs_of(history: History) -> list[HistoryRun]:
    """All runs, the oldest first."""
    rows = history.connection.execute("SELECT * FROM runs ORDER BY started, digest")
    return [HistoryRun(*row) for row in rows]


def trends_of(history: History, runs: Sequence[HistoryRun]) -> list[Trend]:
    """The trend of each op and subject over some runs, in the order of the names."""
    held_names, failed_names = sql_list(HELD), sql_list(FAILED)
    undecided_names = sql_list((Outcome.CRASH, Outcome.ERROR, Outcome.TIMEOUT))
    query = f"""
        SELECT op, device, subject, sum(outcome IN ({held_names})), sum(outcome IN ({failed_names})),
               sum(outcome IN ({undecided_names})),
               coalesce(max(CASE WHEN dtype NOT IN ({sql_list(HALF_TYPES)}) AND judged > 0 THEN ratio END),
                        max(CASE WHEN judged > 0 THEN ratio END)),
               sum(seconds)
        FROM cells WHERE run = ? GROUP BY op, device, subject
    """
    points = []
    for run in runs:
        for op, device, subject, good, bad, unclear, ratio, seconds in history.connection.execute(query, (run.digest,)):
            point = Point(run, good, bad, unclear, math.nan if ratio is None else ratio, seconds)
            points.append(((str(op), str(device), str(subject)), point))
    groups = by_key(points, lambda pair: pair[0])
    return [Trend(*key, points=tuple(point for _, point in groups[key])) for key in sorted(groups)]


def bars(values: Sequence[float]) -> str:
    """The values as a row of signs, `▁▃█`, from zero to the largest; `·` where there is none."""
    top = max((value for value in values if math.isfinite(value)), default=0.0)
    signs = []
    for value in values:
        if math.isnan(value):
            signs.append("·")
        elif math.isinf(value) or not top:
            signs.append("∞" if value > 0 else _BARS[0])
        else:
            signs.append(_BARS[min(len(_BARS) - 1, int(len(_BARS) * value / top))])
    return "".join(signs)


def _course(values: Sequence[float], factor: float) -> str:
    *before, last = [value for value in values if not math.isnan(value)] or [math.nan]
    if not before or math.isnan(last):
        return "steady"
    # The median of what came before: one run that was out of the ordinary must not make the next one look so.
    usual = statistics.median(before)
    return "larger" if last > factor * usual else "smaller" if usual > factor * last else "steady"


def sql_list(names: frozenset[Outcome] | Sequence[str]) -> str:
    """Names of ours as a list in SQL; none of them has a quote."""
    return ", ".join(f"'{name}'" for name in names)
