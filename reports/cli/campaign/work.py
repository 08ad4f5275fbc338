"""What a campaign asks of one kind of work: which items there are, and what becomes of their results.

A further kind is a class of this form, and one of each kind that is asked for is made by `more` of `run_campaign`.
The question of an item names the function that a worker calls with it (`properties.programs.worker`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from ....properties.campaign.performing import Item
from ...exit_codes import Reason
from ...store.journal import Lost


class WorkError(ValueError):
    """An answer that is no result of its item."""


class Work(Protocol):
    """One kind of work. Its results come in any order, and also, of items that are done already, from the log.

    Attributes:
        lines: what is printed of the results, once `finish` was called.
    """

    lines: list[str]

    def items(self) -> Sequence[Item]:
        """All items, in the order in which they should be asked; the same ones whenever the campaign is asked for."""

    def take(self, item: Item, answer: dict[str, Any], notes: Sequence[str]) -> bool:
        """Take in the answer of an item's process; whether it counts as a failure.

        Raises:
            WorkError: the answer is no result of the item.
        """

    def lose(self, item: Item, lost: Lost) -> None:
        """Take in that an item has no answer, because its processes ended or it was out of time.

        Called a second time where `inquire` has found out more.
        """

    def inquire(self, stopped: Callable[[], bool]) -> Iterator[tuple[Item, Lost]]:
        """Look into why items were lost, once all are asked, and give those of which more is known now.

        Once `stopped`, which is asked several times a second, is true, nothing more is looked into.
        """

    def leave(self, items: Sequence[Item], why: str) -> None:
        """Take in that items will not be asked."""

    def finish(self, interrupted: str) -> list[Reason]:
        """Merge what there is; why that is no success, if verdicts do not say it. `interrupted`: why it ended early."""

    def worst(self) -> str:
        """What is worst so far, as a few words; empty where there is nothing to say."""
