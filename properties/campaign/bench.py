"""A process that runs items one after the other, beside the worker of a cluster, and the error for one that ends.

A cluster's worker is a process that others rely on: it holds a connection, and other campaigns may share it. So no op
runs in it. It keeps a process of `programs/worker.py`, as the pool does, and ends and replaces that as the pool would.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..places import lifeline
from ..places.pool import ALONE, STARTING
from ..places.process import AnswerError, EndedError, Process
from ..programs import WORKER

_GIB = 2**30


class ItemLost(RuntimeError):
    """The process of an item ended while the item was run: `how`, in one line; stacks, and the end of its output."""

    def __init__(self, how: str, details: str = "", timed_out: bool = False) -> None:
        # All three go to the base class, because pickle makes the exception anew from them on the other machine.
        super().__init__(how, details, timed_out)
        self.how, self.details, self.timed_out = how, details, timed_out


class NotStarted(RuntimeError):
    """A process ended before it could be given an item, which says nothing of any item."""


class _TooLarge(Exception):
    pass


class Bench:
    """One process, in which the items of one owner are run.

    Args:
        owner: whose process it is; only items of the same owner are run in it. command: its program; by default that
            of opassay's workers. memory: bytes that it may take.

    Attributes:
        environment: the answer of the process to its hello.

    Raises:
        NotStarted: the process ended before it was ready.
    """

    def __init__(self, owner: str, command: Sequence[str], memory: int) -> None:
        self.owner, self.command, self._memory = owner, tuple(command), memory
        self._process = Process({**ALONE, "memory": memory}, command=self.command or WORKER)
        try:
            answer = self._process.answer(time.monotonic() + STARTING)
            self.environment: dict[str, str] = answer["ready"]
        except (AnswerError, EndedError, KeyError) as err:
            how = self._process.how()
            self.close()
            raise NotStarted(f"a process that judges ended before its first item ({how}): {err}") from None

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, question: Mapping[str, Any], timeout: float) -> tuple[dict[str, Any], int]:
        """The answer to a question of `programs.worker` within seconds, and how many bytes were printed meanwhile.

        Raises:
            ItemLost: the process gave none; it has ended, or was ended.
        """
        before, deadline = self._process.printed, time.monotonic() + timeout
        self._process.ask(question)
        try:
            answer = self._process.answer(deadline, self._watch)
        except AnswerError as err:
            raise self._kill(f"the process said {err}") from None
        except _TooLarge:
            limit = f"{self._memory / _GIB:.1f} GiB"
            raise self._kill(f"stopped because its process took more than {limit} of memory") from None
        except EndedError:
            if self._process.ended:
                raise self._kill(f"the process died while this cell ran ({self._process.how()})") from None
            self._process.tell_stacks()
            raise self._kill("stopped after its time limit", timed_out=True) from None
        self._process.listen()
        return answer, self._process.printed - before

    def seconds(self) -> float:
        """Processor time that the process has taken so far, and those of its children that have ended."""
        try:
            with open(f"/proc/{self._process.pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:  # it has ended
            return 0.0
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def first_output(self) -> str:
        """The beginning of what the process printed."""
        return self._process.first_output()

    def close(self) -> list[str]:
        """End the process, and the processes that it left behind; the names of the latter."""
        self._process.dismiss()
        self._process.close()
        return lifeline.end_orphans(self._process.mark)

    def _watch(self) -> bool:
        if self._process.memory() > self._memory:
            raise _TooLarge
        return False

    def _kill(self, how: str, timed_out: bool = False) -> ItemLost:
        """End the process; the error for its item, with stacks and the last output."""
        return ItemLost(how, self._process.last_words(), timed_out)
