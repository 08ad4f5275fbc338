"""The program of a process that judges one pair after the other, each in a copy of itself: torch is imported once.

A copy ends with its answer, so that nothing of one pair is there when the next is judged. What a candidate's process
left behind becomes a child of the copy, which ends it as it does for `opassay judge`.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any

from ....oracles import process
from ...places.lifeline import end_with
from ...places.process import MAX_ANSWER
from ...places.serving import serve
from ..excuses import CHANGED, have_sources_changed
from ..host import calls, host, module_files, program  # noqa: F401 (each copy has them, and the candidate's process)
from .judging_program import answer_to


def _answer_in_copy(question: dict[str, Any]) -> dict[str, Any]:
    """The answer of `judging_program` by a copy of this process; the key "ended" where the copy gave none.

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


def _prepare(hello: dict[str, Any]) -> dict[str, str]:
    process.settle()
    return {}


if __name__ == "__main__":
    serve(_prepare, _answer_in_copy)
