"""Work that waits to be done, handed out so that whoever does it stays with one op.

What a process learns of an op (which samples cover what it declares, what is compiled for it) it learns once, and the
next piece of work on the same op is done sooner. So two processes are given different ops for as long as there are
several, and share the last ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Waiting(Generic[T]):
    """Pieces of work by op; each op's in the order in which they came.

    Args:
        pieces: of work. op_of: the op that one is about.
    """

    def __init__(self, pieces: Iterable[T], op_of: Callable[[T], str]) -> None:
        self._op_of = op_of
        self._by_op: dict[str, deque[T]] = {}
        for piece in pieces:
            self.put(piece)

    def put(self, piece: T) -> None:
        self._by_op.setdefault(self._op_of(piece), deque()).append(piece)

    def __len__(self) -> int:
        return sum(map(len, self._by_op.values()))

    def take(self, last: str = "", others: Container[str] = ()) -> T:
        """The piece to do next.

        Args:
            last: the op that whoever asks was busy with. others: the ops that others are busy with.

        Returns:
            A piece about the same op; where there is none, about the first op that nobody is busy with; where there is
            none either, about the op of which most is left.

        Raises:
            IndexError: nothing waits.
        """
        ops = [op for op, left in self._by_op.items() if left]
        if not ops:
            raise IndexError("nothing waits")
        free = next((op for op in ops if op not in others), None)
        op = last if last in ops else free or max(ops, key=lambda op: len(self._by_op[op]))
        return self._by_op[op].popleft()

    def drop(self, unwanted: Callable[[T], object]) -> list[T]:
        """Take out what is not wanted any more."""
        dropped: list[T] = []
        for op, left in self._by_op.items():
            kept: deque[T] = deque()
            for piece in left:
                (dropped if unwanted(piece) else kept).append(piece)
            self._by_op[op] = kept
        return dropped
