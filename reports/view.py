"""What the page shows, ready to print: every number is already text, every group already sorted."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..oracles.verdict import CHECKED, Code, Failure, Outcome, Verdict
from .chart import Plot, accuracy_plot, series_name, short_dtype
from .explain import EXPLANATIONS, Explanation
from .record import Run
from .text import GLYPHS, clean, counts, duration, number, one_line

BAD = (Outcome.FAIL, Outcome.UNSTABLE, Outcome.CRASH, Outcome.TIMEOUT, Outcome.ERROR)
_CARDS = 250  # failure cards on the page
_SHOWN_CASE = 4000  # characters of a case on the page; the whole stands in cases/

_T = TypeVar("_T")
_K = TypeVar("_K")


@dataclass(frozen=True)
class Square:
    """A verdict as the page shows it: square of the matrix and row of a table."""

    verdict: Verdict
    glyph: str
    kind: str  # CSS class: the outcome
    facets: str  # words the filters look at
    title: str  # one line for hovering

    @property
    def anchor(self) -> str:
        return f"c-{self.verdict.cell.id}"


@dataclass(frozen=True)
class Group:
    """The mini-grid of one op and property: one line per subject and device, one square per dtype."""

    lines: tuple[tuple[Square | None, ...], ...]
    worst: str


@dataclass(frozen=True)
class OpPart:
    name: str
    anchor: str
    counts: tuple[tuple[Outcome, int], ...]
    ratio: str
    worst_cell: str
    seconds: str
    plot: Plot | None
    rows: tuple[Square, ...]
    open: bool


@dataclass(frozen=True)
class Card:
    square: Square
    failure: Failure | None
    explanation: Explanation
    details: str
    again: str  # the command that runs this cell alone
    case: str
    case_cut: bool


@dataclass(frozen=True)
class Complaint:
    """The failures of one op, property, device and subject: one line of the list."""

    outcome: Outcome
    squares: tuple[Square, ...]  # one per dtype

    @property
    def first(self) -> Verdict:
        return self.squares[0].verdict


@dataclass(frozen=True)
class Gap:
    """Cells that were not checked for one reason code."""

    code: Code
    explanation: Explanation
    count: int
    reasons: tuple[tuple[str, int, str], ...]  # reason, cells, which


@dataclass(frozen=True)
class Bar:
    label: str
    value: str
    share: float  # 0 to 100


@dataclass(frozen=True)
class Share:
    """The bar of one subject: outcome, cells, left end and width in percent."""

    subject: str
    total: int
    bad: int
    pieces: tuple[tuple[Outcome, int, float, float], ...]


@dataclass(frozen=True)
class View:
    """All that the template reads besides the run."""

    counts: tuple[tuple[Outcome, int], ...]
    shares: tuple[Share, ...]
    checked: int
    dtypes: tuple[str, ...]
    subjects: tuple[str, ...]
    series: tuple[str, ...]
    properties: tuple[tuple[str, str], ...]  # code, words
    matrix: tuple[tuple[str, tuple[Group | None, ...]], ...]
    ops: tuple[OpPart, ...]
    complaints: tuple[Complaint, ...]
    cards: tuple[Card, ...]
    carded: frozenset[str]  # ids of the cells that have a card
    uncarded: int
    gaps: tuple[Gap, ...]
    op_times: tuple[Bar, ...]
    splits: tuple[Bar, ...]
    slowest: tuple[Square, ...]


def make_view(run: Run) -> View:
    """The page of a run."""
    squares = tuple(_square(verdict) for verdict in run.verdicts)
    dtypes = _unique(square.verdict.cell.dtype for square in squares)
    series = _unique(series_name(square.verdict.cell) for square in squares)
    titles: dict[str, str] = {}
    for square in squares:
        cell = square.verdict.cell
        titles[cell.property] = titles.get(cell.property) or clean(square.verdict.title)
    by_op = _grouped(squares, lambda square: square.verdict.cell.op)
    subjects = _unique(square.verdict.cell.subject for square in squares)
    bad = [square for square in squares if square.verdict.outcome in BAD]
    bad.sort(key=lambda square: (BAD.index(square.verdict.outcome), subjects.index(square.verdict.cell.subject)))
    slow = sorted(squares, key=lambda square: -square.verdict.seconds)
    return View(
        counts=tuple(counts(run.verdicts).items()),
        shares=_shares(run.verdicts),
        checked=sum(verdict.outcome in CHECKED for verdict in run.verdicts),
        dtypes=dtypes,
        subjects=subjects,
        series=series,
        properties=tuple(titles.items()),
        matrix=tuple((op, _groups(mine, tuple(titles), series, dtypes)) for op, mine in by_op.items()),
        ops=tuple(_op_part(op, i, mine, series, len(by_op)) for i, (op, mine) in enumerate(by_op.items())),
        complaints=_complaints(bad),
        cards=tuple(_card(square) for square in bad[:_CARDS]),
        carded=frozenset(square.verdict.cell.id for square in bad[:_CARDS]),
        uncarded=max(0, len(bad) - _CARDS),
        gaps=_gaps(squares),
        op_times=_bars((op, sum(s.verdict.seconds for s in mine)) for op, mine in by_op.items()),
        splits=_splits(squares),
        slowest=tuple(square for square in slow[:10] if square.verdict.seconds > 0),
    )


def _shares(verdicts: Sequence[Verdict]) -> tuple[Share, ...]:
    shares = []
    for subject, mine in _grouped(verdicts, lambda verdict: verdict.cell.subject).items():
        left, pieces = 0.0, []
        for outcome, count in counts(mine).items():
            width = round(100 * count / len(mine), 3)
            pieces.append((outcome, count, round(left, 3), width))
            left += width
        bad = sum(verdict.outcome in BAD for verdict in mine)
        shares.append(Share(subject, len(mine), bad, tuple(pieces)))
    return tuple(shares)


def _square(verdict: Verdict) -> Square:
    cell, measure = verdict.cell, verdict.measure
    where = (cell.op, cell.property, cell.dtype, cell.device, cell.subject)
    group = "bad" if verdict.outcome in BAD else "ok" if verdict.outcome in CHECKED else "gap"
    words = " ".join((*where, str(verdict.outcome), str(verdict.code)))
    said = verdict.reason
    if measure.judged:
        said = (
            f"max {number(measure.max_ulp)} ulp, error/bound {number(measure.max_ratio)},"
            f" {measure.judged} elements in {measure.samples} samples"
        )
    return Square(
        verdict=verdict,
        glyph=GLYPHS[verdict.outcome],
        kind=str(verdict.outcome).replace(" ", "-"),
        facets="|".join((group, cell.dtype, cell.subject, words.lower())),
        title=one_line(f"{' '.join(where)}: {verdict.outcome} {verdict.code}. {said}", 300),
    )


def _complaints(bad: Sequence[Square]) -> tuple[Complaint, ...]:
    def key(square: Square) -> tuple[Outcome, str, str, str]:
        cell = square.verdict.cell
        return square.verdict.outcome, cell.op, cell.property, series_name(cell)

    return tuple(Complaint(which[0], tuple(mine)) for which, mine in _grouped(bad, key).items())


def _groups(
    squares: Sequence[Square], properties: Sequence[str], series: Sequence[str], dtypes: Sequence[str]
) -> tuple[Group | None, ...]:
    place = {}
    for square in squares:
        cell = square.verdict.cell
        place[cell.property, series_name(cell), cell.dtype] = square
    groups: list[Group | None] = []
    for name in properties:
        lines = tuple(tuple(place.get((name, line, dtype)) for dtype in dtypes) for line in series)
        present = [square for line in lines for square in line if square is not None]
        bad = [square for square in present if square.verdict.outcome in BAD]
        groups.append(Group(lines, bad[0].kind if bad else "") if present else None)
    return tuple(groups)


def _op_part(op: str, index: int, squares: Sequence[Square], series: Sequence[str], ops: int) -> OpPart:
    verdicts = [square.verdict for square in squares]
    measured = [verdict for verdict in verdicts if verdict.measure.judged]
    worst = max(measured, key=lambda verdict: verdict.measure.max_ratio, default=None)
    cell = worst.cell if worst else None
    return OpPart(
        name=op,
        anchor=f"op-{index}",
        counts=tuple(counts(verdicts).items()),
        ratio=number(worst.measure.max_ratio) if worst else "",
        worst_cell=f"{cell.property} {short_dtype(cell.dtype)} {series_name(cell)}" if cell else "",
        seconds=duration(sum(verdict.seconds for verdict in verdicts)),
        plot=accuracy_plot(verdicts, series),
        rows=tuple(squares),
        open=ops <= 3,
    )


def _card(square: Square) -> Card:
    failure = square.verdict.failure
    case = clean(failure.case) if failure else ""
    code = failure.code if failure else square.verdict.code
    details = textwrap.dedent("\n".join(failure.details())) if failure else ""
    return Card(
        square, failure, EXPLANATIONS[code], details, _again(square), case[:_SHOWN_CASE], len(case) > _SHOWN_CASE
    )


def _again(square: Square) -> str:
    cell = square.verdict.cell
    axes = ("property", "dtype", "device", "subject")
    words = [f"--{axis}={getattr(cell, axis)}" for axis in axes]
    return shlex.join(clean(word) for word in ("opassay", "run", cell.op, *words, "-n", "1"))


def _gaps(squares: Iterable[Square]) -> tuple[Gap, ...]:
    missing = [square for square in squares if square.verdict.outcome not in CHECKED]
    gaps = []
    for code, mine in _grouped(missing, lambda square: square.verdict.code).items():
        by_reason = _grouped(mine, lambda square: one_line(square.verdict.reason, 300))
        reasons = tuple((reason, len(cells), _which(cells)) for reason, cells in by_reason.items())
        gaps.append(Gap(code, EXPLANATIONS[code], len(mine), reasons))
    return tuple(sorted(gaps, key=lambda gap: -gap.count))


def _which(squares: Sequence[Square]) -> str:
    by_op = _grouped(squares, lambda square: square.verdict.cell.op)
    parts = []
    for op, mine in by_op.items():
        found = Counter(square.verdict.cell.property for square in mine)
        parts.append(f"{op}: " + ", ".join(f"{name} {count}" for name, count in found.items()))
    return "; ".join(parts)


def _bars(items: Iterable[tuple[str, float]]) -> tuple[Bar, ...]:
    ranked = sorted(items, key=lambda item: -item[1])
    most = max((value for _, value in ranked), default=0.0)
    if most <= 0:
        return ()
    return tuple(Bar(label, duration(value), round(100 * value / most, 2)) for label, value in ranked)


def _splits(squares: Iterable[Square]) -> tuple[Bar, ...]:
    total: dict[str, float] = {}
    for square in squares:
        for name, seconds in square.verdict.timing:
            total[clean(name)] = total.get(clean(name), 0.0) + seconds
    return _bars(total.items())


def _grouped(items: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    groups: dict[_K, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _unique(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))
