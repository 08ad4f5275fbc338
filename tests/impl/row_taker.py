"""Takes rows of a board, in a process of its own, and keeps them; not a test itself."""

from __future__ import annotations

import time
from typing import Any

from opassay.impl.comm import Board


def take(connection: Any, path: str) -> None:
    """Ask for a row that is taken, then for one that is not; then do nothing."""
    board = Board.join(path)
    try:
        board.enter(0)
    except RuntimeError as err:
        connection.send(str(err))
    board.enter(1)
    connection.send("entered")
    time.sleep(60)


if __name__ == "taking":
    take(globals()["connection"], globals()["path"])
