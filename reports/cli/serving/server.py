"""A server: the queue of a folder, the slots that judge, and the web application, until a signal ends it."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from .queue import JudgementQueue
from .slots import COMMAND, Slot, require_request
from .web import Service


def serve_folder(
    folder: Path, token: str, bound: socket.socket, *, workers: int, most: int, days: float,
    command: Sequence[str] = COMMAND,
) -> None:  # fmt: skip
    """Serve until SIGINT or SIGTERM; items that are running then wait for the next server.

    Args:
        folder: of the queue. token: that requests must have. bound: a socket that has its address.
        workers: judgements at once. most: items that may wait. days: after which answers are removed.
        command: the program of a judge.
    """
    queue, stopped = JudgementQueue(folder / "queue.sqlite", most), threading.Event()
    queue.forget(days)
    slots = [threading.Thread(target=Slot(queue, stopped, command).run) for _ in range(workers)]
    for slot in slots:
        slot.start()
    # When it has stopped, uvicorn raises the signal that stopped it once more, for the handler that was there before.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app = Service(queue, token, require_request).app()
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[bound])
    finally:
        stopped.set()
        for slot in slots:
            slot.join()
        queue.close()
