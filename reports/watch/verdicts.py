"""The verdicts of a watched program: one for each call site, for the record and for every report of a run."""

from __future__ import annotations

import math

from ...oracles.verdicts.verdict import CHECKED, FAILED, Cell, Code, Failure, Measure, Outcome, Signs, Verdict
from ...oracles.verdicts.watched import Site, Watched
from .text import again
from .totals import COMPUTING, EXACT, UNKEPT

_NAME = 480  # characters of a part of a cell; a record takes 512, and a number may be added
_TITLE = "each call within the bound of its own operands"


def verdicts_of(watched: Watched, device: str) -> tuple[Verdict, ...]:
    """One verdict for each site: its module is the op of the cell, and its operation the property."""
    cells: set[Cell] = set()
    return tuple(_verdict_of(_cell(site, watched.program, device, cells), site) for site in watched.sites)


def _cell(site: Site, program: str, device: str, cells: set[Cell]) -> Cell:
    """The cell of a site, which no other has: a name that is not free gets the next number."""
    subject = program.replace("\\", "/").rpartition("/")[2]
    op, name, dtype = site.place.module or "(program)", site.place.name[:_NAME], site.dtype or "none"
    cell = Cell(op[:_NAME], name, dtype[:_NAME], device, subject[:_NAME] or "program")
    count = site.place.number + 1
    while cell in cells:
        count += 1
        cell = Cell(cell.op, f"{name.rpartition('#')[0] or name}#{count}", cell.dtype, device, cell.subject)
    cells.add(cell)
    return cell


def _verdict_of(cell: Cell, site: Site) -> Verdict:
    judged, outcome = site.totals.judged, site.outcome
    if outcome is Outcome.VERIFIED and not judged:
        outcome = Outcome.WEAK
    measure = Measure()
    if judged and outcome in CHECKED:
        # Calls whose results have no elements were judged as a whole.
        ratio = 0.0 if math.isnan(site.ratio) else site.ratio
        measure = Measure(samples=judged, judged=max(site.totals.elements, 1), max_ratio=ratio)
    code = _code(site, outcome)
    failure = _failure(site, code) if outcome in FAILED else None
    reason = site.reason or str(outcome)
    return Verdict(cell, outcome, code, reason, measure, failure, site.totals.seconds, title=_TITLE)


def _code(site: Site, outcome: Outcome) -> Code:
    if outcome is Outcome.VERIFIED:
        return Code.HELD
    if outcome is Outcome.WEAK:
        return Code.FEW_SAMPLES if site.totals.judged < site.totals.calls else Code.MOSTLY_NOT_JUDGED
    if outcome in FAILED:
        return Code.BITS if site.kind in EXACT else Code.VALUE
    if site.kind in UNKEPT:
        return Code.DESELECTED
    return Code.INTERRUPTED if outcome is Outcome.NOT_RUN and site.kind in COMPUTING | EXACT else Code.NOT_APPLICABLE


def _failure(site: Site, code: Code) -> Failure:
    # The card is that of the worst call, and its first line says what is wrong there.
    op, (what, *card) = site.place.op, site.card.splitlines() or [site.reason]
    title = f"{site.place.text}: {what.strip()}"
    lines = [title, *card, *(f"  {line}" for line in site.operands)]
    if site.case:
        lines.append(f"  again      {again(site.case)}")
    signs = Signs(path="forward", kernel=op, calls=(op,), samples=site.totals.judged)
    return Failure(code, title, "\n".join(lines), signs=signs)
