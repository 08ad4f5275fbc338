"""The course of each op and of each failure over the runs of a history: errors, times, since when a cell fails."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeVar

from ...oracles.verdicts.verdict import CHECKED, FAILED, HELD, Cell, Outcome
from ...reference.dtypes import HALF_TYPES
from ..text import by_key
from .comparison import Limits
from .history import History

_T = TypeVar("_T")
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
    passing: int
    failed: int
    undecided: int  # crashed, out of time, or an error of the framework
    ratio: float  # largest error/bound; NaN where none was measured
    seconds: float

    @property
    def state(self) -> str:
        """A failure outweighs what is not decided, and that outweighs what held."""
        return "failed" if self.failed else "undecided" if self.undecided else "held" if self.passing else "not checked"


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
        return _first_of_last(self.points, [point.state == self.last.state for point in self.points])

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
    counts = {"failed": point.failed, "undecided": point.undecided, "held": point.passing}
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


def _first_of_last(items: Sequence[_T], alike: Sequence[bool]) -> _T:
    """The first of the unbroken row of items alike that ends with the last one."""
    return items[len(items) - len(list(takewhile(bool, reversed(alike))))]


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


#: The columns that name a cell.
_AXES = "op, property, dtype, device, subject"


@dataclass(frozen=True)
class Look:
    """A cell in one run in which it held or failed."""

    run: HistoryRun
    outcome: str
    code: str

    @property
    def failed(self) -> bool:
        return self.outcome in FAILED


@dataclass(frozen=True)
class Course:
    """A cell that fails, in all runs in which it held or failed, the oldest first; it fails in the last of them."""

    cell: Cell
    looks: tuple[Look, ...]

    @property
    def since(self) -> Look:
        """The first failure of the unbroken row of failures that ends with the last run."""
        return _first_of_last(self.looks, [look.failed for look in self.looks])

    @property
    def before(self) -> Look | None:
        """The last run in which the cell held; None where it never did."""
        return next((look for look in reversed(self.looks) if not look.failed), None)

    @property
    def sentence(self) -> str:
        """One sentence: `fails since 2026-03-03 (3f2c9ab0), in 2 of 4 runs; held last on 2026-03-02 (91c2d4be)`."""
        failed = [look for look in self.looks if look.failed]
        if len(self.looks) == 1:
            return "first seen in this run"
        codes = list(dict.fromkeys(look.code for look in failed))
        changed = f", as {', then '.join(codes)}" if len(codes) > 1 else ""
        success = "never held" if self.before is None else f"held last {_when(self.before.run)}"
        return f"fails since {_when(self.since.run)}, in {len(failed)} of {len(self.looks)} runs{changed}; {success}"


def _when(run: HistoryRun) -> str:
    return f"{run.started[:10]} ({run.revision[:8]})" if run.revision else run.started[:10]


def failures_of(history: History, runs: Sequence[HistoryRun]) -> list[Course]:
    """The cells that fail in the last of some runs, the oldest first, with what became of them in all of these."""
    if not runs:
        return []
    # SQLite has no NULL among these columns, so that a row of names is equal to itself.
    query = f"""
        SELECT {_AXES}, outcome, code FROM cells
        WHERE run = ? AND outcome IN ({sql_list(CHECKED)}) AND ({_AXES}) IN
              (SELECT {_AXES} FROM cells WHERE run = ? AND outcome IN ({sql_list(FAILED)}))
    """
    looks: dict[Cell, list[Look]] = {}
    for run in runs:
        for *axes, outcome, code in history.connection.execute(query, (run.digest, runs[-1].digest)):
            looks.setdefault(Cell(*map(str, axes)), []).append(Look(run, str(outcome), str(code)))
    return [Course(cell, tuple(looks[cell])) for cell in sorted(looks, key=lambda cell: cell.key)]


def sentences(courses: Iterable[Course]) -> dict[str, str]:
    """Key of a cell -> the history of its failure."""
    return {course.cell.key: course.sentence for course in courses}
