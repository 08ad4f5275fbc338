"""Calls in another thread, and in two threads at once: freely, and in turn at every function of torch.

Two threads that run freely rarely disturb each other, and never at the same place twice. So two threads also take
turns: each hands over to the other one before every function of torch that it calls.
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
#: Seconds after which a thread counts as deadlocked.
_DEADLOCK = 60.0
#: Seconds after which a thread goes on out of turn, because the other one may wait for a lock that this one holds.
_TURN = 0.005


class _Turns:
    """Two threads of which one runs at a time."""

    def __init__(self) -> None:
        self._may_run = (threading.Semaphore(1), threading.Semaphore(0))
        self._alone = False

    def hand_over(self, own: int) -> None:
        """Let the other thread run, and wait until it hands over; `own` is the number of this thread, 0 or 1."""
        if not self._alone:
            self._may_run[1 - own].release()
            self._may_run[own].acquire(timeout=_TURN)

    def leave(self, own: int) -> None:
        """This thread is done, and the other one runs alone from now on."""
        self._alone = True
        self._may_run[1 - own].release()


def check_threads(judge: Judge, first: Truth, second: Truth) -> None:
    """Violation unless calls in other threads return what they must."""
    both = (first, second)
    _run(judge, [functools.partial(first.find_difference, judge, 1)], "in another thread")
    _run(judge, [functools.partial(truth.find_difference, judge, AT_ONCE) for truth in both], "in two threads at once")
    turns = _Turns()

    def taking_turns(own: int) -> str:
        try:
            with AtEveryFunction(lambda: turns.hand_over(own)):
                return both[own].find_difference(judge, 2)
        finally:
            turns.leave(own)

    _run(judge, [functools.partial(taking_turns, own) for own in (0, 1)], "in two threads that take turns")


def _run(judge: Judge, work: Sequence[Callable[[], str]], what: str) -> None:
    """Run functions in a thread each; Violation where one returns a text (a difference), raises, or does not return."""
    wrong: list[str | BaseException] = []
    # Without a barrier the first thread would end before the second one has started.
    start = threading.Barrier(len(work))

    def body(call: Callable[[], str]) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            start.wait()
        try:
            difference = call()
        except BaseException as err:
            wrong.append(err)
        else:
            wrong.extend([difference] if difference else [])

    threads = [threading.Thread(target=body, args=(call,), daemon=True) for call in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_DEADLOCK)
    if any(thread.is_alive() for thread in threads):
        raise judge.violation(Code.RAISED, f"does not return within {_DEADLOCK:.0f} s", where=what)
    for fault in wrong:
        if isinstance(fault, Violation):
            raise fault
        if isinstance(fault, BaseException):
            raise raised(judge.op.name, fault, what) from fault
        raise judge.violation(Code.BITS, fault, where=what)
    judge.tally.count(len(work))
