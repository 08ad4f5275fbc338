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


def nearest_operand(operands: list[tuple[int, int, str]], address: int) -> list[str]:
    """Where an address is, as seen from the operand that is nearest to it: a line, or none.

    Args:
        operands: the first byte of each, the one behind it, and its name.
    """
    rows = [(max(start - address, address - end + 1, 0), start, end, name) for start, end, name in operands]
    if not rows:
        return []
    away, start, end, name = min(rows)
    where = f"{start - address} bytes before" if address < start else f"{address - end} bytes behind the end of"
    return [f"nearest operand: {name}; the address is {where if away else 'within'} it, which has {end - start} bytes"]
