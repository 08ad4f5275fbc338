"""The engine under a campaign: a Dask cluster, and items that go through it.

Dask finds workers, gives them items and notices when one is lost; an item that was lost with its worker is given to
another. This module alone knows Dask, which is imported when a cluster is entered.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from ....properties.campaign.bench import ItemLost, NotStarted
from ....properties.campaign.performing import Item, ItemLimits, ItemReport, perform, release
from ....properties.places.topic_queue import TopicQueue
from ...text import one_line

#: What is said of an item whose workers ended, and not only its processes.
WORKERS_ENDED = "the workers of the cluster that ran this item ended, each time"
#: How often an item may lose its process, or its worker, before it is given up.
DEATHS = 3
#: Items under way for each worker: one that it runs, and one that waits there, so that no worker is idle while the
#: answer of its last item is on its way.
_AHEAD = 2
#: Seconds without any worker after which a campaign ends.
PATIENCE = 300.0
#: How often a cluster on this machine samples its own state. By default its workers do so a hundred times a second,
#: which takes 2 % of a processor that the items need.
_SELDOM = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
}
_TICK = 0.2
#: Seconds between two looks at how many workers there are.
_LOOK = 2.0


class ClusterError(RuntimeError):
    """The cluster cannot be had, or was lost; says nothing of any item."""


class Cluster:
    """A cluster while it is entered: one on this machine, or somebody's.

    Args:
        workers: processes of a cluster on this machine. address: of a scheduler that is there; empty for none.

    Attributes:
        seats: how many items it can run at once.
    """

    def __init__(self, workers: int, address: str = "") -> None:
        self._workers, self._address = workers, address
        self._stack = contextlib.ExitStack()
        self._client: Any = None
        self.seats = 0

    def __enter__(self) -> Cluster:
        import dask
        import distributed

        try:
            # A lost worker is told by this program, and not by a warning in the middle of its bar.
            self._stack.enter_context(_quiet())
            target: Any = self._address
            if not self._address:
                with dask.config.set({**_SELDOM, "distributed.scheduler.allowed-failures": DEATHS - 1}):
                    target = distributed.LocalCluster(
                        n_workers=self._workers, threads_per_worker=1, processes=True, host="127.0.0.1",
                        dashboard_address=None, memory_limit=0, silence_logs=logging.CRITICAL,
                        preload=perform.__module__,
                    )  # fmt: skip
                self._stack.callback(target.close)
            self._client = distributed.Client(target, set_as_default=False, timeout=30)
            self._stack.callback(self._client.close)
            self.seats = self._count()
        except (OSError, ValueError, RuntimeError) as err:  # RuntimeError: what it started ended at once
            self._stack.close()
            where = f"scheduler {self._address}" if self._address else "a cluster on this machine"
            raise ClusterError(f"{where} cannot be had: {type(err).__name__}: {one_line(str(err))}") from err
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):  # the workers of somebody's cluster may be gone
            if self._address:
                self._client.run(release)
        with contextlib.suppress(Exception):
            self._stack.close()

    def beside(self) -> int:
        """How many items run at once on the machine that runs most of them."""
        hosts: dict[str, int] = {}
        for address, seats in self._client.nthreads().items():
            host = address.rpartition("://")[2].rpartition(":")[0]
            hosts[host] = hosts.get(host, 0) + seats
        return max(hosts.values(), default=max(self._workers, 1))

    def run(
        self, items: Sequence[Item], manner: ItemLimits, may_run: Callable[[Item], bool], stopped: Callable[[], bool]
    ) -> Iterator[tuple[Item, ItemReport | ItemLost] | None]:
        """Runs the items, and gives each with what came of it, in any order; None now and then, while nothing comes.

        Args:
            items: in the order in which they should be begun. manner: how each is run.
            may_run: called before an item is begun; an item for which it gives False is passed over.
            stopped: asked several times a second; once it is true, nothing more is begun, and what runs is left.

        Raises:
            ClusterError: the scheduler was lost, or there was no worker for long.
        """
        waiting, under_way = TopicQueue[Item](lambda item: item.topic), dict[Any, Item]()
        for item in items:
            waiting.put(item)
        topics = _Topics()
        # A worker that ends takes with it what waited there. So an item whose workers ended is asked once more, when
        # nothing else is under way: only if they end again it was this item.
        suspects, alone = deque[Item](), set[str]()
        finished_futures: queue.SimpleQueue[Any] = queue.SimpleQueue()
        how = json.dumps(asdict(replace(manner, beside=self.beside())))
        time_of_count, time_with_worker = 0.0, time.monotonic()
        try:
            while (waiting or under_way or suspects) and not stopped():
                now = time.monotonic()
                if now - time_of_count > _LOOK:
                    time_of_count, self.seats = now, self._count()
                    time_with_worker = now if self.seats else time_with_worker
                if now - time_with_worker > PATIENCE:
                    raise ClusterError(f"there was no worker for {PATIENCE:.0f} s")
                if suspects and not waiting and not under_way:
                    alone.add(suspects[0].name)
                    waiting.put(suspects.popleft())
                while waiting and len(under_way) < _AHEAD * self.seats:
                    at = [each.topic for each in under_way.values()]
                    begun = topics.next_of(waiting, may_run, at, self.seats)
                    if begun is not None:
                        future = self._begin(begun, how)
                        under_way[future] = begun
                        future.add_done_callback(finished_futures.put)
                try:
                    future = finished_futures.get(timeout=_TICK)
                except queue.Empty:
                    yield None
                    continue
                item, outcome = under_way.pop(future), self._outcome(future)
                topics.end_item(outcome.worker if isinstance(outcome, ItemReport) else "", item.topic, self.seats)
                if outcome is None and item.name not in alone:
                    suspects.append(item)
                else:
                    yield item, outcome or ItemLost(WORKERS_ENDED)
        finally:
            for future in under_way:
                with contextlib.suppress(Exception):
                    future.cancel()

    def _begin(self, item: Item, how: str) -> Any:
        # An item whose worker dies is begun again by the scheduler, one whose process dies by `retries`. `pure=False`
        # gives every item a name of its own, so that no result of another campaign on this scheduler is taken for it.
        return self._client.submit(
            perform, json.dumps(asdict(item)), how, pure=False, retries=DEATHS - 1, key=None, priority=0
        )

    def _outcome(self, future: Any) -> ItemReport | ItemLost | None:
        """What came of an item; None where its workers ended several times."""
        from distributed import CancelledError, KilledWorker

        try:
            answer = json.loads(future.result())
        except ItemLost as err:
            return err
        except KilledWorker:
            return None
        except NotStarted as err:
            raise ClusterError(str(err)) from err
        except CancelledError as err:
            raise ClusterError("the scheduler was lost") from err
        except Exception as err:
            text = f"a worker of the cluster could not run an item: {type(err).__name__}: {one_line(str(err))}"
            raise ClusterError(text) from err
        answer["lost"] = None if answer["lost"] is None else tuple(answer["lost"])
        return ItemReport(**{**answer, "left": tuple(answer["left"])})

    def _count(self) -> int:
        if self._client.status != "running":
            raise ClusterError("the scheduler was lost")
        return sum(self._client.nthreads().values())


class _Topics:
    """Which topic each worker is at.

    No worker is named to Dask: it gives an item to the worker that has least to do, and that is the one whose item has
    just ended. So the next item is of that worker's topic. Where Dask decides otherwise, a process learns something
    that another one knows, and nothing else is lost.
    """

    def __init__(self) -> None:
        self._of: dict[str, str] = {}  # by worker; the one that answered last stands at the end
        self._free: deque[str] = deque()  # workers that have an item less than they may have

    def end_item(self, worker: str, topic: str, seats: int) -> None:
        """Note that a worker, "" where nobody knows which, has ended an item of a topic.

        Where more workers are noted than the cluster has seats, some are gone, and the oldest are forgotten.
        """
        self._free.append(worker)
        if worker:
            self._of[worker] = self._of.pop(worker, topic)
        while len(self._of) > max(seats, 1):
            del self._of[next(iter(self._of))]

    def next_of(
        self, waiting: TopicQueue[Item], may_run: Callable[[Item], bool], under_way: Sequence[str], seats: int
    ) -> Item | None:
        """What is begun next, of the topic of the worker that is free; it waits no more. None if nothing is wanted.

        Args:
            may_run: whether an item is to be asked still. under_way: topics of the items that have no answer yet.
            seats: of the cluster.
        """
        worker = self._free.popleft() if self._free else ""
        others = [topic for name, topic in self._of.items() if name != worker]
        last = self._of.get(worker, "")
        if not self._of:  # Nobody has answered yet: each worker gets a topic of its own, and then one more item of it.
            others = [*under_way]
            alone = (topic for topic, count in Counter(others).items() if count == 1)
            last = next(alone, "") if len(others) >= seats else ""
        while waiting:
            item = waiting.take(last, others)
            if may_run(item):
                if worker in self._of:
                    self._of[worker] = item.topic
                return item
        return None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No messages of Dask and of what it uses, for as long as it is entered."""
    logs = [logging.getLogger(name) for name in ("distributed", "tornado", "asyncio")]
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)
