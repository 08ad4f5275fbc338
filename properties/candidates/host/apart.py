"""A candidate in a process of its own, as its judge sees it: started, asked, ended, and what it left behind.

What this is for: a candidate may do anything. It runs in a process that never gets an expected value, has limits on
time and memory, and is ended when it is late; whatever becomes of it is a verdict.

What is hard here: what it does outside of its process. Processes that it started become children of a judge that does
nothing else, and are found by a mark in their environment elsewhere; files that it wrote are found by `watching`.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from ....oracles.verdicts.verdict import Code, clean
from ....reference.meeting import Meet, MeetingError
from ...places.lifeline import began_with, children, end_all, parent_of, program_name, running
from ...places.process import AnswerError, EndedError
from ..ranks.collectives import POSTED
from .calls import Answer, CandidateCall, Executed, GoneError, LateError, Making, Sequel
from .exchange import Loaded, loaded
from .isolation import Isolation, writable
from .module_files import GivenError
from .operations import Operations
from .quarters import Confinement, Quarters
from .timing import Timing
from .watching import Watch
from .weighing import OwnTime, descendants, left_in_memory, watch_load

_LOG = logging.getLogger("opassay.candidate")
#: Seconds that the start of the process may take, besides those that the candidate is given.
_START = 60.0
#: Seconds that a process takes for itself with every question, and bytes of arguments that it reads, copies and writes
#: in a second: neither is the candidate's time.
_OWN, _RATE = 5.0, 2**27
#: Seconds that are not worth to be waited for.
_LEAST = 0.05
#: How many times the seconds of a call one property may take.
_CALLS = 20
#: Processes of candidates that this process has now; each leads a group.
_RUNNING: set[int] = set()


class CandidateError(RuntimeError):
    """A candidate that could not be loaded, for a reason of its own, or for one that is `beyond` this machine."""

    def __init__(self, text: str, beyond: str = "") -> None:
        super().__init__(text)
        self.beyond = beyond


class CandidateApart:
    """A candidate in a process apart; use it as a context.

    Args:
        address: a file, or a pair `module:name`. making: what it is made of, and the bytes of its file.
        seed: of its random state. confinement: of its process. watch: files that it must not write.
        quarters: its process, which it takes over.

    Attributes:
        name, shapes, parameters, changed: see `calls.Answering`.
        until: when the whole judgement is out of time, on the monotonic clock.

    Raises:
        GivenError: the file is not there, or lacks a name. CandidateError: the candidate raised, ended or was late.
    """

    def __init__(
        self, address: str, making: Making, seed: int, confinement: Confinement, watch: Watch, quarters: Quarters
    ) -> None:
        self._seconds, self._quarters, self._watch = confinement.seconds, quarters, watch
        self._exchange, self._process = quarters.exchange, quarters.process
        self._look, self.until = watch_load(self._process.pid, confinement.bytes), math.inf
        self._stores, self._required = False, confinement.isolation == "required"
        self._executes = confinement.compiled
        _RUNNING.add(self._process.pid)
        try:
            answer = self._load(address, making, seed)
        except GoneError as err:
            self.close()
            raise CandidateError(str(err)) from err
        except BaseException:
            self.close()
            raise
        if not answer.loaded:
            self.close()
            raise GivenError(answer.lacks) if answer.lacks else CandidateError(answer.refusal, answer.beyond)
        self.name, self.shapes, self.parameters = answer.loaded, answer.shapes, answer.parameters
        self.changed: Sequence[str] = answer.changed

    def _load(self, address: str, making: Making, seed: int) -> Loaded:
        """What the process says of the candidate; GoneError if nothing that can be read."""
        try:
            isolation = msgspec.convert(self._next_reply(_START)["ready"], Isolation)
        except (KeyError, ValueError) as err:
            raise GoneError(f"did not say what isolates it: {err}") from err
        except GoneError as err:  # nothing of the candidate has run yet
            raise CandidateError(str(err), f"a process for the candidate {err}") from err
        self._quarters.isolation = isolation
        if self._required and isolation.lacks:
            raise GivenError(f"isolation=required: got {isolation}")
        self._process.ask({"load": address, "made": self._exchange.write(making), "seed": seed})
        return loaded(self._next_reply(self._seconds + _OWN))

    def __enter__(self) -> CandidateApart:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, call: CandidateCall) -> Answer:
        """See `calls.Answering`."""
        # What is asked besides is told when the candidate has returned, which could look for it.
        message = msgspec.structs.replace(call, sequel=Sequel())
        message = msgspec.structs.replace(message, leaves=[]) if call.stored and self._stores else message
        self._stores = self._stores or call.stored
        self._process.ask({"call": self._exchange.write(message)})
        size = sum(t.nbytes for t in call.arguments.tensors) / _RATE
        began = time.monotonic()
        # A backward pass is a call of its own.
        self._next_reply((1 + (call.backward is not None)) * self._seconds + _OWN + size)
        again = (call.sequel.times - 1) * self._seconds
        took = time.monotonic() - began
        answer = self._answered({"sequel": msgspec.to_builtins(call.sequel)}, again + size, call)
        # By a longer time a candidate would have fewer calls made, and by kernels as PTX others.
        repeat = msgspec.structs.replace(answer.repeat, seconds=min(took, answer.repeat.seconds))
        # What it says of launches counts where the judge executes them; that it needs another machine, always.
        executed = (
            answer.executed if self._executes or (answer.executed or Executed()).fault == Code.NO_DEVICE else None
        )
        return msgspec.structs.replace(answer, repeat=repeat, executed=executed)

    def fetch(self, rows: Sequence[int], earlier: bool = False) -> Answer:
        """See `calls.Answering`."""
        return self._answered({"fetch": list(rows), "earlier": earlier}, self._seconds)

    def review(self) -> Answer:
        """See `calls.Answering`."""
        return self._answered({"review": True}, self._seconds)

    def operations(self, call: CandidateCall) -> Operations:
        """See `calls.Answering`."""
        self._process.ask({"operations": self._exchange.write(call)})
        try:
            return msgspec.convert(self._next_reply(self._seconds + _OWN), Operations).require()
        except ValueError as err:
            raise GoneError(f"gave an answer that cannot be read: {err}") from err

    def time(self, pair: dict[str, Any]) -> Timing:
        """The candidate's times beside the spec's, which its process loads: it can be asked nothing else after that.

        Args:
            pair: arguments of `open_pair` without a folder.
        """
        self._process.ask({"time": pair})
        try:
            return msgspec.convert(self._next_reply(_START + 2 * self._seconds), Timing).require()
        except (GoneError, ValueError) as err:
            return Timing(failure=f"the candidate's process {err}")

    def verdict(self, question: dict[str, Any]) -> dict[str, Any]:
        """The verdict of a property of the table, as data; its process loads the spec for it, as for `time`.

        Args:
            question: see `property_cells.verdict_of`.

        Raises:
            GoneError: the process has ended or is out of time.
        """
        self._process.ask({"property": question})
        return self._next_reply(_START + _CALLS * self._seconds)

    def _answered(self, question: dict[str, Any], more: float, call: CandidateCall | None = None) -> Answer:
        """The answer to a question of a call; `more`: seconds that it may take besides those of the process."""
        self._process.ask({**question, "answer": self._exchange.place()})
        self._next_reply(_OWN + more)
        return self._exchange.answer(call)

    def _next_reply(self, seconds: float) -> dict[str, Any]:
        """What the process says next.

        Raises:
            GoneError: it has ended, is late, takes too much memory, or says something else.
            LateError: the whole judgement is out of time.
        """
        own, rest = OwnTime(self._process.pid), seconds
        look = functools.partial(self._require_light, own)
        while True:
            try:
                reply = self._process.answer(time.monotonic() + rest, look)
                if self._quarters.meet is None or POSTED not in reply:
                    return reply
                # What it waits for others is not its time.
                seconds = rest = max(seconds - own.seconds(), _LEAST)
                self._process.ask(self._deliver(self._quarters.meet))
                own = OwnTime(self._process.pid)
                look = functools.partial(self._require_light, own)
            except EndedError as err:
                late = not self._process.ended
                # A machine with more to do than processors lets a process wait, which is no time of its own.
                rest = seconds - own.seconds() if late else 0.0
                if rest < _LEAST:
                    limit = f" ({self._seconds:g} s for a call: --seconds)" * late
                    raise GoneError(f"{err}{limit}", late) from err
            except AnswerError as err:
                raise GoneError(f"said {err}") from err

    def _deliver(self, meet: Meet) -> dict[str, Any]:
        """What a rank gets that has posted something and waits."""
        try:
            return {"delivered": self._exchange.write(meet(self._exchange.posted()))}
        except MeetingError as err:
            return {"failed": str(err)}

    def _require_light(self, own: OwnTime) -> bool:
        """False; GoneError where the candidate's processes together take too much, which are ended then.

        Args:
            own: of the question that is asked, which looks, too.
        """
        own.look()
        excess = self._look()
        if excess:
            self._process.kill()
            raise GoneError(excess)
        if time.monotonic() > self.until:
            raise LateError
        return False

    def left_behind(self) -> list[str]:
        """See `calls.Answering`."""
        # In a namespace all of them end with the process.
        names = {pid: program_name(pid) for pid in descendants(self._process.pid) if self._is_apart(pid)}
        in_memory = left_in_memory(self._process.pid)
        self._process.kill()
        names |= {pid: program_name(pid) for pid in self._started() if pid not in names}
        lines = [f"a process was left running: {name or 'ended by now'}" for name in names.values()]
        end_all(self._started)
        return [*lines, *in_memory, *self._watch.changes(writable(self._exchange.own, self._quarters.isolation))]

    def _started(self) -> list[int]:
        """The processes that it started and that are still running, now that it has ended."""
        if self._quarters.isolation and self._quarters.isolation.has_namespace:
            return []  # they ended with it: what is a child of this process was started by the spec
        pids = children(os.getpid()) if self._quarters.adopts else _marked(self._process.mark)
        return [pid for pid in pids if self._is_apart(pid)]

    @staticmethod
    def _is_apart(pid: int) -> bool:
        """Whether a process is running that is in no candidate's own group: all of that end together."""
        return parent_of(pid) is not None and _group_of(pid) not in (None, *_RUNNING)

    def close(self) -> None:
        """End the process, and what it started."""
        self._process.kill()
        if text := self._process.last_output().strip():
            _LOG.info("printed by the candidate, %d bytes, at last:\n%s", self._process.printed, clean(text))
        end_all(self._started)
        self._quarters.close()
        _RUNNING.discard(self._process.pid)


def _marked(mark: str) -> list[int]:
    """Processes that were started with a mark in their environment, and are still running."""
    return [pid for pid in running() if pid != os.getpid() and began_with(pid, mark)]


def _group_of(pid: int) -> int | None:
    """The group of a process; None where it has ended."""
    try:
        return os.getpgid(pid)
    except OSError:
        return None
