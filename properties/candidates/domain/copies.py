"""Questions to somebody's function in a copy of this process: what ends the copy is a refusal.

A function that is asked for calls which nobody makes may end its process, as `ctc_loss` does for some lengths, write to
what it was given, or take all memory. So it is asked in a copy of this process (fork). If that ends, another copy is
told all answers so far, and goes on behind the question that ended it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import itertools
import logging
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ....oracles.process.forking import fork
from ..arguments import CallArguments
from ..inputs import stand_in
from ..specification import Specification
from .integer_roles import Checked, is_integer
from .shape_search import OutOfTimeError

#: Processor seconds for one question; seconds by the clock after which all copies are given up.
_ONE, _CLOCK = 1.0, 40.0
#: Bytes that a copy may have besides what this process has, and how many copies may end before nothing more is asked.
_MEMORY, _ENDS = 4 << 30, 40
_REFUSED, _TAKEN, _ASKED, _RESULT, _ERROR = b"0", b"1", b"?", b"=", b"!"


class CopyError(RuntimeError):
    """A copy of this process gave no result; the text says why."""


def run_in_copies(work: Callable[[AnswerLog], bytes]) -> bytes:
    """What `work` gives in a copy of this process.

    Args:
        work: asks its questions by the log, always the same ones after the same answers.

    Raises:
        CopyError: it raised, it took too long, or too many copies ended. RuntimeError: CUDA has started here.
    """
    answers: list[bool | None] = []
    ends = time.monotonic() + _CLOCK
    for _ in range(_ENDS):
        payload, answers_of_copy = _run_copy(work, answers, ends)
        if payload is not None:
            return payload
        answers += [*answers_of_copy, None]
        if time.monotonic() > ends:
            raise CopyError(f"no result after {_CLOCK:g} seconds")
    raise CopyError(f"{_ENDS} copies of the process ended")


@dataclass
class AnswerLog:
    """The answers to questions with values: those that an earlier copy gave, and those of this one, which are sent.

    known: None for a question that ended a copy. pipe: for what is sent; -1 where nothing is asked, and all refused.
    ended: whether the last question ended a copy.
    """

    known: list[bool | None]
    pipe: int = -1
    place: int = 0
    ended: bool = False

    @property
    def asks(self) -> bool:
        """Whether there are copies, which may be asked with values."""
        return self.pipe >= 0

    def ask(self, question: Callable[[], Any]) -> bool:
        """Whether a question raises nothing."""
        self.place, self.ended = self.place + 1, False
        if self.place <= len(self.known):
            answer = self.known[self.place - 1]
            self.ended = answer is None
            return bool(answer)
        if not self.asks:
            return False
        os.write(self.pipe, _ASKED)
        signal.signal(signal.SIGPROF, _stop)
        signal.setitimer(signal.ITIMER_PROF, _ONE)
        try:
            question()
            accepted = True
        except OutOfTimeError:
            raise
        except Exception:
            accepted = False
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(self.pipe, _TAKEN if accepted else _REFUSED)
        return accepted


def _stop(*_: Any) -> None:
    raise TimeoutError


def _run_copy(
    derive: Callable[[AnswerLog], bytes], known: list[bool | None], ends: float
) -> tuple[bytes | None, list[bool]]:  # fmt: skip
    """What a copy of this process gives, and its answers; None for the first where the copy ended before."""
    out, into = os.pipe()
    child = fork()
    if not child:
        os.close(out)
        _be_copy(derive, AnswerLog(known, into))
    os.close(into)
    received = b""
    try:
        while time.monotonic() < ends:
            if not select.select([out], [], [], 0.5)[0]:
                continue
            part = os.read(out, 1 << 16)
            if not part:
                break
            received += part
    finally:
        os.close(out)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    count = next((i for i, byte in enumerate(received) if byte not in _ASKED + _TAKEN + _REFUSED), len(received))
    if received[count : count + 1] == _ERROR:
        raise CopyError(received[count + 1 :].decode(errors="replace"))
    answers = [byte == _TAKEN[0] for byte in received[:count] if byte != _ASKED[0]]
    return received[count + 1 :] if count < len(received) else None, answers


def _be_copy(derive: Callable[[AnswerLog], bytes], log: AnswerLog) -> None:
    """Derive, send the result, and end this process."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        logging.disable()
        faulthandler.disable()
        torch.set_num_threads(1)  # The threads of the first process are not in a copy, and would be waited for.
        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize() + _MEMORY
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # To write memory down takes seconds, and nobody reads it.
        resource.setrlimit(resource.RLIMIT_AS, (size, resource.getrlimit(resource.RLIMIT_AS)[1]))
        payload = _RESULT + derive(log)
        while payload:
            payload = payload[os.write(log.pipe, payload) :]
    except Exception as err:
        os.write(log.pipe, _ERROR + f"{type(err).__name__}: {err}".encode()[:1000])
    finally:
        os._exit(0)


def safe_calls(
    spec: Specification, calls: Iterable[CallArguments], at_once: int = 6, *, ask_all: bool = False
) -> Iterator[CallArguments]:
    """The calls that do not end the process, as torch reads beyond memory at some integers; some are asked at once.

    ask_all: leave out as well what the spec refuses, where it can be asked.
    """
    rest = iter(calls)
    while some := list(itertools.islice(rest, at_once)):
        is_safe = not any(is_integer(t) for each in some for t in each.tensors)
        answers = bytes([is_safe] * len(some))
        with contextlib.suppress(RuntimeError):
            if ask_all or not is_safe:
                answers = run_in_copies(functools.partial(takes_each, spec, [stand_in(each) for each in some]))
        yield from (each for each, accepted in zip(some, answers, strict=True) if accepted)


def takes_each(spec: Specification, calls: Sequence[CallArguments], log: AnswerLog) -> bytes:
    """A byte for each call: 1 where the spec takes it."""
    with Checked():
        return bytes(log.ask(functools.partial(spec.outputs, each, spec.state)) for each in calls)
