"""The execution of a launch: chunk by chunk of blocks, and in each the threads that are at the lowest instruction next.

What is hard here: threads part at branches and must come together again as soon as they do on a GPU, for shuffles ask
for whole warps. Every thread has a program counter, the number of a basic block, and of all threads that can go on
those at the lowest number run next; where all are together, nothing is masked.
"""

from __future__ import annotations

import numpy as np

from .accesses import complete
from .chunk import WARP, Chunk, Context
from .executable import Kernel
from .formats import Lanes

#: Threads of a chunk, about: a step of fewer costs as much, for Python takes as long as NumPy.
_CHUNK = 1 << 14


def execute(kernel: Kernel, context: Context, order: str) -> None:
    """Execute all blocks of a launch.

    Args:
        kernel, context: the program and the launch. order: of warps, as `Hardware` has it.

    Raises:
        Violation: what a GPU traps on, or what the ISA leaves undefined. Unsupported: what no meaning is built for.
    """
    count = int(np.prod(context.grid))
    together = max(1, _CHUNK // context.threads)
    # Overflow and invalid operations are a kernel's daily business.
    with np.errstate(all="ignore"):
        for first in range(0, count, together):
            chunk = Chunk(context, np.arange(first, min(first + together, count)))
            _Run(kernel, chunk, order).to_the_end()
            context.undefined += chunk.shared.undefined


class _Run:
    """One chunk on its way.

    Attributes:
        chunk: the threads. at: the program counter of each. waiting: which of them wait at a barrier.
    """

    def __init__(self, kernel: Kernel, chunk: Chunk, order: str) -> None:
        self._kernel, self._order, self._end = kernel, order, len(kernel.steps)
        self.chunk = chunk
        self.at = np.zeros(chunk.size, np.int64)
        self.waiting = np.zeros(chunk.size, bool)

    def to_the_end(self) -> None:
        """Execute until every thread has ended."""
        together = 0 if self._order == "together" else None
        while together is None or together < self._end:
            if together is not None:
                together = self._run_all(together)
                continue
            ready = (self.at < self._end) & ~self.waiting
            if not ready.any() and not self.waiting.any():
                break
            if ready.any():
                self._run_some(ready)
            self._let_pass()
            together = self._place_of_all()
        complete(self.chunk, len(self.chunk.copies.groups))

    def _run_all(self, number: int) -> int | None:
        """Run a block of instructions for all threads; where all are then, or None if they have parted."""
        self._run(number, None)
        chunk = self.chunk
        if chunk.waiting is not None and chunk.waiting.all():
            chunk.pass_barrier(np.arange(chunk.blocks.size))
            return chunk.target
        if chunk.waiting is None and chunk.parting is None:
            return chunk.target
        self._move(np.ones(chunk.size, bool))
        self._let_pass()
        return self._place_of_all()

    def _run_some(self, ready: Lanes) -> None:
        """Run a block of instructions for the threads that are at the lowest one; by order, for one warp alone."""
        if self._order != "together":
            warps = self.chunk.within // WARP
            ready = ready & (warps == warps[ready].max())
        lowest = int(self.at[ready].min())
        mask = ready & (self.at == lowest)
        self._run(lowest, mask)
        self._move(mask)

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
            self.waiting |= chunk.waiting
        chunk.alive = self.at < self._end

    def _let_pass(self) -> None:
        """Blocks all of whose living threads wait pass the barrier."""
        if not self.waiting.any():
            return
        waiting, ended = (
            self.waiting.reshape(-1, self.chunk.context.threads),
            ~self.chunk.alive.reshape(-1, self.chunk.context.threads),
        )
        passing = (waiting | ended).all(1) & waiting.any(1)
        if passing.any():
            self.waiting &= ~np.repeat(passing, self.chunk.context.threads)
            self.chunk.pass_barrier(np.flatnonzero(passing))

    def _place_of_all(self) -> int | None:
        """The block of instructions where all threads are; None if they have parted, wait, or go one by one."""
        first = int(self.at[0])
        if self._order != "together" or self.waiting.any() or not (self.at == first).all():
            return None
        return first
