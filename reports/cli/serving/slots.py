"""Slots: each judges one item of the queue after the other, in processes that it ends and starts again.

What is hard here: a judge may die, hang or be killed, and the server, too. An item is in the queue until its answer is,
so whatever ends, the item is begun again: by the slot, as often as `MOST_ATTEMPTS` says, or by the next server.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from ....properties.candidates.question_plan import QuestionPlan
from ....properties.places.process import AnswerError, EndedError, Process
from ....reference.dtypes import FORMATS, dtype_name
from ...text import one_line
from .queue import MOST_ATTEMPTS, JudgementQueue, ProblemRequest, QueueItem

#: The program of a judge; nobody finds modules in the current folder for it.
COMMAND = (sys.executable, "-P", "-m", "opassay.properties.candidates.suites.warm_program")
#: Seconds that a judge may take to start, and beyond the limits of an item.
_START, _GRACE = 300.0, 60.0
#: How many calls of a candidate may be running, or waited for, when an item's own limits end.
_CALLS = 4
#: Seconds between two looks at an empty queue.
_IDLE = 0.05


class Slot:
    """One judge at a time.

    Args:
        queue: where items come from. stopped: says when no more shall be taken, and the item that runs put back.
        command: the program of a judge.

    Attributes:
        process: of the judge, to be looked at.
    """

    def __init__(self, queue: JudgementQueue, stopped: threading.Event, command: Sequence[str] = COMMAND) -> None:
        self._queue, self._stopped, self._command = queue, stopped, command
        self.process: Process | None = None

    def run(self) -> None:
        """Judge until `stopped`; to be run by a thread."""
        try:
            while not self._stopped.is_set():
                self._warm()
                taken = self._queue.take()
                if taken is None:
                    self._stopped.wait(_IDLE)
                    continue
                self._judge(*taken)
        finally:
            self._end()

    def _warm(self) -> None:
        """Have a process that is ready for an item."""
        if self.process is not None and not self.process.ended:
            return
        self._end()
        self.process = Process({}, command=self._command)
        with contextlib.suppress(EndedError, AnswerError, KeyboardInterrupt):
            self.process.answer(time.monotonic() + _START, self._stopped.is_set)

    def _judge(self, item: QueueItem, request: ProblemRequest) -> None:
        assert self.process is not None
        began = time.monotonic()
        try:
            with TemporaryDirectory(prefix="opassay-serve-", ignore_cleanup_errors=True) as folder:
                self.process.ask(question_of(request, Path(folder)))
                until = began + request.limits.total + _CALLS * request.limits.seconds + _GRACE
                answer = self.process.answer(until, self._stopped.is_set)
            why = answer.get("ended", "")
        except KeyboardInterrupt:  # the server stops
            self._queue.put_back(item)
            return
        except (EndedError, AnswerError) as err:
            self._end()
            answer, why = {}, f"the judge's process {err}"
        if why and item.attempts < MOST_ATTEMPTS:
            self._queue.retry(item)
            return
        if "error" in answer:  # the folder is none of the client's business
            answer["error"] = answer["error"].replace(f"{folder}/", "")
        self._queue.finish(item, encode_answer({"error": why} if why else answer))
        verdict = json.loads(answer["record"])["verdict"] if "record" in answer else "error"
        click.echo(f"{one_line(item.id, 64)} {verdict} {time.monotonic() - began:.1f} s", err=True)

    def _end(self) -> None:
        if self.process is not None:
            self.process.close()
        self.process = None


def question_of(request: ProblemRequest, folder: Path) -> dict[str, Any]:
    """What a judge is asked; the texts are written into the folder."""
    addresses = {}
    for role in ("candidate", "spec"):
        own = folder / role
        own.mkdir()
        (own / f"{role}.py").write_text(getattr(request, role), encoding="utf-8")
        name = getattr(request, f"{role}_name")
        addresses[role] = f"{own / f'{role}.py'}{':' if name else ''}{name}"
    limits = request.limits
    confinement = {"seconds": limits.seconds, "memory": limits.memory, "interpret": request.interpret}
    words = {"contract": request.contract, "seed": 0, "given": request.given}
    return {**addresses, **words, "plan": asdict(plan_of(request)), "confinement": confinement}


def plan_of(request: ProblemRequest) -> QuestionPlan:
    """The plan that a request names.

    Raises:
        ValueError: it names none.
    """
    return QuestionPlan(
        request.questions, stop=request.stop, total=request.limits.total, dtype=dtype_name(request.dtype)
    )


def require_request(request: ProblemRequest) -> None:
    """Require of a request that it can be judged.

    Raises:
        ValueError: a field has another value; the text names it.
    """
    plan = plan_of(request)
    if plan.dtype and plan.dtype not in FORMATS:
        raise ValueError(f"dtype={request.dtype!r}: need one of {', '.join(FORMATS)}")
    for name in ("candidate_name", "spec_name"):
        if not re.fullmatch(r"(?:[^\W\d]\w*)?", getattr(request, name)):
            raise ValueError(f"{name}={getattr(request, name)!r}: need a name of Python")
    if not re.fullmatch(r"[\w-]{0,64}", request.id, re.ASCII):
        raise ValueError(f"id={request.id!r}: need at most 64 letters, digits, - and _")
    for name, low, high in (("seconds", 0.1, 3600.0), ("total", 0.0, 86400.0), ("memory", 0.0, 1024.0)):
        if not low <= getattr(request.limits, name) <= high:
            raise ValueError(f"{name}={getattr(request.limits, name)}: need a number from {low:g} to {high:g}")


def encode_answer(answer: dict[str, Any]) -> bytes:
    """The answer of an item as JSON: `judgement`, the line of `opassay judge --json`, or `error`."""
    if "record" in answer:
        return json.dumps({"judgement": json.loads(answer["record"])}).encode()
    return json.dumps({"error": answer["error"]}).encode()
