"""Events in, verdicts out: what is known of every cell of the plan, however the run ended.

The same class makes the record of a run that goes on and, in `opassay report recover`, that of a run that was killed,
from its log. So both go through one door: whatever the record shows has been an event first. What is hard here is that
a log may end anywhere, may hold lines that are no events, and may be larger than memory: events are taken one by one,
and only verdicts, of which a cell has one, are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..oracles.verdicts.data import decode_verdict
from ..oracles.verdicts.verdict import Cell, Code, Failure, Outcome, Signs, Verdict, charged, clean
from . import exit_codes
from .exit_codes import Reason
from .record import RecordError, Run, plan_digest
from .store import log

OTHER_SHARD = "in another shard"
DESELECTED = "deselected by -k"

#: Bytes of case files and programs that an account keeps in memory; those of later failures stand in cases/ alone.
#: It stays below `record.MAX_FILE`: a record beyond that size is written without any case at all.
_MAX_CASE_BYTES = 48 * 2**20

#: From best to worst; where a cell has two verdicts, the worse one counts.
#: A verdict that says something of the op stands above one that says nothing, and a fault above success: where records
#: are merged, no failure may disappear behind a better verdict on the same cell.
SEVERITY: tuple[Outcome, ...] = (
    Outcome.NOT_RUN,
    Outcome.UNSUPPORTED,
    Outcome.REFUSED,
    Outcome.VERIFIED,
    Outcome.WEAK,
    Outcome.TIMEOUT,
    Outcome.CRASH,
    Outcome.ERROR,
    Outcome.UNSTABLE,
    Outcome.FAIL,
)


@dataclass
class Account:
    """What the events of a run say, taken one by one, while the run goes on or from its log afterwards.

    Args:
        on_case: (case id, text of the case file, program or ""), called for every failure that has a case, before it
            may be dropped from memory.
    """

    on_case: Callable[[str, str, str], None] = lambda name, text, program: None
    began: log.Began | None = None
    cells: list[Cell] = field(default_factory=list)
    exclusions: dict[str, str] = field(default_factory=dict)  # cell key -> why it is not asked
    finished: dict[str, Verdict] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)
    environment: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    ended: log.Ended | None = None
    unreadable: int = 0
    _case_bytes: int = 0
    _by_key: dict[str, Cell] = field(default_factory=dict)

    def take(self, event: log.Event | None) -> None:
        """Take in one event; None stands for a line of a log that holds no event."""
        match event:
            case None:
                self.unreadable += 1
            case log.Began():
                self.began = event
            case log.Planned(cells=rows):
                for *row, exclusion in rows:
                    self._plan(Cell(*row), exclusion)
            case log.Environment(environment=environment):
                # Every worker tells its environment. They run on one machine, so the first one told is that of the run.
                self.environment = self.environment or {clean(k): clean(v) for k, v in environment.items()}
            case log.CellStarted(cell=key):
                self.started.add(key)
            case log.CellFinished(verdict=data):
                self._finish(event, decode_verdict(data))
            case log.CellDied():
                self._die(event)
            case log.CellsGivenUp(cells=keys, why=why):
                for key in keys:
                    self.exclusions[key] = why
            case log.Noted(text=text):
                self._note(text)
            case log.Ended():
                self.ended = event

    def verdicts(self, interrupted: str = "") -> tuple[Verdict, ...]:
        """One verdict for every planned cell, in the plan's order; `interrupted` says why the run ended early."""
        return tuple(self.finished.get(cell.key) or self._missing(cell, interrupted) for cell in self.cells)

    def run(
        self, reasons: list[Reason], *, seconds: float, exit_zero: bool = False, allow_incomplete: bool = False
    ) -> Run:
        """The record.

        Args:
            reasons: why the session was not a whole one, if so. seconds: how long it took.
            exit_zero, allow_incomplete: as `exit_codes.most_urgent`.

        Raises:
            RecordError: the events have no beginning, or its plan is not the cells that follow it.
        """
        began = self.began
        if began is None:
            raise RecordError("log: has no beginning, so nobody can say what was asked")
        # A log that lost a line of its plan has fewer cells. A record of those alone would pass for a
        # whole run, so there is none.
        if plan_digest(self.cells) != began.plan_digest:
            raise RecordError(f"log: has {len(self.cells)} cells, which are not those of its plan")
        # The first reason is the one that ended the session; it is told with every cell that was never begun.
        stopped = next((text for _, text in reasons), "")
        # A subject that changed the process fails PURE, wherever that showed; only the whole list of verdicts tells.
        verdicts = tuple(charged(self.verdicts(stopped)))
        reasons = [*reasons, *exit_codes.run_reasons(verdicts)]
        notes = list(self.notes)
        if self.unreadable:
            notes.append(f"log: {self.unreadable} unreadable lines")
        return Run.of(
            began,
            verdicts=verdicts,
            environment=self.environment,
            seconds=seconds,
            notes=tuple(notes),
            exit_code=exit_codes.most_urgent(reasons, exit_zero=exit_zero, allow_incomplete=allow_incomplete),
            exit_reasons=tuple(text for _, text in reasons),
        )

    def _plan(self, cell: Cell, exclusion: str) -> None:
        self.cells.append(cell)
        self._by_key[cell.key] = cell
        if exclusion:
            self.exclusions[cell.key] = exclusion

    def _finish(self, event: log.CellFinished, verdict: Verdict) -> None:
        key = verdict.cell.key
        for failure in verdict.causes:
            if failure.case and failure.case_id:
                self.on_case(failure.case_id, failure.case, failure.program)
                self._case_bytes += len(failure.case) + len(failure.snippet)
        if self._case_bytes > _MAX_CASE_BYTES and verdict.failure is not None:
            first, *others = (replace(failure, case="", snippet="") for failure in verdict.causes)
            verdict = replace(verdict, failure=first, others=tuple(others))
        earlier = self.finished.get(key)
        # No worker is asked for a cell twice, so two verdicts come from a log that somebody edited or joined. Which of
        # them came last says nothing then.
        if earlier is not None:
            self._note(f"{key}: two verdicts, the worse one counts")
        self.finished[key] = verdict if earlier is None else worse(earlier, verdict)

    def _die(self, event: log.CellDied) -> None:
        cell = self._by_key.get(event.cell)
        if cell is None:  # a log that somebody edited may name a cell that its plan lacks
            return
        if event.case:
            self.on_case(event.case_id, event.case, event.program)
        self.finished[cell.key] = make_death_verdict(cell, event)

    def _missing(self, cell: Cell, interrupted: str) -> Verdict:
        why = self.exclusions.get(cell.key)
        if why in (OTHER_SHARD, DESELECTED):
            return Verdict(cell, Outcome.NOT_RUN, Code.DESELECTED, why)
        if why is not None:
            return Verdict(cell, Outcome.NOT_RUN, Code.RETIRED, clean(why))
        return Verdict(cell, Outcome.NOT_RUN, Code.INTERRUPTED, interrupted or "the run ended before this cell")

    def _note(self, text: str) -> None:
        if clean(text) not in self.notes:
            self.notes.append(clean(text))


def make_death_verdict(cell: Cell, event: log.CellDied) -> Verdict:
    """The verdict on a cell whose process ended, or was ended because it was out of time."""
    outcome = Outcome.TIMEOUT if event.timed_out else Outcome.CRASH
    code = Code.TIMED_OUT if event.timed_out else Code.CRASHED
    how, details = clean(event.how), clean(event.details)
    signs = Signs(error=how, samples=int(bool(event.case)))
    failure = Failure(code, how, details or how, event.case_id, event.case, event.program, signs)
    return Verdict(cell, outcome, code, how, failure=failure)


def worse(one: Verdict, other: Verdict) -> Verdict:
    """The verdict that counts of two for the same cell."""
    return max(one, other, key=lambda verdict: SEVERITY.index(verdict.outcome))
