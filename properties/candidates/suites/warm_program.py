"""The program of a process that judges one pair after the other, each in a copy of itself: torch is imported once.

The first line says nothing. Each further one has arguments of `judge_file`, and is answered by `{"record": the line of
JSON}`, by `{"error"}` where a file cannot be used, or by `{"ended"}` where the copy gave no answer.

A copy ends with its answer, so that nothing of one pair is there when the next is judged. What a candidate's process
left behind becomes a child of the copy, which ends it as it does for `opassay judge`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from typing import Any

import numpy as np
import torch

from ....oracles import process
from ...places.lifeline import end_with
from ...places.process import MAX_ANSWER
from ...places.serving import serve
from ..excuses import CHANGED, have_sources_changed
from ..host import calls, host, program  # noqa: F401 (each copy has them, and the candidate's process)
from ..host.module_files import GivenError
from ..host.quarters import Confinement
from ..judge_files import judge_file
from ..question_plan import QuestionPlan
from ..specification import SpecError


def answer_to(question: dict[str, Any]) -> dict[str, Any]:
    """The judgement as `{"record": a line of JSON}`; `{"error": text}` where a file cannot be used.

    Args:
        question: arguments of `judge_file`; "confinement" and "plan" are those of these classes.
    """
    confinement = Confinement(**question.pop("confinement"), alone=True)
    plan = QuestionPlan(**question.pop("plan"))
    try:
        judgement = judge_file(**question, confinement=confinement, plan=plan)
    except (GivenError, SpecError) as err:
        return {"error": str(err)}
    return {"record": judgement.as_json()}


def _answer_in_copy(question: dict[str, Any]) -> dict[str, Any]:
    """The answer by a copy of this process.

    Raises:
        SystemExit: the files of this package have changed, so that this process is of no use any more.
    """
    began = time.monotonic()
    here, there = os.pipe()
    owner = os.getpid()
    pid = process.fork()
    if not pid:
        try:
            end_with(owner)
            os.close(here)
            with os.fdopen(there, "wb") as pipe:
                pipe.write(json.dumps(answer_to(question)).encode())
        finally:
            os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        content = pipe.read(MAX_ANSWER)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(ValueError):
        answer: dict[str, Any] = json.loads(content)
        if CHANGED in answer.get("record", "") and have_sources_changed():
            raise SystemExit(CHANGED)  # who asked starts another process and asks that
        return {**answer, "seconds": time.monotonic() - began}
    return {"ended": f"the judge's process ended with status {os.waitstatus_to_exitcode(status)} and without an answer"}


def prepare(hello: dict[str, Any]) -> dict[str, str]:
    """Import what the first judgement would import."""
    process.settle()
    return {}


def draw_anew() -> None:
    """Let the random states of this copy be no other copy's."""
    random.seed()
    np.random.seed(int.from_bytes(os.urandom(4), "big"))  # noqa: NPY002 (the global state, which candidates draw from)
    torch.seed()


if __name__ == "__main__":
    serve(prepare, _answer_in_copy)
