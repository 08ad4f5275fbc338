"""A campaign's worker is given items of the topic that it is at, for as long as there are some."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import pytest

from opassay.properties.campaign.performing import Item
from opassay.properties.places.topic_queue import TopicQueue
from opassay.reports.cli.campaign.cluster import _AHEAD, _Topics

NAMES = [f"{topic}{number}" for topic in "abcd" for number in range(6)]


class _Scheduler:
    """Gives each item to the worker that has least to do, as Dask does; all items take equally long."""

    def __init__(self, names: list[str], workers: int, unwanted: tuple[str, ...] = ()) -> None:
        self._waiting = TopicQueue[Item](lambda item: item.topic)
        for name in names:
            self._waiting.put(Item("test", name, ("", "", ""), "", {}, name[0]))
        self._unwanted, self._topics = unwanted, _Topics()
        self.queues: list[deque[Item]] = [deque() for _ in range(workers)]
        self.requests: list[list[str]] = [[] for _ in range(workers)]

    def run(self, nameless: str = "") -> None:
        """Until nothing waits. Of the item called `nameless` nobody knows which worker had it."""
        self._begin()
        while any(self.queues):
            for number, queue in enumerate(self.queues):
                if queue:
                    item = queue.popleft()
                    name = "" if item.name == nameless else f"worker {number}"
                    self._topics.end_item(name, item.topic, len(self.queues))
                    self._begin()

    def _begin(self) -> None:
        while self._waiting and sum(map(len, self.queues)) < _AHEAD * len(self.queues):
            at = [item.topic for queue in self.queues for item in queue]
            item = self._topics.next_of(self._waiting, self._is_wanted, at, len(self.queues))
            if item is not None:
                number = min(range(len(self.queues)), key=lambda each: len(self.queues[each]))
                self.queues[number].append(item)
                self.requests[number].append(item.name)

    def _is_wanted(self, item: Item) -> bool:
        return item.name not in self._unwanted

    def changes(self) -> int:
        """How often a worker was given an item of another topic than before."""
        return sum(one[0] != other[0] for result in self.requests for one, other in pairwise(result))

    def all(self) -> list[str]:
        return sorted(name for result in self.requests for name in result)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_each_worker_stays_with_a_topic(workers: int) -> None:
    scheduler = _Scheduler(NAMES, workers)
    scheduler.run()
    assert scheduler.all() == NAMES
    # Handed out in the order in which they came, items of a topic would go to all workers in turn. Here each topic is
    # one worker's, but for the last ones, which are shared.
    assert scheduler.changes() <= 3 + workers


def test_items_in_the_order_of_their_coming_would_be_of_many_topics() -> None:
    scheduler = _Scheduler([f"{topic}{number}" for number in range(6) for topic in "abcd"], 2)
    scheduler.run()
    assert scheduler.all() == NAMES
    assert scheduler.changes() <= 5


def test_what_is_not_wanted_is_passed_over() -> None:
    scheduler = _Scheduler(NAMES, 2, unwanted=("a1", "a2", "b3", "d5"))
    scheduler.run()
    assert scheduler.all() == [name for name in NAMES if name not in ("a1", "a2", "b3", "d5")]


def test_an_item_whose_worker_nobody_knows_loses_nothing() -> None:
    scheduler = _Scheduler(NAMES, 2)
    scheduler.run(nameless="a2")
    assert scheduler.all() == NAMES


def test_workers_that_are_gone_are_forgotten() -> None:
    topics, waiting = _Topics(), TopicQueue[Item](lambda item: item.topic)
    for name in NAMES:
        waiting.put(Item("test", name, ("", "", ""), "", {}, name[0]))
    for number in range(9):
        topics.end_item(f"worker {number}", "abcd"[number % 4], 2)
    assert list(topics._of) == ["worker 7", "worker 8"]
    item = topics.next_of(waiting, lambda _: True, [], 2)
    assert item is not None  # of a worker that is gone: any item will do, and of a topic that nobody is at
    assert item.topic not in topics._of.values()
