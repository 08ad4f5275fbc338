"""The queue of judgements, on disk: what was accepted stays there until it is answered, whoever is killed meanwhile.

Every change is one transaction of SQLite, which is on the disk when it returns. An item is answered once: the answer is
written only where the item is running and has none.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

#: How often an item is begun, before a judge that ends without an answer becomes its answer.
MOST_ATTEMPTS = 3
_TABLE = """CREATE TABLE IF NOT EXISTS items (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, request BLOB NOT NULL, digest TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'queued', attempts INTEGER NOT NULL DEFAULT 0, answer BLOB, finished REAL)"""


class JudgementLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a judgement may take: seconds of each call, seconds of all questions, and GiB of memory of the candidate."""

    seconds: float = 20.0
    total: float = 120.0
    memory: float = 4.0


class ProblemRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A judgement that is asked for: the texts of two files, and options of `opassay judge`.

    Attributes:
        candidate, spec: the texts. candidate_name, spec_name: what in them is judged, and by what; empty for the usual
            names.
        contract, questions, stop, dtype, given: as `--contract`, `-k`, `-x`, `--dtype` and `--input`.
        limits: what it may take.
        kernels: how Triton's kernels run, as `--interpret` and `--compiled` say; by themselves for an empty text.
        id: that the item shall have; a new one by default.
    """

    candidate: str
    spec: str
    candidate_name: str = ""
    spec_name: str = ""
    contract: str = "torch"
    questions: list[str] = []
    stop: bool = False
    limits: JudgementLimits = JudgementLimits()
    kernels: Literal["", "interpret", "compiled"] = ""
    dtype: str = ""
    given: dict[str, Any] = {}
    id: str = ""


class OtherContentError(Exception):
    """An item with this id is there, and asks for something else."""


class FullError(Exception):
    """As many items wait as may wait."""


@dataclass(frozen=True)
class QueueItem:
    """One item of the queue.

    Attributes:
        id: of it. state: "queued", "running" or "done". attempts: how often it was begun. answer: JSON; empty before.
    """

    id: str
    state: str
    attempts: int
    answer: bytes = b""


class JudgementQueue:
    """The queue of a folder; its methods may be called by any thread.

    Args:
        path: of the file, which is for its owner alone. most: how many items may wait.

    Raises:
        sqlite3.Error: of all methods, where the file cannot be read or written for a while.
    """

    def __init__(self, path: Path, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT, 0o600))
        for each in path.parent.glob(f"{path.name}*"):  # the folder may be open to others
            each.chmod(0o600)
        self._store = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        for line in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", _TABLE):
            self._store.execute(line)
        # Nobody runs what an earlier server was running when it ended, which is no fault of the item.
        self._store.execute("UPDATE items SET state = 'queued', attempts = attempts - 1 WHERE state = 'running'")

    def add(self, requests: list[ProblemRequest]) -> list[QueueItem]:
        """Accept all of the requests, or none of them.

        Raises:
            FullError: too many wait. OtherContentError: an id is that of another request.
        """
        with self._lock, self._store:
            self._store.execute("BEGIN IMMEDIATE")
            items = [self._add(request) for request in requests]
            if self._count("queued") > self._most:
                raise FullError
        return items

    def _add(self, request: ProblemRequest) -> QueueItem:
        name = request.id or secrets.token_hex(16)
        content = msgspec.json.encode(msgspec.structs.replace(request, id=name))
        digest = hashlib.sha256(content).hexdigest()
        row = self._store.execute("SELECT digest, state, attempts FROM items WHERE id = ?", (name,)).fetchone()
        if row is None:
            self._store.execute("INSERT INTO items (id, request, digest) VALUES (?, ?, ?)", (name, content, digest))
            return QueueItem(name, "queued", 0)
        if row[0] != digest:
            raise OtherContentError(name)
        return QueueItem(name, row[1], row[2])

    def take(self) -> tuple[QueueItem, ProblemRequest] | None:
        """The item that has waited longest, which is running now; None where none waits."""
        with self._lock:
            row = self._store.execute(
                "UPDATE items SET state = 'running', attempts = attempts + 1 WHERE number ="
                " (SELECT min(number) FROM items WHERE state = 'queued') RETURNING id, attempts, request"
            ).fetchone()
        return (
            None
            if row is None
            else (QueueItem(row[0], "running", row[1]), msgspec.json.decode(row[2], type=ProblemRequest))
        )

    def put_back(self, item: QueueItem) -> None:
        """Have an item wait again, at its place, as if it had not been begun."""
        self._change("state = 'queued', attempts = attempts - 1", item)

    def retry(self, item: QueueItem) -> None:
        """Have an item wait again, at its place."""
        self._change("state = 'queued'", item)

    def _change(self, change: str, item: QueueItem) -> None:
        with self._lock:
            self._store.execute(f"UPDATE items SET {change} WHERE id = ? AND state = 'running'", (item.id,))

    def finish(self, item: QueueItem, answer: bytes) -> None:
        """Answer an item; nothing happens where it has an answer."""
        with self._lock:
            self._store.execute(
                "UPDATE items SET state = 'done', answer = ?, finished = ? WHERE id = ? AND state = 'running'",
                (answer, time.time(), item.id),
            )

    def find(self, name: str) -> QueueItem | None:
        """The item of an id."""
        with self._lock:
            row = self._store.execute("SELECT state, attempts, answer FROM items WHERE id = ?", (name,)).fetchone()
        return None if row is None else QueueItem(name, row[0], row[1], row[2] or b"")

    def counts(self) -> dict[str, int]:
        """How many items wait, are running and are done."""
        with self._lock:
            return {state: self._count(state) for state in ("queued", "running", "done")}

    def _count(self, state: str) -> int:
        count: int = self._store.execute("SELECT count(*) FROM items WHERE state = ?", (state,)).fetchone()[0]
        return count

    def forget(self, days: float) -> None:
        """Remove what was answered so many days ago."""
        with self._lock:
            self._store.execute("DELETE FROM items WHERE finished < ?", (time.time() - days * 86400,))

    def close(self) -> None:
        with self._lock:
            self._store.close()
