"""The methods that kinds of work for a campaign share whose items are lost one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from opassay.properties.campaign.performing import Item
from opassay.reports.progress import Teller
from opassay.reports.store.journal import Lost


class OneByOne:
    """The methods of kinds of work whose items are lost one by one, for a reason that is known at once.

    Attributes:
        noun: what several items are called.
    """

    noun: str
    _teller: Teller

    def lose(self, item: Item, lost: Lost) -> None:
        self._teller.count_outcome(f"{self.noun} lost")
        self._teller.say(f"{item.name}: {lost.how}")

    def inquire(self, stopped: Callable[[], bool]) -> Iterator[tuple[Item, Lost]]:
        return iter(())

    def leave(self, items: Sequence[Item], why: str) -> None:
        self._teller.skip(len(items), why)
