"""What waits to be asked, handed out so that a worker stays with one topic: the op of a cell, the module of a mutant.

What a process learns of an op (which samples cover what it declares, what is compiled for it) it learns once, and its
next cell of the same op is judged sooner. So two workers are given different ops for as long as there are several, and
share the last ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from typing import Generic, TypeVar

T = TypeVar("T")


class TopicQueue(Generic[T]):
    """What waits, by its topic; that of each topic in the order in which it came.

    Args:
        topic_of: the topic of what waits.
    """

    def __init__(self, topic_of: Callable[[T], str]) -> None:
        self._topic_of = topic_of
        self._by_topic: dict[str, deque[T]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def put(self, one: T) -> None:
        """One more waits."""
        self._by_topic.setdefault(self._topic_of(one), deque()).append(one)

    def take(self, last: str, others: Container[str]) -> T:
        """What a worker is asked next; it waits no more.

        Args:
            last: the topic of what the worker was asked last; empty for none. others: the topics of other workers.

        Returns:
            Of the same topic; where there is none, of the first that no other worker is at; where there is none either,
            of that of which most is left.

        Raises:
            IndexError: nothing waits.
        """
        topics = [topic for topic, left in self._by_topic.items() if left]
        if not topics:
            raise IndexError("nothing waits")
        alone = [last] if last in topics else [topic for topic in topics if topic not in others]
        topic = alone[0] if alone else max(topics, key=lambda topic: len(self._by_topic[topic]))
        return self._by_topic[topic].popleft()

    def drop(self, unwanted: Callable[[T], object]) -> list[T]:
        """What is not wanted any more; it waits no more."""
        dropped = [one for left in self._by_topic.values() for one in left if unwanted(one)]
        gone = set(map(id, dropped))
        for topic, left in self._by_topic.items():
            self._by_topic[topic] = deque(one for one in left if id(one) not in gone)
        return dropped
