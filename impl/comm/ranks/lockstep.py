"""`LockstepComm`: k ranks as k threads of one process, of which one runs at a time.

A rank runs until its next collective and then hands over. When no rank can run, every one of them waits, has returned
or has raised, and what happens is decided by that alone: no clock is asked, so a deadlock is found at once and for
certain.

What is hard here: a collective may be called from deep inside autograd, whose frames in C++ nothing can suspend but a
thread. So ranks are threads, of which only one at a time has its turn. The next turn is decided under one lock, which
makes a run repeatable. And a world that has failed must end every rank, even one that waits inside autograd.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...operator import torch_private as private
from .base import Call, Comm, CommError, carry_out


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
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        # One condition for each rank, so that handing over wakes the rank whose turn it is and no other.
        self._wake = [threading.Condition(self._lock) for _ in range(self.size)]
        self._state = ["ready"] * self.size  # ready, waiting, done
        self._calls: list[list[Call]] = [[] for _ in range(self.size)]
        self._operands: list[Any] = [None] * self.size
        self._results: list[Any] = [None] * self.size
        self._errors: list[BaseException | None] = [None] * self.size
        self._turn = 0
        self._failed = ""

    def run(self, program: Callable[[Comm], Any]) -> list[Any]:
        """What `program(comm)` returns on every rank. A world may run several programs, one after the other.

        Raises:
            CommError: ranks that wait for each other in vain, or make different calls.
            Exception: what a rank raised, where the others did not wait for it.
        """
        self._begin()
        results: list[Any] = [None] * self.size
        intra_op = torch.get_num_threads()
        # Daemons, so that a program which never comes to its next collective cannot keep the process from ending.
        threads = [
            threading.Thread(target=self._live, args=(rank, program, results), daemon=True) for rank in range(self.size)
        ]
        with self._shared():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        torch.set_num_threads(intra_op)
        # Where ranks wait for a rank that raised, the world has failed: its text names every rank, and the exception is
        # its cause. Where no rank waits, the exception is all that happened.
        raised = next((err for err in self._errors if err is not None), None)
        if self._failed:
            raise CommError(self._failed) from raised
        if raised is not None:
            raise raised
        return results

    def _live(self, rank: int, program: Callable[[Comm], Any], results: list[Any]) -> None:
        torch.set_num_threads(1)
        try:
            with self._lock:
                self._await_turn(rank)
            # Autograd runs the backward passes of a GPU in one thread of its own. There a rank would wait for another,
            # whose pass is queued behind it. So each rank runs its passes in its own thread.
            with torch.autograd.set_multithreading_enabled(False):
                results[rank] = program(LockstepComm(self, rank))
        except _Stopped:
            pass
        except BaseException as err:
            self._errors[rank] = err
        with self._lock:
            self._state[rank] = "done"
            if not self._failed:
                self._hand_over()

    def post(self, rank: int, call: Call, x: Tensor) -> list[Tensor]:
        """A rank's call: waits until all ranks have made theirs."""
        self._calls[rank].append(call)
        with self._lock:
            self._operands[rank], self._state[rank] = x, "waiting"
            self._hand_over()
            self._await_turn(rank)
            results: list[Tensor] = self._results[rank]
        return results

    # The functions below are called with the lock held.

    def _await_turn(self, rank: int) -> None:
        while self._turn != rank and not self._failed:
            self._wake[rank].wait()
        if self._failed:
            raise _Stopped

    def _hand_over(self) -> None:
        # If no rank can run, none ever will unless those that wait now meet in one call. Where they do not, no rank is
        # ready, for the world has failed.
        ready = [r for r in range(self.size) if self._state[r] == "ready"]
        waiting = [r for r in range(self.size) if self._state[r] == "waiting"]
        if not ready and waiting:
            self._meet(waiting)
            ready = [r for r in range(self.size) if self._state[r] == "ready"]
        if ready:
            self._turn = self._random.choice(ready) if self.order == "random" else ready[0]
            self._wake[self._turn].notify()

    def _meet(self, waiting: list[int]) -> None:
        """Carry out the call that all ranks wait in, or say why that cannot be."""
        if len(waiting) < self.size:
            absent = [r for r in range(self.size) if r not in waiting]
            self._fail("; ".join([*map(self._describe_waiting, waiting), *map(self._describe_absent, absent)]))
            return
        calls = [calls[-1] for calls in self._calls]
        if len({call.key() for call in calls}) > 1:
            self._fail("different calls: " + "; ".join(map(self._describe_waiting, waiting)))
            return
        order = list(range(self.size))
        # No network promises an order of summation, so a program that relies on one is to show it here.
        if self.order == "random":
            self._random.shuffle(order)
        for rank in range(self.size):
            self._results[rank] = carry_out(calls[rank], self._operands, rank, order)
            self._state[rank] = "ready"

    def _describe_waiting(self, rank: int) -> str:
        return f"rank {rank} waits in call {len(self._calls[rank])}, {self._calls[rank][-1]}"

    def _describe_absent(self, rank: int) -> str:
        err, calls = self._errors[rank], self._calls[rank]
        how = "has returned" if err is None else f"raised {type(err).__name__}: {err}"
        return f"rank {rank} {how} after call {len(calls)}" + (f", {calls[-1]}" if calls else "")

    def _fail(self, text: str) -> None:
        self._failed = text
        for wake in self._wake:
            wake.notify()


class LockstepComm(Comm):
    """A rank of a `LockstepWorld`."""

    def __init__(self, world: LockstepWorld, rank: int) -> None:
        self.world, self.rank, self.size = world, rank, world.size

    def _run(self, call: Call, x: Tensor) -> list[Tensor]:
        if not x.is_contiguous():  # NCCL refuses it, and gloo sends other elements without a word
            raise RuntimeError(f"{call}: got strides={x.stride()}, need contiguous memory on the wire.")
        return self.world.post(self.rank, call, x)
