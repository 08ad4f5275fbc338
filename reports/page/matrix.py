"""The matrix of a report: one square per cell, one mini-grid per op and property, in the plan's order."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...oracles.verdicts.verdict import CHECKED, Outcome, Verdict
from .. import exit_codes
from ..gate import GateFinding
from ..text import BAD, GLYPHS, clean, describe_error, has_ulps, number, one_line, series_name, what_of

#: A filled square on a pale one would be hard to see, so what held has a tick on the page.
SIGNS = GLYPHS | {Outcome.VERIFIED: "✓"}
_SPREAD = 3  # ops; where there are no more, each shows large labelled grids
#: Kinds of findings that stand first in the list; the others follow as the gate sorts them.
_FIRST = ("new", "error", "incomplete", "coverage", "budget")
#: Kinds of findings that mark a square: sign, CSS class.
_MARKS = {"new": ("✕", "new"), "known": ("●", "known"), "budget": ("▲", "budget")}


@dataclass(frozen=True)
class Square:
    """A verdict as the page shows it: square of the matrix and row of a table."""

    verdict: Verdict
    glyph: str
    kind: str  # CSS classes: the outcome, and what the gate says
    facets: str  # words the filters look at
    label: str  # for those who do not see the sign
    title: str  # one line for hovering
    carded: bool  # there is a failure card

    @property
    def anchor(self) -> str:
        return f"c-{self.verdict.cell.id}"

    @property
    def listed(self) -> bool:
        """Whether the table of its op has a row of it; what was not checked is told by its reason instead."""
        return self.verdict.outcome in CHECKED or self.verdict.outcome in BAD

    @property
    def target(self) -> str:
        """Where a click leads: to the failure card, to the row of the table, or to the reasons."""
        if self.carded:
            return f"f-{self.verdict.cell.id}"
        return self.anchor if self.listed else f"code-{self.verdict.code}"


#: Squares with 1, and None with the number of properties in a row without one: a page of many ops is mostly of these.
Spans = tuple[tuple[Square | None, int], ...]


@dataclass(frozen=True)
class Group:
    """The grid of one op and property: one line per subject and device, one square per dtype."""

    property: str
    words: str
    lines: tuple[tuple[Square | None, ...], ...]


@dataclass(frozen=True)
class MatrixRow:
    """One op: a grid per property, and the same squares as lines of a table, one per series and dtype."""

    op: str
    groups: tuple[Group | None, ...]
    lines: tuple[tuple[int, str, Spans], ...]  # place of the series, dtype, squares by property


@dataclass(frozen=True)
class Matrix:
    properties: tuple[tuple[str, str], ...]  # code, words
    dtypes: tuple[str, ...]
    labels: tuple[str, ...]  # of the lines of every mini-grid
    rows: tuple[MatrixRow, ...]
    spread: bool  # few ops: large labelled grids instead of a table


@dataclass(frozen=True)
class Gated:
    """What the gate said about a run."""

    findings: tuple[GateFinding, ...]
    code: int

    @property
    def listed(self) -> tuple[GateFinding, ...]:
        """Blocking findings first, and among them the new failures."""

        def place(finding: GateFinding) -> tuple[bool, int]:
            kind = finding.kind
            # False sorts before True, so blocking findings come first, whatever their kind.
            return finding.code == exit_codes.OK, _FIRST.index(kind) if kind in _FIRST else len(_FIRST)

        return tuple(sorted(self.findings, key=place))

    @property
    def kinds(self) -> tuple[tuple[str, int, bool], ...]:
        """Kind, findings, whether they block."""
        tally = Counter((finding.kind, finding.code != exit_codes.OK) for finding in self.listed)
        return tuple((kind, count, blocks) for (kind, blocks), count in tally.items())

    def marks(self) -> dict[str, str]:
        """Cell key -> kind of finding."""
        return {finding.cell: finding.kind for finding in self.findings if finding.kind in _MARKS}


def make_square(verdict: Verdict, carded: Container[str], marks: Mapping[str, str]) -> Square:
    """The square of a verdict. `carded`: ids of cells with a failure card; `marks`: cell key -> finding of the gate."""
    cell, measure = verdict.cell, verdict.measure
    where = (cell.op, cell.property, cell.dtype, cell.device, cell.subject)
    group = "bad" if verdict.outcome in BAD else "ok" if verdict.outcome in CHECKED else "gap"
    mark = marks.get(cell.key, "")
    # A mark of the gate takes the place of the outcome's sign; the outcome stays among the classes of the square.
    glyph, extra = _MARKS.get(mark, (SIGNS[verdict.outcome], ""))
    # The script of the page searches in these words, so all that a reader might type is among them.
    words = " ".join((*where, str(verdict.outcome), str(verdict.code), mark))
    summary = what_of(verdict)
    if has_ulps(measure):
        summary = f"{summary}; {describe_error(measure)}, error/bound {number(measure.max_ratio)}"
    suffix = f" ({mark})" if mark else ""
    return Square(
        verdict=verdict,
        glyph=glyph,
        kind=f"{str(verdict.outcome).replace(' ', '-')} {extra}".strip(),
        facets="|".join((group, cell.dtype, cell.subject, words.lower())),
        label=f"{verdict.outcome}{suffix}",
        title=one_line(f"{' '.join(where)}: {verdict.outcome}{suffix} {verdict.code}. {summary}", 300),
        carded=cell.id in carded,
    )


def make_matrix(squares: Sequence[Square], ops: Sequence[str]) -> Matrix:
    """The matrix of all squares; `ops` in the order of the page."""
    titles: dict[str, str] = {}
    for item in squares:
        name = item.verdict.cell.property
        # A cell that was never begun has no title, so the first cell of the property that has one gives it.
        titles[name] = titles.get(name) or clean(item.verdict.title)
    cells = [item.verdict.cell for item in squares]
    dtypes = tuple(dict.fromkeys(cell.dtype for cell in cells))
    series = tuple(dict.fromkeys(series_name(cell) for cell in cells))
    keys = ((cell.op, cell.property, series_name(cell), cell.dtype) for cell in cells)
    place = dict(zip(keys, squares, strict=True))
    # With one device its name would stand in every line and tell nothing.
    one_device = len({cell.device for cell in cells}) == 1
    labels = tuple(dict.fromkeys(cell.subject if one_device else series_name(cell) for cell in cells))
    rows = []
    for op in ops:
        groups = tuple(_group(op, name, words, place, series, dtypes) for name, words in titles.items())
        lines = [
            (at, dtype, _spans(place.get((op, name, line, dtype)) for name in titles))
            for at, line in enumerate(series)
            for dtype in dtypes
        ]
        rows.append(MatrixRow(op, groups, tuple(line for line in lines if any(square for square, _ in line[2]))))
    return Matrix(tuple(titles.items()), dtypes, labels, tuple(rows), len(ops) <= _SPREAD)


def _spans(squares: Iterable[Square | None]) -> Spans:
    spans: list[tuple[Square | None, int]] = []
    for is_gap, run in itertools.groupby(squares, lambda square: square is None):
        mine = list(run)
        spans += [(None, len(mine))] if is_gap else [(square, 1) for square in mine]
    return tuple(spans)


def _group(
    op: str, name: str, words: str, place: Mapping[tuple[str, str, str, str], Square], series: Sequence[str],
    dtypes: Sequence[str],
) -> Group | None:  # fmt: skip
    """The squares of one op and property, a line per series; None where no cell was planned.

    Args:
        op, name: of the op and the property. words: the property's title.
        place: (op, property, series, dtype) -> square. series, dtypes: lines and columns, in order.
    """
    lines = tuple(tuple(place.get((op, name, line, dtype)) for dtype in dtypes) for line in series)
    return Group(name, words, lines) if any(item is not None for line in lines for item in line) else None
