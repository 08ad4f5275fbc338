"""Cells, judged by the workers of a Dask cluster: the events of a `Pool` over shares of the cells.

Dask finds the workers, and gives to another one what a lost worker had. No op runs in a process of Dask: a share is
judged there by a pool of one process, so that what ops do to their process is told as in a run on one machine. This
module alone knows Dask, which is imported when a cluster is asked.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...oracles.verdicts.verdict import Cell, Verdict
from .crash_limit import CrashLimit
from .pool import Answered, Died, Event, GivenUp, Pool, PoolTerms, StartError, fair_share

#: What is said of a cell whose workers ended, and not only its process.
WORKERS_ENDED = "the workers of the cluster that judged this cell ended, each time"
#: Cells of a share, all of one op, of which a process learns once; few enough that little is lost with a worker. Where
#: there are few cells for each worker, shares are smaller.
_SHARE = 8
#: Shares under way for each worker: one that it judges, and one that waits there.
_AHEAD = 2
#: Seconds without any worker after which a cluster is given up.
PATIENCE = 300.0
_TICK = 0.5

Accept = Callable[[Cell, Any], Verdict]


@dataclass
class _Bench:
    """What a thread of a worker judges the cells of a run with: a pool of one process, which outlives a share.

    What a process has learned of an op, and the imports before its first cell, take longer than many cells do.
    """

    run: str
    pool: Pool
    stop: threading.Event

    def __post_init__(self) -> None:
        self.events = self.pool.events()

    def judge(self, cells: Sequence[Cell]) -> list[Event]:
        """The events of some cells. Behind the last of them the pool stands still, and its process waits."""
        self.pool.add(cells)
        events, missing = list[Event](), set(cells)
        while missing:
            event = next(self.events, None)
            if event is None:  # it was stopped
                break
            events.append(event)
            if isinstance(event, Answered | Died):
                missing.discard(event.cell)
            elif isinstance(event, GivenUp):
                missing.difference_update(event.cells)
        return events

    def close(self) -> None:
        """End the process; one that judges is ended by its own thread, within a moment."""
        self.stop.set()
        with contextlib.suppress(ValueError):  # the generator runs
            self.events.close()


#: By thread of a worker.
_BENCHES: dict[int, _Bench] = {}


def judge_share(cells: Sequence[Cell], run: str, terms: PoolTerms, accept: Accept, beside: int) -> list[Event]:
    """What a pool of one process says of some cells; the task of a worker, of which `beside` share its machine.

    Raises:
        StartError: as the pool.
    """
    thread = threading.get_ident()
    bench = _BENCHES.pop(thread, None)
    if bench is None or bench.run != run:
        if bench is not None:
            bench.close()
        alone, stop = replace(terms, workers=1, memory=terms.memory or fair_share(beside)), threading.Event()
        bench = _Bench(run, Pool([], alone, accept, stop.is_set), stop)
    _BENCHES[thread] = bench
    try:
        return bench.judge(cells)
    except BaseException:
        _BENCHES.pop(thread, None)
        raise


def release(run: str) -> None:
    """End the processes that a worker has for a run."""
    for thread, bench in list(_BENCHES.items()):
        if bench.run == run:
            bench.close()
            _BENCHES.pop(thread, None)


#: Cells that a worker is given together; and whether workers ended with them, so that nothing else is under way now.
_Share = tuple[Sequence[Cell], bool]


@dataclass
class Cluster:
    """Judges cells on a cluster; iterate over `events`.

    Args:
        address: of the Dask scheduler. cells, terms, accept, stopped: as those of `Pool`; `accept` is called in the
            cluster's workers, and `terms.workers` has no meaning.
    """

    address: str
    cells: Sequence[Cell]
    terms: PoolTerms
    accept: Accept
    stopped: Callable[[], bool]
    _deaths: CrashLimit = field(default_factory=CrashLimit)
    _under_way: dict[Any, _Share] = field(default_factory=dict)
    _ended: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    _run: str = field(default_factory=lambda: uuid.uuid4().hex)

    def events(self) -> Generator[Event, None, None]:
        """As `Pool.events`, those of a share at once.

        Raises:
            StartError: the cluster cannot be had or was lost, or its workers cannot start processes.
        """
        import distributed

        try:
            client = distributed.Client(self.address, set_as_default=False, timeout=30)
        except (OSError, ValueError, RuntimeError) as err:
            why = f"{type(err).__name__}: {err}"
            raise StartError(f"scheduler {self.address} cannot be had: {why}") from err
        try:
            yield from self._ask(client)
        finally:
            with contextlib.suppress(Exception):  # the scheduler may be gone
                client.cancel(list(self._under_way), force=True)
                client.run(release, self._run)
            client.close()

    def _ask(self, client: Any) -> Iterator[Event]:
        waiting, suspects = deque(_shares(self.cells, _seats(client))), deque[_Share]()
        time_with_worker = time.monotonic()
        while (waiting or suspects or self._under_way) and not self.stopped():
            seats = _seats(client)
            time_with_worker = time.monotonic() if seats else time_with_worker
            if time.monotonic() - time_with_worker > PATIENCE:
                raise StartError(f"the cluster had no worker for {PATIENCE:.0f} s")
            if suspects and not waiting and not self._under_way:
                yield from self._begin(client, suspects.popleft())
            while waiting and len(self._under_way) < _AHEAD * seats:
                yield from self._begin(client, waiting.popleft())
            with contextlib.suppress(queue.Empty):
                future = self._ended.get(timeout=_TICK)
                cells, suspect = self._under_way.pop(future)
                events = _outcome(future, cells, suspect)
                # A worker that ends takes with it what waited there. So each cell of a share whose workers ended is
                # asked once more, when nothing else is under way: only if they end again it was this cell.
                suspects += [([cell], True) for cell in cells] if events is None else []
                for event in events or ():
                    if isinstance(event, Died):
                        self._deaths.note(event.cell.op, event.cell.subject, event.cell.property)
                    yield event

    def _begin(self, client: Any, share: _Share) -> Iterator[Event]:
        """Hand out a share, without those of its cells that are given up because others ended their processes."""
        reasons = {cell: self._deaths.why(cell.op, cell.subject, cell.property) for cell in share[0]}
        for why in filter(None, dict.fromkeys(reasons.values())):
            yield GivenUp(tuple(cell for cell in reasons if reasons[cell] == why), why)
        cells = [cell for cell in reasons if not reasons[cell]]
        if cells:
            hosts = Counter(address.rpartition(":")[0] for address in client.nthreads())
            # `pure=False` gives every share a name of its own: no result of another run is taken for it.
            beside = max(hosts.values(), default=1)
            future = client.submit(judge_share, cells, self._run, self.terms, self.accept, beside, pure=False)
            self._under_way[future] = cells, share[1]
            future.add_done_callback(self._ended.put)


def _seats(client: Any) -> int:
    """How many shares the cluster judges at once."""
    if client.status != "running":
        raise StartError("the scheduler of the cluster was lost")
    return sum(client.nthreads().values())


def _shares(cells: Iterable[Cell], seats: int) -> list[_Share]:
    """The cells in their order, those of one op in shares of equal size."""
    by_op: dict[str, list[Cell]] = {}
    for cell in cells:
        by_op.setdefault(cell.op, []).append(cell)
    count = sum(map(len, by_op.values()))
    size = min(max(count // (4 * max(seats, 1)), 1), _SHARE)
    return [(own[start : start + size], False) for own in by_op.values() for start in range(0, len(own), size)]


def _outcome(future: Any, cells: Sequence[Cell], suspect: bool) -> list[Event] | None:
    """What came of a share; None where its workers ended, and nobody knows whether one of its cells ended them."""
    from distributed import CancelledError, KilledWorker

    try:
        events: list[Event] = future.result()
    except KilledWorker:
        return [Died(cell, False, WORKERS_ENDED, parent=True) for cell in cells] if suspect else None
    except StartError:
        raise
    except CancelledError as err:
        raise StartError("the scheduler of the cluster was lost") from err
    except Exception as err:  # whatever a worker raises that is no pool's, such as an opassay that is not installed
        raise StartError(f"a worker of the cluster could not judge: {type(err).__name__}: {err}") from err
    return events
