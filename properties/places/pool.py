"""The pool: cells in, what happened to each of them out, whatever ops do to the processes that judge them.

What this is for: a run is finished, and says something of every cell, even where ops hang, crash or take all memory.
Ops of this package share workers. Every op of somebody else has workers of its own, in which no other op runs: what it
does to its process (a default dtype, flush-to-zero, a patched function) then reaches no neighbour. The pool is the
watchdog: it ends workers that are out of time or out of memory, and gives up an op that goes on to end them.

What is hard here: to conclude what happened to a worker from what its owner can observe. A worker that has died may
have answered before; one that has closed its pipes may still be running; one that is silent may be at work. So every
worker is looked at in every round, silent ones too, and always in the same order: whether it has ended, what it has
answered, whether it is out of time.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from ...oracles.verdicts.verdict import Cell, Verdict
from ..catalog import CATALOG
from ..torch_ops.patterns import PREFIX
from .crash_limit import CrashLimit
from .lifeline import adopt_orphans, end_orphans
from .process import AnswerError, Process
from .topic_queue import TopicQueue

#: The hello for a worker that judges alone: in no team of ranks, and with no limit on its memory.
ALONE: Mapping[str, Any] = {"world": ["lockstep", "host", None], "memory": 0, "join": False}
#: After so many workers in a row that ended before their first cell, no worker is started.
PATIENCE = 2
#: Seconds for a worker to import what it needs, before it is given its first cell.
STARTING = 300.0
#: Bytes. An op that printed more is named in a note, with the beginning of its output.
LOUD = 4096
_TICK = 0.1
_GIB = 2**30


@dataclass(frozen=True)
class Ready:
    """A worker has started; `environment` is its answer to the hello."""

    environment: Mapping[str, str]


@dataclass(frozen=True)
class Started:
    """A worker was given a cell."""

    cell: Cell
    worker: int


@dataclass(frozen=True)
class Answered:
    """A worker has answered; `verdict` is what the pool's `accept` made of it."""

    cell: Cell
    verdict: Verdict


@dataclass(frozen=True)
class Died:
    """A worker ended, or was ended, while it judged a cell.

    Attributes:
        timed_out: whether it was out of time. how: one line. details: stacks, and the end of what it printed.
        parent: whether the process that had started it ended, too.
    """

    cell: Cell
    timed_out: bool
    how: str
    details: str = ""
    parent: bool = False


@dataclass(frozen=True)
class GivenUp:
    """Cells that will not be asked, because their op has ended too many workers."""

    cells: tuple[Cell, ...]
    why: str


@dataclass(frozen=True)
class Note:
    """A sentence for the report."""

    text: str


Event = Ready | Started | Answered | Died | GivenUp | Note


class StartError(RuntimeError):
    """Workers end before they can be given a cell; says nothing about any op."""


@dataclass(frozen=True)
class PoolTerms:
    """How cells are judged.

    Attributes:
        settings: of `samples.Settings`, as data. world: of `worlds.World`, as data.
        workers: how many processes at once; 0: one that shares this process's terminal, for a debugger.
        timeout: seconds per cell. memory: bytes per worker; 0: as many as there are (see `fair_share`).
        command: the program of a worker (`programs.WORKER`).
    """

    settings: Mapping[str, Any]
    world: Sequence[Any]
    command: Sequence[str]
    workers: int = 1
    timeout: float = 1200.0
    memory: int = 0


def owner_of(op: str) -> str:
    """The owner of the workers that judge an op: the op itself, or "" for the workers that all ops of opassay share."""
    return "" if op in CATALOG or op.startswith(PREFIX) else op


