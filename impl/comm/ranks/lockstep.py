"""`LockstepComm`: k ranks as k threads of one process, of which one runs at a time.

A rank runs until its next collective and then hands over, in a `Meeting`. When no rank can run, every one of them
waits, has returned or has raised, and what happens is decided by that alone: no clock is asked, so a deadlock is found
at once and for certain.

What is hard here: a collective may be called from deep inside autograd, whose frames in C++ nothing can suspend but a
thread. So ranks are threads, of which only one at a time has its turn, which makes a run repeatable. And a world that
has failed must end every rank, even one that waits inside autograd.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ....reference.meeting import Meeting, MeetingError, Turn
from ...operator import torch_private as private
from .base import Call, Comm, CommError, make_post, result_of


class _Stopped(BaseException):
    """Ends a rank of a world that has failed; no Exception, so that a program does not catch it."""


class LockstepWorld:
    """A world of `size` ranks.

    Args:
        size: how many ranks.
        order: "rank" or "random": which rank runs next, and in which order sums are taken.
        seed: of the random order.
        forward_mode: whether ranks take `torch.func.jvp`; `forward_ad.dual_level` is for one thread of a process.
    """

    def __init__(self, size: int, order: str = "rank", seed: int = 0, forward_mode: bool = False) -> None:
        if size < 1:
            raise ValueError(f"LockstepWorld: got size={size}, need at least 1 rank.")
        self.size, self.order = size, order
        self._shared = private.forward_mode_for_threads if forward_mode else contextlib.nullcontext
        self._random = random.Random(seed)

    def run(self, program: Callable[[Comm], Any]) -> list[Any]:
        """What `program(comm)` returns on every rank. A world may run several programs, one after the other.

        Raises:
            CommError: ranks that wait for each other in vain, or make different calls.
            Exception: what a rank raised, where the others did not wait for it.
        """
        ranks, errors = range(self.size), list[BaseException]()
        # No network promises an order of summation, so a program that relies on one is to show it here.
        order = self._random.sample(ranks, self.size) if self.order == "random" else ranks
        choose = self._random.choice if self.order == "random" else min
        meeting, results = Meeting(self.size, order, choose=choose), list[Any]([None] * self.size)
        intra_op = torch.get_num_threads()
        # Daemons, so that a program which never comes to its next collective cannot keep the process from ending.
        live = [LockstepComm(meeting, rank, self.size)._live for rank in ranks]
        threads = [threading.Thread(target=each, args=(program, results, errors), daemon=True) for each in live]
        with self._shared():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        torch.set_num_threads(intra_op)
        # Where ranks wait for a rank that raised, the world has failed: its text names every rank, and the exception is
        # its cause. Where no rank waits, the exception is all that happened.
        if meeting.failed:
            raise CommError(meeting.failed) from next(iter(errors), None)
        if errors:
            raise errors[0]
        return results


class LockstepComm(Comm):
    """A rank of a `LockstepWorld`."""

    def __init__(self, meeting: Meeting, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._meeting, self._count = meeting, 0

    def _live(self, program: Callable[[Comm], Any], results: list[Any], errors: list[BaseException]) -> None:
        """Run a program as this rank, in a thread of its own."""
        torch.set_num_threads(1)
        how = "has returned"
        try:
            self._meeting.begin(self.rank)
            # Autograd runs the backward passes of a GPU in one thread of its own. There a rank would wait for another,
            # whose pass is queued behind it. So each rank runs its passes in its own thread.
            with torch.autograd.set_multithreading_enabled(False):
                results[self.rank] = program(self)
        except _Stopped:
            pass
        except BaseException as err:
            errors.append(err)
            how = f"raised {type(err).__name__}: {err}"
        self._meeting.leave(self.rank, how)

    def _run(self, call: Call, x: Tensor) -> list[Tensor]:
        if not x.is_contiguous():  # NCCL refuses it, and gloo sends other elements without a word
            raise RuntimeError(f"{call}: got strides={x.stride()}, need contiguous memory on the wire.")
        number, self._count = self._count, self._count + 1
        try:
            delivery = self._meeting.take_turn(self.rank, Turn([make_post(call, x, number, self.size)], number))
        except MeetingError as err:
            raise _Stopped from err
        return result_of(call, x, delivery.tensors)
