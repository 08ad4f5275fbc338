"""Slots: each judges one item of the queue after the other.

What is hard here: a judge may die, hang or be killed, and the server, too. An item is in the queue until its answer is,
so whatever ends, the item is begun again: by the slot, as often as `MOST_ATTEMPTS` says, or by the next server.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import click

from ...text import one_line
from .judges import ItemJudge, JudgeAnswer
from .queue import MOST_ATTEMPTS, JudgementQueue, ProblemRequest, QueueItem

#: Seconds between two looks at an empty queue.
_IDLE = 0.05


class Slot:
    """One judgement at a time.

    Args:
        queue: where items come from. judge: of this slot alone.
        stopped: says when no more shall be taken, and the item that runs put back.
    """

    def __init__(self, queue: JudgementQueue, judge: ItemJudge, stopped: threading.Event) -> None:
        self._queue, self._judge, self._stopped = queue, judge, stopped

    def run(self) -> None:
        """Judge until `stopped`; to be run by a thread."""
        try:
            while not self._stopped.is_set():
                self._judge.prepare(self._stopped.is_set)
                pair = self._queue.take()
                if pair is None:
                    self._stopped.wait(_IDLE)
                    continue
                self._answer(*pair)
        finally:
            self._judge.close()

    def _answer(self, item: QueueItem, request: ProblemRequest) -> None:
        began = time.monotonic()
        try:
            answer = self._judge.ask(request, self._stopped.is_set)
        except KeyboardInterrupt:  # the server stops
            self._queue.put_back(item)
            return
        if "ended" in answer and item.attempts < MOST_ATTEMPTS:
            self._queue.retry(item)
            return
        content = describe_answer(answer)
        self._queue.finish(item, json.dumps(content).encode())
        verdict = content.get("judgement", {}).get("verdict", "error")
        click.echo(f"{one_line(item.id, 64)} {verdict} {time.monotonic() - began:.1f} s", err=True)


def describe_answer(answer: JudgeAnswer) -> dict[str, Any]:
    """What an item has once it is done: `judgement`, the line of `opassay judge --json`, or `error`."""
    try:
        return {"judgement": json.loads(answer["record"])}
    except (KeyError, ValueError):
        return {"error": str(answer.get("error") or answer.get("ended") or "the judge gave no verdict")}
