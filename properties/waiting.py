"""Cells that wait to be judged, handed out so that a worker stays with one op.

What a process learns of an op (which samples cover what it declares, what is compiled for it) it learns once, and its
next cell of the same op is judged sooner. So two workers are given different ops for as long as there are several, and
share the last ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container

from ..oracles.verdict import Cell


class Waiting:
    """Cells by op; each op's in the order in which they came."""

    def __init__(self) -> None:
        self._by_op: dict[str, deque[Cell]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_op.values()))

    def put(self, cell: Cell) -> None:
        """One more cell waits."""
        self._by_op.setdefault(cell.op, deque()).append(cell)

    def take(self, last: str, others: Container[str]) -> Cell:
        """The cell that a worker judges next; it waits no more.

        Args:
            last: the op of the worker's last cell; empty for none. others: the ops of what other workers judge.

        Returns:
            A cell of the same op; where there is none, of the first op that no other worker judges; where there is none
            either, of the op of which most is left.

        Raises:
            IndexError: nothing waits.
        """
        ops = [op for op, left in self._by_op.items() if left]
        if not ops:
            raise IndexError("nothing waits")
        alone = [last] if last in ops else [op for op in ops if op not in others]
        op = alone[0] if alone else max(ops, key=lambda op: len(self._by_op[op]))
        return self._by_op[op].popleft()

    def drop(self, unwanted: Callable[[Cell], object]) -> list[Cell]:
        """The cells that are not wanted any more; they wait no more."""
        dropped = [cell for left in self._by_op.values() for cell in left if unwanted(cell)]
        gone = set(dropped)
        self._by_op = {op: deque(cell for cell in left if cell not in gone) for op, left in self._by_op.items()}
        return dropped
