"""Judges of one item at a time: a process of this machine, or a worker of a Dask cluster."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import msgspec

from ....properties.candidates.question_plan import QuestionPlan
from ....properties.places.process import AnswerError, EndedError, Process
from ....reference.dtypes import FORMATS, dtype_name
from .queue import ProblemRequest

#: The program of a judge; nobody finds modules in the current folder for it.
COMMAND = (sys.executable, "-P", "-m", "opassay.properties.candidates.suites.warm_program")
#: Seconds that a judge may take to start, and beyond the limits of an item.
_START, _GRACE = 300.0, 60.0
#: How many calls of a candidate may be running, or waited for, when an item's own limits end.
_CALLS = 4
#: Seconds between two looks at a cluster's answer.
_TICK = 0.05

#: `{"record": a line of JSON}`, `{"error": why the files cannot be used}`, or `{"ended": how the judge ended}`.
JudgeAnswer = dict[str, Any]
Stopped = Callable[[], bool]


class ItemJudge(Protocol):
    """Judges one item after the other."""

    def prepare(self, stopped: Stopped) -> None:
        """Make the next answer come sooner."""

    def ask(self, request: ProblemRequest, stopped: Stopped) -> JudgeAnswer:
        """The answer; KeyboardInterrupt once `stopped` says so."""

    def close(self) -> None:
        """End it, and what it has begun."""


class LocalJudge:
    """A process of this machine, which is started again whenever it has ended.

    Args:
        command: its program.
    """

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._command = command
        self._process: Process | None = None

    def prepare(self, stopped: Stopped) -> None:
        if self._process is not None and not self._process.ended:
            return
        self.close()
        self._process = Process({}, command=self._command)
        with contextlib.suppress(EndedError, AnswerError, KeyboardInterrupt):
            self._process.answer(time.monotonic() + _START, stopped)

    def ask(self, request: ProblemRequest, stopped: Stopped) -> JudgeAnswer:
        self.prepare(stopped)
        assert self._process is not None
        until = time.monotonic() + request.limits.total + _CALLS * request.limits.seconds + _GRACE
        with TemporaryDirectory(prefix="opassay-serve-", ignore_cleanup_errors=True) as folder:
            try:
                self._process.ask(question_of(request, Path(folder)))
                answer = self._process.answer(until, stopped)
            except (EndedError, AnswerError) as err:
                self.close()
                return {"ended": f"the judge's process {err}"}
        if "error" in answer:  # the folder is none of the client's business
            return {"error": answer["error"].replace(f"{folder}/", "")}
        return answer

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
        self._process = None


class ClusterJudge:
    """A worker of a Dask cluster, which has a process of its own for each of its threads.

    Args:
        client: `distributed.Client`. command: the program of a judge there.
    """

    def __init__(self, client: Any, command: Sequence[str] = COMMAND) -> None:
        self._client, self._command = client, tuple(command)

    def prepare(self, stopped: Stopped) -> None:
        pass

    def ask(self, request: ProblemRequest, stopped: Stopped) -> JudgeAnswer:
        future = self._client.submit(judge_on_worker, msgspec.json.encode(request), self._command, pure=False)
        while not future.done():
            if stopped():
                future.cancel()
                raise KeyboardInterrupt
            time.sleep(_TICK)
        try:
            answer: JudgeAnswer = future.result()
        except Exception as err:  # whatever a cluster raises, the item is begun again
            return {"ended": f"the cluster: {type(err).__name__}: {err}"}
        return answer

    def close(self) -> None:
        pass


_OF_THREAD = threading.local()


def judge_on_worker(content: bytes, command: Sequence[str]) -> JudgeAnswer:
    """The answer to a request, by the judge of this thread of a worker."""
    if getattr(_OF_THREAD, "judge", None) is None:
        _OF_THREAD.judge = LocalJudge(command)
    judge: LocalJudge = _OF_THREAD.judge
    return judge.ask(msgspec.json.decode(content, type=ProblemRequest), lambda: False)


def question_of(request: ProblemRequest, folder: Path) -> dict[str, Any]:
    """The question that a judge's process reads; the texts are written as files into the folder."""
    addresses = {}
    for role in ("candidate", "spec"):
        own = folder / role
        own.mkdir()
        (own / f"{role}.py").write_text(getattr(request, role), encoding="utf-8")
        name = getattr(request, f"{role}_name")
        addresses[role] = f"{own / f'{role}.py'}{':' if name else ''}{name}"
    limits = request.limits
    confinement: dict[str, Any] = {"seconds": limits.seconds, "memory": limits.memory}
    if request.kernels:
        confinement[request.kernels] = True
    # With no seed the samples are drawn from a secret: whoever sends a candidate knows how a seed becomes samples.
    words = {"contract": request.contract, "seed": None, "values": request.given}
    return {**addresses, **words, "plan": asdict(plan_of(request)), "confinement": confinement}


def plan_of(request: ProblemRequest) -> QuestionPlan:
    """The plan of the questions, limits and dtype that a request names.

    Raises:
        ValueError: there is no such question.
    """
    return QuestionPlan(
        request.questions, stop=request.stop, total=request.limits.total, dtype=dtype_name(request.dtype)
    )


def require_request(request: ProblemRequest) -> None:
    """Require that a request can be judged.

    Raises:
        ValueError: a field has a value that is not allowed; the message names it and the rule.
    """
    plan = plan_of(request)
    if plan.dtype and plan.dtype not in FORMATS:
        raise ValueError(f"dtype={request.dtype!r}: need one of {', '.join(FORMATS)}")
    for name in ("candidate_name", "spec_name"):
        if not re.fullmatch(r"(?:[^\W\d]\w*)?", getattr(request, name)):
            raise ValueError(f"{name}={getattr(request, name)!r}: need a name of Python")
    if not re.fullmatch(r"[\w-]{0,64}", request.id, re.ASCII):
        raise ValueError(f"id={request.id!r}: need at most 64 letters, digits, - and _")
    for name, low, high in (("seconds", 0.1, 3600.0), ("total", 0.0, 86400.0), ("memory", 0.1, 1024.0)):
        if not low <= getattr(request.limits, name) <= high:
            raise ValueError(f"{name}={getattr(request.limits, name)}: need a number from {low:g} to {high:g}")
