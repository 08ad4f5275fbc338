"""Calls in another thread, and in two threads at once: freely, and in turn at every function of torch.

Two threads that run freely rarely meet where they disturb each other, and never at the same place twice. So they are
also made to take turns: each hands over to the other before every function of torch that it calls.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence

from ....oracles.judge.judge import Judge
from ....oracles.verdicts.verdict import Code
from ....oracles.verdicts.violation import Violation, raised
from .interrupted import AtEveryFunction
from .truth import Truth

#: Calls by each of two threads that run freely.
AT_ONCE = 8
#: Seconds after which a thread's calls are given up: it waits for something that never comes.
_DEADLOCK = 60.0
#: Seconds after which a thread goes on out of turn: the other one waits for a lock that this one holds.
_TURN = 0.005


class _Turns:
    """Two threads of which one runs at a time."""

    def __init__(self) -> None:
        self._may_run = (threading.Semaphore(1), threading.Semaphore(0))
        self._alone = False

    def hand_over(self, own: int) -> None:
        """Let the other thread run, and wait until it hands over.

        Args:
            own: the number of this thread, 0 or 1.
        """
        if not self._alone:
            self._may_run[1 - own].release()
            self._may_run[own].acquire(timeout=_TURN)

    def leave(self, own: int) -> None:
        """This thread is done, and the other one runs alone from now on."""
        self._alone = True
        self._may_run[1 - own].release()


def in_other_threads(judge: Judge, first: Truth, second: Truth) -> None:
    """Violation unless calls in other threads return what they must."""
    both = (first, second)
    _run(judge, [functools.partial(first.differs, judge, 1)], "in another thread")
    _run(judge, [functools.partial(truth.differs, judge, AT_ONCE) for truth in both], "in two threads at once")
    turns = _Turns()

    def taking_turns(own: int) -> str:
        try:
            with AtEveryFunction(lambda: turns.hand_over(own)):
                return both[own].differs(judge, 2)
        finally:
            turns.leave(own)

    _run(judge, [functools.partial(taking_turns, own) for own in (0, 1)], "in two threads that take turns")


def _run(judge: Judge, work: Sequence[Callable[[], str]], what: str) -> None:
    """Run each in a thread of its own; Violation where one says that something differs, raises, or does not return.

    Args:
        work: what each thread does. what: what messages call this.
    """
    wrong: list[str | BaseException] = []
    # Otherwise the first thread would be done before the second one has started.
    start = threading.Barrier(len(work))

    def body(call: Callable[[], str]) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            start.wait()
        try:
            found = call()
        except BaseException as err:
            wrong.append(err)
        else:
            wrong.extend([found] if found else [])

    threads = [threading.Thread(target=body, args=(call,), daemon=True) for call in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_DEADLOCK)
    if any(thread.is_alive() for thread in threads):
        raise judge.broken(Code.RAISED, f"does not return within {_DEADLOCK:.0f} s", where=what)
    for found in wrong:
        if isinstance(found, Violation):
            raise found
        if isinstance(found, BaseException):
            raise raised(judge.op.name, found, what) from found
        raise judge.broken(Code.BITS, found, where=what)
    judge.tally.count(len(work))
