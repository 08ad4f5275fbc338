"""Slots: each judges one item of the queue after the other.

What is hard here: a judge may die, hang or be killed, and the server, too. An item is in the queue until its answer is,
so whatever ends, the item is begun again: by the slot, as often as `MOST_ATTEMPTS` says, or by the next server.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

import click

from ...text import one_line
from .judges import ItemJudge, JudgeAnswer
from .queue import MOST_ATTEMPTS, JudgementQueue, ProblemRequest, QueueItem

#: Seconds between two looks at an empty queue, and between two attempts where the machine fails.
_IDLE, _AGAIN = 0.05, 1.0
#: What fails where a disk is full, another program has the queue's file, or no process can be started.
_FAILURES = (sqlite3.Error, OSError)


class Slot:
    """One judgement at a time.

    Args:
        queue: where items come from. judge: of this slot alone.
        stopped: says when no more shall be taken, and the item that runs put back.

    Attributes:
        failure: what keeps it from judging now; empty for nothing.
    """

    def __init__(self, queue: JudgementQueue, judge: ItemJudge, stopped: threading.Event) -> None:
        self._queue, self._judge, self._stopped = queue, judge, stopped
        self.failure = ""

    def run(self) -> None:
        """Judge until `stopped`; to be run by a thread."""
        try:
            while not self._stopped.is_set():
                try:
                    self._judge.prepare(self._stopped.is_set)
                    pair = self._queue.take()
                except _FAILURES as err:
                    self._wait_after(err)
                    continue
                self.failure = ""
                if pair is None:
                    self._stopped.wait(_IDLE)
                    continue
                self._answer(*pair)
        finally:
            self.failure = self.failure or "it has ended"
            self._judge.close()

    def _answer(self, item: QueueItem, request: ProblemRequest) -> None:
        began = time.monotonic()
        try:
            answer = self._judge.ask(request, self._stopped.is_set)
        except KeyboardInterrupt:  # the server stops
            self._store(lambda: self._queue.put_back(item))
            return
        except OSError as err:
            self._store(lambda: self._queue.put_back(item))
            self._wait_after(err)
            return
        except Exception as err:
            answer = {"ended": f"the judge could not be asked: {type(err).__name__}: {err}"}
        if "ended" in answer and item.attempts < MOST_ATTEMPTS:
            self._store(lambda: self._queue.retry(item))
            return
        content = describe_answer(answer)
        self._store(lambda: self._queue.finish(item, json.dumps(content).encode()))
        verdict = content.get("judgement", {}).get("verdict", "error")
        with contextlib.suppress(OSError):  # nobody may read it any more
            click.echo(f"{one_line(item.id, 64)} {verdict} {time.monotonic() - began:.1f} s", err=True)

    def _store(self, change: Callable[[], None]) -> None:
        """Make a change of the queue, once that is possible; a server that is stopped before leaves the item running,
        and the next one begins it again.
        """
        while True:
            try:
                return change()
            except _FAILURES as err:
                self._wait_after(err)
                if self._stopped.is_set():
                    return None

    def _wait_after(self, err: Exception) -> None:
        """Say what keeps this slot from judging, once, and wait a while."""
        text = f"{type(err).__name__}: {err}"
        if text != self.failure:
            self.failure = text
            with contextlib.suppress(OSError):
                click.echo(f"no judgement for now: {one_line(text, 200)}", err=True)
        self._stopped.wait(_AGAIN)


def describe_answer(answer: JudgeAnswer) -> dict[str, Any]:
    """What an item has once it is done: `judgement`, the line of `opassay judge --json`, or `error`."""
    try:
        return {"judgement": json.loads(answer["record"])}
    except (KeyError, ValueError):
        return {"error": str(answer.get("error") or answer.get("ended") or "the judge gave no verdict")}
