"""A server: the queue of a folder, the slots that judge, and the web application, until a signal ends it."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from .judges import ItemJudge
from .queue import JudgementQueue
from .requests import require_request
from .slots import Slot
from .web import Service


def serve_folder(
    folder: Path, token: str, bound: socket.socket, *, judges: Sequence[ItemJudge], most: int, days: float
) -> None:
    """Serve until SIGINT or SIGTERM; items that are running then wait for the next server.

    Args:
        folder: of the queue. token: that requests must have. bound: a socket that has its address.
        judges: as many as judge at once. most: items that may wait. days: after which answers are removed.
    """
    queue, stopped = JudgementQueue(folder / "queue.sqlite", most), threading.Event()
    queue.forget(days)
    slots = [Slot(queue, judge, stopped) for judge in judges]
    threads = [threading.Thread(target=slot.run) for slot in slots]
    for thread in threads:
        thread.start()
    # When it has stopped, uvicorn raises the signal that stopped it once more, for the handler that was there before.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app = Service(queue, token, require_request, lambda: [slot.failure for slot in slots]).app()
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[bound])
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
        queue.close()
