"""The history of each failure: since when a cell fails, in how many runs it did, and when it held last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...oracles.verdicts.verdict import CHECKED, FAILED, Cell
from .history import History
from .trends import HistoryRun, sql_list

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
        first = self.looks[-1]
        for look in reversed(self.looks):
            if not look.failed:
                break
            first = look
        return first

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
    """The cells that fail in the last of some runs, with what became of them in all of these.

    Args:
        history: the database that has the runs. runs: the oldest first.
    """
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
