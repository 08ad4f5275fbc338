"""The frame of every program that judges: it takes its owner's pipes, and answers questions until there are no more.

The other side is `process.Process`. Every line that comes in gets one line as its answer; the output of the process
goes through another pipe. The user's interrupt reaches the owner alone, which ends this process.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

from .. import worlds
from ..collector import imports_set_aside
from .lifeline import end_with

#: The exit status of a process that an error ends, such as an owner's pipe that an op has closed.
_BROKEN = 70

Json = dict[str, Any]
#: Asks the owner of this process something while a question of its is being answered.
_CONSULTED: list[Callable[[Json], Json]] = []


def serve(prepare: Callable[[Json], Json], answer: Callable[[Json], Json]) -> None:
    """Serve the owner that started this process, and end with it.

    Args:
        prepare: (the first line, the owner's hello) -> what this process says of itself; it is sent as "ready".
        answer: (question) -> answer, both as JSON has them.
    """
    owner, questions, answers, stacks, manner = sys.argv[1:6]
    # `end_with` comes first, because before it nothing would end this process if its owner were killed.
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
    status = _BROKEN
    try:
        with os.fdopen(int(questions), "rb") as lines:
            with imports_set_aside():
                ready, pid = prepare(json.loads(lines.readline())), os.getpid()
            _send(int(answers), pid, {"ready": ready})
            _CONSULTED[:] = [lambda message: _consult(int(answers), pid, lines, message)]
            while line := lines.readline():
                _send(int(answers), pid, answer(json.loads(line)))
        status = 0
    except KeyboardInterrupt:
        status = 0  # the user's interrupt, in a process that shares the terminal: it has reached the owner as well
    except BaseException:
        traceback.print_exc()  # the owner keeps the end of what is printed here, and shows it
    finally:
        _leave(status)


def consult(message: Json) -> Json:
    """Say something to the owner of this process while a question of its is being answered; what it replies."""
    return _CONSULTED[0](message)


def _consult(answers: int, pid: int, lines: BinaryIO, message: Json) -> Json:
    _send(answers, pid, message)
    line = lines.readline()
    if not line:
        os._exit(_BROKEN)  # the owner wants nothing more
    reply: Json = json.loads(line)
    return reply


def limit_memory(most: int) -> None:
    """Let this process take at most so many bytes of memory; 0 for no limit."""
    if most:
        # A hard limit of -1 is no limit; a soft limit above a hard one would be refused.
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))


def _send(answers: int, pid: int, answer: Json) -> None:
    if os.getpid() != pid:
        os._exit(1)  # this is a copy of the process that an op made by fork, which must not answer for the process
    content = memoryview(json.dumps(answer, allow_nan=False).encode() + b"\n")
    while content:
        content = content[os.write(answers, content) :]


def _leave(status: int) -> None:
    """Let go the helpers of this process, and end it at once: threads of an op must not keep it alive."""
    try:
        worlds.leave()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)
