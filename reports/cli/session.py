"""One verification session: cells go to a pool of workers; what happens goes to the log, the account and the user.

A signal that asks a session to end stops it at once, in good order, and what is known is written.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ...oracles.verdicts.data import RecordError, decode_verdict
from ...oracles.verdicts.verdict import Cell, Verdict
from ...properties.engine.environment import untested
from ...properties.engine.plan import Selection
from ...properties.places.cluster import Cluster
from ...properties.places.crash_search import find_culprit
from ...properties.places.pool import Answered, Died, Event, GivenUp, Note, Pool, PoolTerms, Ready, Started, StartError
from ...properties.worlds import World
from .. import exit_codes
from ..collect import Account
from ..exit_codes import Reason
from ..merge import DECISIVE
from ..progress import Teller
from ..store import log
from ..text import BAD, one_line


class UnlikeError(RuntimeError):
    """Workers of one run that judge with other versions, or another source of opassay."""


@dataclass(frozen=True)
class Request:
    """What `opassay run` was asked for.

    Attributes:
        terms: profile, seed and samples, and by how many processes, within which limits cells are judged.
        scheduler: of the Dask cluster whose workers judge; empty where this machine does.
        exit_zero, allow_incomplete: what is forgiven, as in `exit_codes.most_urgent`.
    """

    selection: Selection
    terms: PoolTerms
    maxfail: int = 0
    keyword: str = ""
    shard: str | None = None
    scheduler: str = ""
    exit_zero: bool = False
    allow_incomplete: bool = False

    @property
    def world(self) -> World:
        """Where ops over several places are judged."""
        return World(*self.terms.world)


def worker_count(workers: str, cells: int) -> int:
    """Workers for `auto` (one per usable core) or a number; never more than there are cells.

    Raises:
        ValueError: neither.
    """
    if workers == "auto":
        # A container or `taskset` may allow fewer cores than the machine has; workers beyond
        # those would only take turns.
        return max(1, min(len(os.sched_getaffinity(0)), cells))
    count = int(workers)
    if count < 0:
        raise ValueError(f"workers: got workers={count}, need 0 or more")
    return min(count, cells)


class RunSession:
    """Runs the cells of a request.

    Args:
        request: what was asked for.
        account, records: the account and the log of the run, which are told of every event.
        teller: who tells the user.
        ending: whether the user asked for the end.

    Attributes:
        seconds: how long `run` took, with what the account knows of an earlier session.
    """

    def __init__(
        self, request: Request, account: Account, records: log.LineFile, teller: Teller, ending: Ending
    ) -> None:
        self.request, self.account, self.records, self.teller, self.ending = request, account, records, teller, ending
        self.seconds = account.ended.seconds if account.ended else 0.0
        self._failures = 0
        # Workers may differ where they run on other machines, or after a pause.
        self._several = bool(request.scheduler or account.environment)
        self._died: dict[tuple[str, str, str], Died] = {}

    def run(self, cells: Sequence[Cell]) -> list[Reason]:
        """Judges the cells, finds the samples that ended processes, and logs the end of the run.

        Returns:
            Why some cells were not asked, if so, each reason with its exit code. What the verdicts themselves mean for
            the exit code is left to `exit_codes.run_reasons`.
        """
        start = time.monotonic()
        reasons: list[Reason] = []
        how = (cells, self.request.terms, read_verdict, self._must_stop)
        pool = Cluster(self.request.scheduler, *how) if self.request.scheduler else Pool(*how)
        try:
            # The generator ends the workers when it is closed. Closing it here does so at once, also after an
            # exception, and not when Python happens to drop it.
            with contextlib.closing(pool.events()) as events:
                for event in events:
                    self._take(event)
            self._inquire()
        except StartError as err:
            reasons.append((exit_codes.INTERNAL, one_line(str(err), 500)))
        except UnlikeError as err:
            reasons.append((exit_codes.USAGE, str(err)))
        except KeyboardInterrupt:
            pass  # from `find_culprit`, which stops so where the user asked for the end; `ending` says it below
        except OSError as err:  # no process, pipe or temporary file can be had
            reasons.append((exit_codes.INTERNAL, f"no worker could be started: {type(err).__name__}: {err}"))
        if self.ending():
            reasons.append((exit_codes.INTERRUPT, f"interrupted ({self.ending.signal_name}); the report is partial"))
        elif self._must_stop():
            # That --maxfail ended the run is no reason of its own: the failures that it counted
            # decide the exit code already.
            self._record(log.Noted(f"stopped after {self._failures} failures, as --maxfail asks"))
        self.seconds += time.monotonic() - start
        self._record(log.Ended(self.seconds, [*reasons]))
        return reasons

    def _must_stop(self) -> bool:
        return self.ending() or bool(self.request.maxfail and self._failures >= self.request.maxfail)

    def _take(self, event: Event) -> None:
        """Takes an event of the pool to the log, the account and the user, and keeps deaths for `_inquire`."""
        match event:
            case Ready(environment=environment):
                # Every worker tells its environment, and all are alike, so the log holds the first one only.
                self._require_alike(environment)
                if not self.account.environment:
                    self._record(log.Environment(dict(environment)))
                    self._note(*untested(environment))
            case Started(cell=cell, worker=worker):
                self._record(log.CellStarted(cell.key, worker))
                self.teller.note_start(cell.key)
            case Answered(cell=cell, verdict=verdict):
                self._record(log.verdict_event(verdict))
                self._tell(cell)
            case Died(cell=cell):
                self._record(log.CellDied(cell.key, event.timed_out, event.how, event.details))
                self._tell(cell)
                # A call that ended also the parent of its process might end this process, too.
                if not event.timed_out and not event.parent:
                    self._died.setdefault((cell.op, cell.property, cell.subject), event)
            case GivenUp(cells=cells, why=why):
                self._record(log.CellsGivenUp([cell.key for cell in cells], why))
                self.teller.skip(len(cells), why)
            case Note(text=text):
                self._note(text)

    def _require_alike(self, environment: Mapping[str, str]) -> None:
        """Raises `UnlikeError` for a worker whose answers cannot stand in one record with those of the others."""
        for name in ("source", *DECISIVE) if self._several else ():
            before, now = (each.get(name, "none") for each in (self.account.environment or environment, environment))
            if before != now:
                text = f"a worker has {name} {one_line(now, 80)}, and the run began with {one_line(before, 80)}"
                raise UnlikeError(f"{text}: need workers that are alike")

    def _note(self, *texts: str) -> None:
        """Tells the user, and the record."""
        for text in texts:
            self._record(log.Noted(text))
            self.teller.say(text)

    def _inquire(self) -> None:
        """Find the samples that ended processes, of one cell of each op, property and subject: dtypes hardly differ."""
        terms = self.request.terms
        for died in self._died.values():
            if self._must_stop():
                return
            case = find_culprit(died.cell, terms.settings, terms.timeout, terms.command, self.ending)
            if case is not None:
                case_fields = (case.case_id, case.case, case.program)
                self._record(log.CellDied(died.cell.key, died.timed_out, died.how, died.details, *case_fields))

    def _record(self, event: log.Event) -> None:
        """Takes an event to the log and then to the account, because the log survives if this process is killed."""
        if self.records.write(event):
            self.teller.say(f"the log cannot be written any more ({self.records.broken}); the run goes on without it")
        self.account.take(event)

    def _tell(self, cell: Cell) -> None:
        # The account may have put another verdict in place of this event's, and the user is
        # told what the record will say.
        verdict = self.account.finished[cell.key]
        self._failures += verdict.outcome in BAD  # what --maxfail counts
        self.teller.count_verdict(verdict)


def read_verdict(cell: Cell, data: Any) -> Verdict:
    """The verdict of a worker's answer.

    Raises:
        ValueError: the data are no verdict, or one on another cell.
    """
    try:
        # A worker runs code of the op, which may send anything. Its answer is read as
        # strictly as a file from a stranger.
        verdict = decode_verdict(data)
    except RecordError as err:
        raise ValueError(one_line(str(err), 200)) from err
    # An answer on another cell would be entered for that cell, and the one that was asked would stay without a verdict.
    if verdict.cell != cell:
        raise ValueError(f"got one on {one_line(verdict.cell.key)}")
    return verdict


#: Ctrl-C, the request of a CI service to end, and a terminal that was closed.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ending:
    """While it is entered, a signal that asks for the end is noted instead of raising an exception.

    An exception could come between any two steps, also while a verdict or the report is written. Further signals of a
    user who presses Ctrl-C again change nothing: the report is written within seconds, and then the program ends.

    Attributes:
        signal_name: name of the first signal that came; empty while none has.
    """

    def __init__(self) -> None:
        self.signal_name = ""
        self._before: dict[signal.Signals, Any] = {}

    def __call__(self) -> bool:
        """Whether the end was asked for."""
        return bool(self.signal_name)

    def __enter__(self) -> Ending:
        if threading.current_thread() is threading.main_thread():  # Python allows it nowhere else
            for number in _ENDING:
                if signal.getsignal(number) != signal.SIG_IGN:  # nohup asks that SIGHUP be ignored
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            # Python reports None for a handler that was not installed from Python. That one cannot be
            # put back, so the default is.
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal_name = self.signal_name or signal.Signals(number).name
