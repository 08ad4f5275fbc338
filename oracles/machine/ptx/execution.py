"""The execution of a launch: chunk by chunk of blocks, and in each the threads that are at the earliest block next.

What is hard here: threads part at branches and must come together again as soon as they do on a GPU, for shuffles ask
for whole warps. Every thread has a program counter, the number of a basic block, and of all threads that can go on
those at the earliest one run next (`joining`); where all are together, nothing is masked.
"""

from __future__ import annotations

import math
import time

import numpy as np

from ...verdicts.violation import Code, Unsupported, Violation
from .accesses import complete
from .chunk import BARRIERS, Chunk, Context
from .clusters import MEETING, pass_cluster_barriers, whole_clusters
from .executable import Kernel
from .formats import Lanes

#: Threads of a chunk, about: a step of fewer costs as much, for Python takes as long as NumPy.
_CHUNK = 1 << 14
#: Blocks of instructions that run before the choice of threads changes, where some may wait for others.
_PHASE = 16


def execute(kernel: Kernel, context: Context, order: str, blocks: Lanes | None = None) -> None:
    """Execute all blocks of a launch.

    Args:
        kernel, context: the program and the launch. order: of warps, as `Hardware` has it.
        blocks: the numbers of those that run; None for all.

    Raises:
        Violation: what a GPU traps on, or what the ISA leaves undefined. Unsupported: what no meaning is built for.
    """
    numbers = np.arange(math.prod(context.geometry.grid)) if blocks is None else blocks
    numbers = whole_clusters(context.geometry, numbers)
    together = max(1, _CHUNK // context.threads // context.joined) * context.joined
    # Overflow and invalid operations are a kernel's daily business.
    with np.errstate(all="ignore"):
        for first in range(0, numbers.size, together):
            chunk = Chunk(context, numbers[first : first + together])
            _Run(kernel, chunk, order).to_the_end()
            context.unwritten = context.unwritten or chunk.shared.unwritten or chunk.local.unwritten


class _Run:
    """One chunk on its way.

    Attributes:
        chunk: the threads. at: the program counter of each.
        waiting: the barrier at which each waits, as `Chunk.waiting`.
    """

    def __init__(self, kernel: Kernel, chunk: Chunk, order: str) -> None:
        self._kernel, self._order, self._end = kernel, order, len(kernel.steps)
        self.chunk = chunk
        self.at = np.where(chunk.alive, 0, self._end)
        self.waiting = np.zeros(chunk.size, np.int64)
        self._warps = chunk.lanes // kernel.together
        self._turns, self._ran = 0, np.zeros(-(-chunk.size // kernel.together), np.int64)

    def to_the_end(self) -> None:
        """Execute until every thread has ended."""
        together = 0 if self._order == "together" and self.chunk.alive.all() else None
        deadline = self.chunk.context.deadline
        while together is None or together < self._end:
            if deadline < math.inf and time.process_time() > deadline:
                raise Unsupported(Code.OPCODE, "the blocks that were chosen take too long")
            if together is not None:
                together = self._run_all(together)
                continue
            ready = (self.at < self._end) & (self.waiting == 0)
            if not ready.any() and not self.waiting.any():
                break
            if ready.any():
                self._run_some(ready)
            if not self._let_pass() and not ready.any():
                raise self._fault(self.waiting > 0, "waits at a barrier that others do not come to")
            together = self._place_of_all()
        complete(self.chunk, self.chunk.begun.copies, None, None)

    def _run_all(self, number: int) -> int | None:
        """Run a block of instructions for all threads; where all are then, or None if they have parted."""
        self._run(number, None)
        chunk = self.chunk
        if chunk.waiting is not None and (chunk.waiting == self._barrier_of_all(chunk.waiting)).all():
            chunk.pass_barrier(np.arange(chunk.blocks.size))
            return chunk.target
        if chunk.waiting is None and chunk.parting is None:
            return chunk.target
        self._move(np.ones(chunk.size, bool))
        self._let_pass()
        return self._place_of_all()

    def _run_some(self, ready: Lanes) -> None:
        """Run a block of instructions for the threads that are at the earliest; by order, for one warp alone."""
        if self._kernel.waits:
            ready = self._in_turn(ready)
        elif self._order != "together":
            ready = ready & self._next_warp(ready, self.chunk.within // self._kernel.together)
        there = self.at[ready]
        earliest = int(there[self._kernel.ranks[there].argmin()])
        mask = ready & (self.at == earliest)
        self._run(earliest, mask)
        self._move(mask)

    def _in_turn(self, ready: Lanes) -> Lanes:
        """The threads that may run next, of a kernel in which some may wait for others: none of those waits for ever.

        In turn run the threads at the earliest block, or the last warp or the first; the warps that are farthest,
        for who holds a lock is behind the loop of those that wait for it; and the warp that has not run for longest.
        """
        self._turns += 1
        phase = self._turns // _PHASE
        if phase % 3 == 1:
            ranks = self._kernel.ranks[self.at]
            farthest = ready & (ranks == ranks[ready].max())
            return ready & np.isin(self._warps, self._warps[farthest])
        if phase % 3 == 2:
            warps = np.unique(self._warps[ready])
            latest = warps[self._ran[warps] == phase]
            warp = latest[0] if latest.size else warps[self._ran[warps].argmin()]
            self._ran[warp] = phase
            return ready & (self._warps == warp)
        if self._order == "together":
            return ready
        return ready & self._next_warp(ready, self._warps)

    def _next_warp(self, ready: Lanes, warps: Lanes) -> Lanes:
        """The threads of the last or the first of the warps with a thread that is ready, as the order says."""
        return np.asarray(warps == (warps[ready].max() if self._order == "apart" else warps[ready].min()))

    def _run(self, number: int, mask: Lanes | None) -> None:
        chunk = self.chunk
        chunk.mask, chunk.target, chunk.parting, chunk.waiting = mask, number + 1, None, None
        for step in self._kernel.steps[number]:
            step(chunk)

    def _move(self, mask: Lanes) -> None:
        """Set the program counters of the threads that have run."""
        chunk = self.chunk
        self.at[mask] = chunk.target
        if chunk.parting is not None:
            threads, target = chunk.parting
            self.at[threads] = target
        if chunk.waiting is not None:
            self.waiting = np.where(chunk.waiting > 0, chunk.waiting, self.waiting)
        chunk.alive = self.at < self._end

    def _barrier_of_all(self, waiting: Lanes) -> int:
        """The barrier at which the first thread waits if it takes all threads of a block; else -1."""
        code = int(waiting[0])
        return code if code and (code - 1) // BARRIERS in (0, self.chunk.context.threads) else -1

    def _fault(self, threads: Lanes, what: str) -> Violation:
        """What the first of some threads does, as a violation."""
        return Violation(Code.DIVERGENT, f"{self.chunk.name(int(np.flatnonzero(threads)[0]))} {what}")

    def _let_pass(self) -> bool:
        """Threads pass barriers to which all have come that have to; whether any has."""
        if not self.waiting.any():
            return False
        threads, arrivals, passed = self.chunk.context.threads, self.chunk.begun.arrivals, False
        waiting, ended = self.waiting.reshape(-1, threads), ~self.chunk.alive.reshape(-1, threads)
        for code in np.unique(waiting[waiting > 0]).tolist():
            if code == MEETING:
                passed |= pass_cluster_barriers(self.chunk, self.waiting)
                continue
            here, (count, number) = waiting == code, divmod(code - 1, BARRIERS)
            come = here.sum(1) + [arrivals.get((block, number), 0) for block in range(len(here))]
            if count and (come > count).any():
                raise self._fault(
                    (here & (come > count)[:, None]).reshape(-1), f"comes to a barrier of {count} threads"
                )
            passing = here.any(1) & ((come == count) if count else (here | ended).all(1))
            if passing.any():
                passed = True
                waiting[here & passing[:, None]] = 0
                blocks = np.flatnonzero(passing)
                self.chunk.pass_barrier(blocks)
                for block in blocks.tolist():
                    arrivals.pop((block, number), None)
        return passed

    def _place_of_all(self) -> int | None:
        """The block of instructions where all threads are; None if they have parted, wait, or go one by one."""
        first = int(self.at[0])
        if self._order != "together" or self.waiting.any() or not (self.at == first).all():
            return None
        return first
