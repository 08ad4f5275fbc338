"""The queue over HTTP: JSON in, JSON out, a token in every request; and the server, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ....properties.candidates.host.isolation import offer
from ....properties.engine.environment import versions
from ...schemas.documents import schema_of
from .judges import ItemJudge, require_request
from .queue import FullError, JudgementQueue, OtherContentError, ProblemRequest, QueueItem
from .slots import Slot

#: Bytes of a request; seconds after which somebody who was turned away may try again, and the longest wait.
MOST_BYTES, RETRY_AFTER, LONGEST_WAIT = 8 * 2**20, 5, 60.0
#: Seconds between two looks for an answer that is waited for.
_TICK = 0.05

Handler = Callable[[Request], Awaitable[Response]]


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def refuse(status: int, error: str, headers: dict[str, str] | None = None) -> Response:
    return json_response({"error": error}, status, headers)


def describe(item: QueueItem) -> dict[str, Any]:
    """An item as clients see it: `id`, `state`, `attempts`, and of one that is done `judgement` or `error`."""
    answer = msgspec.json.decode(item.answer) if item.answer else {}
    return {"id": item.id, "state": item.state, "attempts": item.attempts, **answer}


class Service:
    """The answers to requests.

    Args:
        queue: of items. token: that every request must have.
        check: raises ValueError for a request that cannot be judged.
        failures: what keeps each slot from judging now; an empty text for nothing.
    """

    def __init__(
        self, queue: JudgementQueue, token: str, check: Callable[[ProblemRequest], None],
        failures: Callable[[], Sequence[str]],
    ) -> None:  # fmt: skip
        self._queue, self._token, self._check, self._failures = queue, token, check, failures
        self._decoder = msgspec.json.Decoder(ProblemRequest | list[ProblemRequest])

    def app(self) -> Starlette:
        routes = [
            Route("/judgements", self._guarded(self.add), methods=["POST"]),
            Route("/judgements/{id}", self._guarded(self.find), methods=["GET"]),
            Route("/", self._guarded(self.describe_itself), methods=["GET"]),
            Route("/health", self._guarded(self.health), methods=["GET"]),
        ]
        return Starlette(routes=routes)

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            token = request.headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(token.encode(), self._token.encode()):
                return refuse(401, "authorization: need `Bearer TOKEN`", {"WWW-Authenticate": "Bearer"})
            try:
                return await handler(request)
            except sqlite3.Error as err:  # another program has the file, or the disk is full
                return refuse(503, f"the queue: {err}", {"Retry-After": str(RETRY_AFTER)})

        return guarded

    async def add(self, request: Request) -> Response:
        """POST /judgements: one request or a list, of which all are accepted or none. 202 with the items."""
        content = bytearray()
        async for chunk in request.stream():
            content += chunk
            if len(content) > MOST_BYTES:
                return refuse(413, f"the request has more than {MOST_BYTES} bytes")
        try:
            decoded = self._decoder.decode(content)
            requests = decoded if isinstance(decoded, list) else [decoded]
            for each in requests:
                self._check(each)
            items = await run_in_threadpool(self._queue.add, requests)
        except (msgspec.MsgspecError, ValueError) as err:
            return refuse(422, str(err))
        except OtherContentError as err:
            return refuse(409, f"id={err}: is that of another request")
        except FullError:
            return refuse(429, "too many items wait", {"Retry-After": str(RETRY_AFTER)})
        described = [describe(item) for item in items]
        return json_response(described if isinstance(decoded, list) else described[0], 202)

    async def find(self, request: Request) -> Response:
        """GET /judgements/ID?wait=SECONDS: the item, once it is done or the time is over."""
        name = request.path_params["id"]
        try:
            wait = min(float(request.query_params.get("wait", "0")), LONGEST_WAIT)
        except ValueError:
            return refuse(422, f"wait: got {request.query_params['wait']!r}, need seconds")
        until = time.monotonic() + wait
        while True:
            item = await run_in_threadpool(self._queue.find, name)
            if item is None:
                return refuse(404, f"id={name}: there is no such item")
            if item.state == "done" or not time.monotonic() < until:
                return json_response(describe(item))
            await asyncio.sleep(_TICK)

    async def describe_itself(self, request: Request) -> Response:
        """GET /: the schemas of a request and of a judgement, and by what candidates are isolated here."""
        isolation = await run_in_threadpool(offer)
        schemas = {"request": msgspec.json.schema(ProblemRequest), "judgement": schema_of("judgement")}
        own = {"opassay": versions().get("opassay", "unknown"), "isolation": isolation.by, "reachable": isolation.lacks}
        return json_response({**own, **schemas})

    async def health(self, request: Request) -> Response:
        """GET /health: how many items wait, are running and are done, and slots that judge; 503 where none does."""
        failures = self._failures()
        slots = failures.count("")
        counts = {**await run_in_threadpool(self._queue.counts), "slots": slots}
        return json_response(
            counts if slots else {**counts, "error": "; ".join(dict.fromkeys(failures))}, 200 if slots else 503
        )


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
