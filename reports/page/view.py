"""What the page shows, ready to print: every number is already text, every group already sorted."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...oracles.verdicts.verdict import CHECKED, MAX_CASE, MAX_TEXT, Code, Outcome
from ..accuracy import Line, accuracy
from ..causes.grouping import Cause, causes_of
from ..causes.page import page as issue_text
from ..record import Run
from ..text import (
    SubjectStanding,
    by_key,
    clean,
    complaints,
    counts,
    duration,
    is_measured,
    number,
    one_line,
    replay_of,
    series_name,
    short_dtype,
    standings,
)
from .chart import Plot, accuracy_plot
from .curves import Figures, figures
from .matrix import Gated, Matrix, Square, make_matrix, make_square

# Each card is several KiB, and a run in which everything fails may have thousands; the table of cells has the others.
_DETAILED = 1000  # cells; a page of more cells shows less of each, and the record has everything
_FEWER_CARDS = 40  # on the page of a larger run
_INPUTS, _FEWER_INPUTS = 2_000_000, 50_000  # characters of programs and inputs on the cards, the gravest causes first
_CARDS = 250  # failure cards on the page
_TEXTS = 150_000  # characters of texts for issues, the gravest causes first; `opassay report causes` writes all of them
_OPEN_OPS = 1000  # a page of more ops has one table of all their cells, no plots, and so many lines of accuracy
_BARS = 100  # the longest times
_SHOWN_CASE = 4000  # characters of a case on the page; the whole stands in cases/


@dataclass(frozen=True)
class OpPart:
    name: str
    counts: tuple[tuple[Outcome, int], ...]
    ratio: str
    worst_cell: str
    seconds: str
    plot: Plot | None
    figures: tuple[Figures, ...]
    rows: tuple[Square, ...]  # of the cells that were checked or went wrong; the others stand by their reasons


@dataclass(frozen=True)
class Card:
    square: Square
    details: str
    again: str  # the command that judges the case again, or, where there is none, the cell
    case: str
    case_cut: bool
    program: str  # shows the failure without opassay; empty where there is none
    history: str  # since when it fails, in words; empty where no history was given


@dataclass(frozen=True)
class CauseRow:
    """Failures of one cause: one line of the list, with the square of the cell that shows it best."""

    cause: Cause
    square: Square
    text: str  # in Markdown, for an issue of whoever maintains the implementation; empty for the last of very many


@dataclass(frozen=True)
class Gap:
    """Cells that were not checked for one reason code."""

    code: Code
    count: int
    reasons: tuple[tuple[str, int, str], ...]  # reason, cells, which


@dataclass(frozen=True)
class Bar:
    label: str
    value: str
    share: float  # 0 to 100


@dataclass(frozen=True)
class Share:
    """What was found about one subject, and its bar: outcome, cells, left end and width in percent."""

    standing: SubjectStanding
    pieces: tuple[tuple[Outcome, int, float, float], ...]
    known_failures: int  # failures that the gate accepts


@dataclass(frozen=True)
class FailureParts:
    """What went wrong, the gravest first.

    Attributes:
        complaints: those of one op, property, device and subject, a square per dtype. uncarded: cells without a card.
    """

    causes: tuple[CauseRow, ...]
    complaints: tuple[tuple[Square, ...], ...]
    cards: tuple[Card, ...]
    uncarded: int


@dataclass(frozen=True)
class View:
    """All that the template reads besides the run."""

    shares: tuple[Share, ...]
    devices: tuple[str, ...]
    subjects: tuple[str, ...]
    matrix: Matrix
    accuracy: tuple[Line, ...]
    ops: tuple[OpPart, ...]
    failures: FailureParts
    gaps: tuple[Gap, ...]
    op_times: tuple[Bar, ...]
    splits: tuple[Bar, ...]
    detailed: bool  # whether the tables tell of the worst element; a page of thousands of cells leaves it out
    squares: Mapping[str, Square]  # by key of the cell

    @property
    def one_table(self) -> bool:
        """Whether all ops share one table."""
        return len(self.ops) > _OPEN_OPS

    @property
    def lines(self) -> tuple[Line, ...]:
        """Those of the accuracy that are shown."""
        return self.accuracy[:_OPEN_OPS] if self.one_table else self.accuracy


def make_view(run: Run, gated: Gated | None, histories: Mapping[str, str]) -> View:
    """The page of a run, with the marks of a gate if there was one; arguments as for `html.render`."""
    groups = complaints(run.verdicts)
    causes = causes_of(run.verdicts)
    examples = [cause.example.verdict.cell.key for cause in causes]
    bad = list(dict.fromkeys([*examples, *(verdict.cell.key for group in groups for verdict in group)]))
    detailed = len(run.verdicts) <= _DETAILED
    carded = set(bad[: _CARDS if detailed else _FEWER_CARDS])
    # A square may lead to a card only if the card is on the page, so the same limit applies here and to `cards`.
    ids = {verdict.cell.id for group in groups for verdict in group if verdict.cell.key in carded}
    marks = gated.marks() if gated else {}
    by_cell = {verdict.cell.key: make_square(verdict, ids, marks) for verdict in run.verdicts}
    squares = tuple(by_cell.values())
    cells = [verdict.cell for verdict in run.verdicts]
    series = _unique(series_name(cell) for cell in cells)
    dtypes = _unique(cell.dtype for cell in cells)
    by_op = by_key(squares, lambda item: item.verdict.cell.op)
    failures = FailureParts(
        causes=_cause_rows(run, causes[:_CARDS], by_cell),
        complaints=tuple(tuple(by_cell[verdict.cell.key] for verdict in group) for group in groups),
        cards=_cards([by_cell[key] for key in bad if key in carded], _INPUTS if detailed else _FEWER_INPUTS, histories),
        uncarded=len(bad) - len(carded),
    )
    one_table = len(by_op) > _OPEN_OPS
    return View(
        shares=tuple(_verdict_share(standing, marks) for standing in standings(run.verdicts)),
        devices=_unique(cell.device for cell in cells),
        subjects=_unique(cell.subject for cell in cells),
        matrix=make_matrix(squares, tuple(by_op)),
        accuracy=accuracy(run.verdicts),
        ops=tuple(_op_part(op, mine, series, dtypes, one_table) for op, mine in by_op.items()),
        failures=failures,
        gaps=_gaps(squares),
        op_times=_bars((op, sum(s.verdict.seconds for s in mine)) for op, mine in by_op.items()),
        splits=_splits(squares),
        detailed=detailed,
        squares=by_cell,
    )


def _verdict_share(standing: SubjectStanding, marks: Mapping[str, str]) -> Share:
    # The widths are rounded before they are added, so that a piece begins exactly where the one before it ends.
    start, pieces = 0.0, []
    for outcome, count in counts(standing.verdicts).items():
        width = round(100 * count / len(standing.verdicts), 3)
        pieces.append((outcome, count, round(start, 3), width))
        start += width
    known_failures = sum(marks.get(verdict.cell.key) == "known" for verdict in standing.verdicts)
    return Share(standing, tuple(pieces), known_failures)


def _cause_rows(run: Run, causes: Sequence[Cause], squares: Mapping[str, Square]) -> tuple[CauseRow, ...]:
    rows, room = [], _TEXTS
    for cause in causes:
        text = clean(issue_text(cause, run)) if room > 0 else ""
        room -= len(text)
        square = squares[cause.example.verdict.cell.key]
        rows.append(CauseRow(cause, square, text if room >= 0 else ""))
    return tuple(rows)


def _op_part(
    op: str, squares: Sequence[Square], series: Sequence[str], dtypes: Sequence[str], one_table: bool
) -> OpPart:  # fmt: skip
    """What the page shows of one op.

    Args:
        op, squares: the op and its cells. series, dtypes: subjects on devices, and dtypes of the page, in order.
        one_table: whether there is no room for plots.
    """
    verdicts = [square.verdict for square in squares]
    # A cell that judged nothing has the ratio 0 of a perfect one, so it must not be shown as the worst.
    measured = [verdict for verdict in verdicts if is_measured(verdict)]
    worst = max(measured, key=lambda verdict: verdict.measure.max_ratio, default=None)
    cell = worst.cell if worst else None
    return OpPart(
        name=op,
        counts=tuple(counts(verdicts).items()),
        ratio=number(worst.measure.max_ratio) if worst else "",
        worst_cell=f"{cell.property} {short_dtype(cell.dtype)} {series_name(cell)}" if cell else "",
        seconds=duration(sum(verdict.seconds for verdict in verdicts)),
        plot=None if one_table else accuracy_plot(verdicts, series),
        figures=() if one_table else figures(verdicts, dtypes),
        rows=tuple(square for square in squares if square.listed),
    )


def _cards(squares: Iterable[Square], room: int, histories: Mapping[str, str]) -> tuple[Card, ...]:
    """The cards; from the one on with which the room for programs and inputs ends, these stand in files alone."""
    cards = []
    for square in squares:
        card = _card(square, histories.get(square.verdict.cell.key, ""))
        if room <= 0:
            card = replace(card, case="", case_cut=False, program="")
        room -= len(card.case) + len(card.program)
        cards.append(card)
    return tuple(cards)


def _card(square: Square, history: str) -> Card:
    failure = square.verdict.failure
    # A run that comes from memory has not passed the limits of the file, so they are applied here, too.
    case = clean(failure.case[:MAX_CASE]) if failure else ""
    return Card(
        square=square,
        details=textwrap.dedent("\n".join(failure.details())[:MAX_TEXT]) if failure else "",
        again=_again(square),
        case=case[:_SHOWN_CASE],
        case_cut=len(case) > _SHOWN_CASE,
        program=clean(failure.program) if failure and len(failure.snippet) <= MAX_CASE else "",  # whole, or none
        history=history,
    )


def _again(square: Square) -> str:
    cell = square.verdict.cell
    if replay_of(square.verdict):
        return clean(replay_of(square.verdict))
    axes = ("property", "dtype", "device", "subject")
    # With `=` between them, a value that begins with a dash is not taken for another option.
    words = [f"--{axis}={getattr(cell, axis)}" for axis in axes]
    return shlex.join(clean(word) for word in ("opassay", "run", cell.op, *words, "-n", "1"))


def _gaps(squares: Iterable[Square]) -> tuple[Gap, ...]:
    # Cells are listed by reason, because a hundred cells that lack the same device are one
    # thing to know, not a hundred.
    missing = [square for square in squares if square.verdict.outcome not in CHECKED]
    gaps = []
    for code, mine in by_key(missing, lambda square: square.verdict.code).items():
        by_reason = by_key(mine, lambda square: one_line(square.verdict.reason, 300))
        reasons = tuple((reason, len(cells), _which(cells)) for reason, cells in by_reason.items())
        gaps.append(Gap(code, len(mine), reasons))
    return tuple(sorted(gaps, key=lambda gap: -gap.count))


def _which(squares: Sequence[Square]) -> str:
    by_op = by_key(squares, lambda square: square.verdict.cell.op)
    parts = []
    for op, mine in by_op.items():
        tally = Counter(square.verdict.cell.property for square in mine)
        parts.append(f"{op}: " + ", ".join(f"{name} {count}" for name, count in tally.items()))
    return "; ".join(parts)


def _bars(items: Iterable[tuple[str, float]]) -> tuple[Bar, ...]:
    ranked = sorted(items, key=lambda item: -item[1])
    # Bars are shares of the longest one. If all times are zero there is nothing to divide by, and nothing to show.
    most = max((value for _, value in ranked), default=0.0)
    if most <= 0:
        return ()
    return tuple(Bar(label, duration(value), round(100 * value / most, 2)) for label, value in ranked[:_BARS])


def _splits(squares: Iterable[Square]) -> tuple[Bar, ...]:
    # Names of phases come from records, so they are cleaned before they become keys: two that look alike are one bar.
    total: dict[str, float] = {}
    for square in squares:
        for name, seconds in square.verdict.timing:
            total[clean(name)] = total.get(clean(name), 0.0) + seconds
    return _bars(total.items())


def _unique(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))