def fair_share(workers: int) -> int:
    """Bytes of memory that one of so many workers may take: its share of nine tenths of all, and at least 4 GiB."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # of a container; "max" where it has no limit
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return max(4 * _GIB, total * 9 // (10 * max(workers, 1)))


def describe_printing(op: str, began: str) -> str:
    """A sentence: the op prints much, and its output began so."""
    beginning = " ".join(began.split())[:200]
    return f"{op} prints: more than {LOUD} bytes, which are not shown; its process began with: {beginning}"


def describe_leftovers(op: str, names: Sequence[str]) -> str:
    """A sentence: the op left processes running, which were ended."""
    return f"{op} left processes behind, which were ended: {', '.join(names[:5])}"


@dataclass
class _Worker:
    """A process, the op that owns it, and the cell that it judges."""

    process: Process
    owner: str
    deadline: float
    number: int
    cell: Cell | None = None
    op: str = ""  # that of the last cell which the worker was given
    ready: bool = False
    ends: bool = False  # whether it has said that it can judge no other cell
    printed_before: int = 0  # bytes that the process had printed when its cell began


@dataclass
class Pool:
    """Judges cells in workers; iterate over `events`, then `close`.

    Args:
        cells: in the order in which they should be judged. terms: how they are judged.
        accept: (cell, data) -> the verdict that a worker's answer holds; ValueError where it holds none for that cell.
        stopped: asked several times a second; once it is true, no more cells are asked and all workers end.
    """

    cells: Sequence[Cell]
    terms: PoolTerms
    accept: Callable[[Cell, Any], Verdict]
    stopped: Callable[[], bool] = lambda: False
    _waiting: dict[str, TopicQueue[Cell]] = field(default_factory=dict)
    _workers: list[_Worker] = field(default_factory=list)
    _deaths: CrashLimit = field(default_factory=CrashLimit)
    _printed: Counter[str] = field(default_factory=Counter)
    _started: int = 0
    _failed_starts: int = 0

    def __post_init__(self) -> None:
        self._memory = self.terms.memory or fair_share(self.terms.workers)
        self.add(self.cells)
        # An op may start processes of its own and then lose its worker. Unless this process adopts them, they become
        # children of the system's first process, and nobody here could find and end them.
        adopt_orphans(True)
        self._selector = selectors.DefaultSelector()

    def add(self, cells: Sequence[Cell]) -> None:
        """Have further cells judged, after those that wait."""
        for cell in cells:
            self._waiting.setdefault(owner_of(cell.op), TopicQueue(attrgetter("op"))).put(cell)

    def events(self) -> Generator[Event, None, None]:
        """The events of the run as they happen, until each cell has an answer or was given up, or the pool is stopped.

        Raises:
            StartError: two workers in a row ended before they could be given a cell.
        """
        try:
            while not self.stopped():
                yield from self._employ()
                if not self._workers:
                    return
                for _ in self._selector.select(_TICK):
                    pass  # only to wake up: each worker is looked at below, also one that said nothing
                for worker in list(self._workers):
                    yield from self._look_at(worker)
        finally:
            self.close()

    def close(self) -> None:
        """End all workers."""
        # All idle workers are told to go before the first of them is waited for, so that they take their leave at the
        # same time and not one after the other.
        for worker in self._workers:
            if worker.cell is None:
                worker.process.dismiss()
        for worker in list(self._workers):
            self._end(worker)
        self._selector.close()
        adopt_orphans(False)

    def _employ(self) -> Iterator[Event]:
        """Give every idle worker a cell of its owner, and let go those that get none; hire others."""
        for worker in list(self._workers):
            if worker.ready and worker.cell is None:
                waiting = self._waiting.get(worker.owner)
                if waiting and not worker.ends:
                    others = {other.op for other in self._workers if other is not worker}
                    yield self._give(worker, waiting.take(worker.op, others))
                else:
                    worker.process.dismiss()
                    yield from self._end(worker)
        while len(self._workers) < max(self.terms.workers, 1) and (owner := self._neediest()) is not None:
            self._hire(owner)

    def _neediest(self) -> str | None:
        """The owner with the most cells per worker, those that start included; None where no owner needs one more."""
        at_work = Counter(worker.owner for worker in self._workers)
        # A worker that is idle or still starting will take one of its owner's cells by itself, so that cell is no
        # reason for another worker.
        idle = Counter(worker.owner for worker in self._workers if worker.cell is None)
        needs = {o: len(w) / (at_work[o] + 1) for o, w in self._waiting.items() if len(w) > idle[o]}
        return max(needs, key=lambda owner: needs[owner]) if needs else None

    def _hire(self, owner: str) -> None:
        hello = {"world": list(self.terms.world), "memory": self._memory, "join": True}
        attached = self.terms.workers == 0
        process = Process(hello, command=self.terms.command, attached=attached)
        self._workers.append(_Worker(process, owner, time.monotonic() + STARTING, self._started))
        self._started += 1
        for handle in (process.answers, process.output):
            # An attached worker prints to the terminal, so it has no pipe of output that one could wait for.
            if handle >= 0:
                self._selector.register(handle, selectors.EVENT_READ)

    def _give(self, worker: _Worker, cell: Cell) -> Event:
        worker.cell, worker.op, worker.deadline = cell, cell.op, time.monotonic() + self.terms.timeout
        # The bytes that the process has printed so far belong to earlier cells, and must not be charged to the op of
        # this one.
        worker.printed_before = worker.process.printed
        worker.process.ask({"cell": astuple(cell), "settings": dict(self.terms.settings)})
        return Started(cell, worker.number)

    def _look_at(self, worker: _Worker) -> Iterator[Event]:
        process = worker.process
        ended = process.ended  # asked first: what an ended process has answered is all there
        try:
            answers = process.read()
            for answer in answers:
                yield from self._take_answer(worker, answer)
        except AnswerError as err:
            yield from self._lose(worker, f"the process said {err}")
            return
        # Output is read in every round, because a worker whose pipe is full would stand still in the middle of its
        # cell.
        process.listen()
        # A pipe that the other side has closed counts as readable for ever, so waiting for it would return at once,
        # and this process would spin.
        if process.output in process.closed:
            self._forget(process.output)
        if process.answers in process.closed and not ended:
            process.settle(_TICK)  # a process closes its pipes a moment before it has ended
            ended = True
        if ended:
            what = "died while this cell ran" if worker.cell is not None else "ended before its first cell"
            yield from self._lose(worker, f"the process {what} ({process.how()})")
        # An idle worker is never out of time: the deadline that it still has is that of a cell which it has answered.
        elif time.monotonic() > worker.deadline and (worker.cell is not None or not worker.ready):
            process.tell_stacks()
            yield from self._lose(worker, "stopped after its time limit", timed_out=True)
        # The limit that a worker sets for itself (RLIMIT_DATA) leaves out shared memory, so its resident memory is
        # measured from outside as well.
        elif process.memory() > self._memory:
            limit = f"{self._memory / _GIB:.1f} GiB"
            yield from self._lose(worker, f"stopped because its process took more than {limit} of memory")

    def _take_answer(self, worker: _Worker, answer: Mapping[str, Any]) -> Iterator[Event]:
        if not worker.ready:
            if "ready" not in answer:
                raise AnswerError("something else than that it is ready")
            worker.ready, self._failed_starts = True, 0
            yield Ready(answer["ready"])
            return
        cell = worker.cell
        if cell is None or "verdict" not in answer:
            raise AnswerError("something that it was not asked")
        try:
            verdict = self.accept(cell, answer["verdict"])
        except ValueError as err:
            raise AnswerError(f"something that is no verdict on its cell ({err})") from err
        # Bytes are counted before the worker loses its cell, because they are charged to the op of that cell.
        yield from self._count_printed(worker)
        worker.cell, worker.ends = None, bool(answer.get("ends"))
        yield Answered(cell, verdict)

    def _lose(self, worker: _Worker, how: str, timed_out: bool = False) -> Iterator[Event]:
        """End a worker that has ended or must end, and report the cell that it was judging as lost.

        Args:
            how: why, in one line. timed_out: whether the worker was out of time.

        Raises:
            StartError: `PATIENCE` workers in a row ended before their first cell.
        """
        cell = worker.cell
        yield from self._count_printed(worker)
        details = worker.process.last_words()
        yield from self._end(worker)
        if cell is not None:
            yield Died(cell, timed_out, how, details)
            yield from self._judge_op(cell)
        elif not worker.ready:
            # One worker may fail to start by chance. Two in a row mean that none can start here, and without an end
            # the pool would go on to start them for ever.
            self._failed_starts += 1
            if self._failed_starts >= PATIENCE:
                raise StartError(f"workers end before their first cell: {how}; {details[-500:]}")

    def _judge_op(self, cell: Cell) -> Iterator[Event]:
        """Give up cells like those that have ended too many workers, so that one bad op does not take all the time."""
        self._deaths.note(cell.op, cell.subject, cell.property)
        waiting, why = self._waiting.get(owner_of(cell.op)), self._deaths.why
        dropped = waiting.drop(lambda each: why(each.op, each.subject, each.property)) if waiting else []
        if dropped:
            yield GivenUp(tuple(dropped), why(dropped[0].op, dropped[0].subject, dropped[0].property))

    def _count_printed(self, worker: _Worker) -> Iterator[Event]:
        """Charge what the worker has printed to an op; a note, once for each op, where it prints much."""
        worker.process.listen()
        op = worker.cell.op if worker.cell is not None else worker.owner
        before = self._printed[op]
        self._printed[op] += worker.process.printed - worker.printed_before
        worker.printed_before = worker.process.printed
        if op and before <= LOUD < self._printed[op]:
            yield Note(describe_printing(op, worker.process.first_output()))

    def _end(self, worker: _Worker) -> list[Event]:
        """End a worker, and the processes that it has left behind, which have become children of this process."""
        if worker in self._workers:
            self._workers.remove(worker)
        self._forget(worker.process.answers)
        self._forget(worker.process.output)
        worker.process.close()
        names, owner = end_orphans(worker.process.mark), worker.owner
        # The ops of the catalog share their workers, so it is not known which of them left a process behind, and none
        # is named.
        return [Note(describe_leftovers(owner, names))] if names and owner else []

    def _forget(self, handle: int) -> None:
        # A pipe that was closed early is forgotten a second time when its worker ends, and -1 stands for a pipe that
        # never was.
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(handle)
