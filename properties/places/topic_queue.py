"""A queue of work from which a worker gets items of one topic in a row: the op of a cell, the module of a mutant.

A process learns about an op once (which samples cover the declared values, what is compiled for it), and judges its
next cell of the same op sooner. So two workers get different ops for as long as there are several, and share the last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from typing import Generic, TypeVar

T = TypeVar("T")


class TopicQueue(Generic[T]):
    """Items that wait, by topic; those of one topic in the order in which they came."""

    def __init__(self, topic_of: Callable[[T], str]) -> None:
        self._topic_of = topic_of
        self._by_topic: dict[str, deque[T]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def put(self, one: T) -> None:
        """Add an item."""
        self._by_topic.setdefault(self._topic_of(one), deque()).append(one)

    def take(self, last: str, others: Container[str]) -> T:
        """Remove and return the next item for a worker.

        Args:
            last: the topic of the worker's last item; empty for none. others: the topics of other workers.

        Returns:
            An item of the topic `last`; if none waits, of the first topic that no other worker has; if there is no such
            topic, of the one with the most items.

        Raises:
            IndexError: nothing waits.
        """
        topics = [topic for topic, waiting in self._by_topic.items() if waiting]
        if not topics:
            raise IndexError("nothing waits")
        alone = [last] if last in topics else [topic for topic in topics if topic not in others]
        topic = alone[0] if alone else max(topics, key=lambda topic: len(self._by_topic[topic]))
        return self._by_topic[topic].popleft()

    def drop(self, unwanted: Callable[[T], object]) -> list[T]:
        """Remove and return the items that are unwanted."""
        dropped = [one for waiting in self._by_topic.values() for one in waiting if unwanted(one)]
        dropped_ids = set(map(id, dropped))
        for topic, waiting in self._by_topic.items():
            self._by_topic[topic] = deque(one for one in waiting if id(one) not in dropped_ids)
        return dropped
