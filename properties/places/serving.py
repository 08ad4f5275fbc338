"""What every program that judges does: it takes its owner's pipes, and answers questions until there are no more.

The other side is `process.Process`. Of each line that comes in, one goes out; whatever else the process prints goes
another way. The owner hears the user's interrupt, and says so; this process hears none.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from .. import worlds
from .lifeline import end_with

#: The exit status of a process that an error ends, such as an owner's pipe that an op has closed.
_BROKEN = 70

Said = dict[str, Any]


def serve(prepare: Callable[[Said], dict[str, str]], answer: Callable[[Said], Said]) -> None:
    """Serve the owner that started this process, and end with it.

    Args:
        prepare: takes the first line, the owner's hello, and says what this process is; it is sent as "ready".
        answer: takes a question, gives its answer; both as JSON has them.
    """
    owner, questions, answers, stacks, manner = sys.argv[1:6]
    # This comes first, because until then nothing would end this process if its owner were killed.
    end_with(int(owner))
    for handle in (questions, answers, stacks):
        os.set_inheritable(int(handle), False)  # what an op starts must not hold the owner's pipes
    faulthandler.enable(int(stacks))
    # The owner sends this signal to a process that is out of time. The handler is written in C, so it also works
    # while an op holds the interpreter's lock.
    faulthandler.register(signal.SIGUSR1, int(stacks), all_threads=True)
    if manner != "attached":
        # The owner hears the user's interrupt and ends this process. So a KeyboardInterrupt here is an op's own.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    # An op that looks at the command line must not find the owner's pipes there and take them for arguments.
    sys.argv[1:] = []
    status, pid = _BROKEN, os.getpid()
    try:
        with os.fdopen(int(questions), "rb") as asked:
            ready = prepare(json.loads(asked.readline()))
            # The imports make two hundred thousand objects that live as long as the process. A collection of
            # garbage that looks at all of them again takes a fifth of the time of a cell of small samples.
            gc.freeze()
            _send(int(answers), pid, {"ready": ready})
            while line := asked.readline():
                _send(int(answers), pid, answer(json.loads(line)))
        status = 0
    except KeyboardInterrupt:
        status = 0  # the user's, in a process that shares the terminal: the owner has heard it too
    except BaseException:
        traceback.print_exc()  # the owner keeps the end of what is printed here, and shows it
    finally:
        _leave(status)


def _send(answers: int, pid: int, answer: Said) -> None:
    if os.getpid() != pid:
        os._exit(1)  # a copy of this process that an op made by fork: it must not answer in its place
    content = memoryview(json.dumps(answer, allow_nan=False).encode() + b"\n")
    while content:
        content = content[os.write(answers, content) :]


def _leave(status: int) -> None:
    """Let go the helpers of this process, and end: what an op left running must not keep this process alive."""
    try:
        worlds.leave()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)
