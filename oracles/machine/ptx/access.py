"""Who touches memory, and where: what `Space` is told of an instruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .formats import Lanes


@dataclass(frozen=True)
class Access:
    """Who touches memory, and by which instruction.

    Attributes:
        addresses: of every thread, bytes from the start of the space. threads: their numbers, in the space's counting.
        width, count: bytes of an element, and how many elements one thread touches in a row.
        where: the instruction in words.
    """

    addresses: Lanes
    threads: Lanes
    width: int
    count: int
    where: str

    def choose(self, choice: Any) -> Access:
        """The access of some of the threads."""
        return Access(self.addresses[choice], self.threads[choice], self.width, self.count, self.where)
