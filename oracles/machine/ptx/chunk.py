"""The threads that run at once: whole blocks, whose registers are one array each, with an element for every thread.

A register that is the same in all threads may be a NumPy scalar, and is then computed once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...verdicts.verdict import Code
from ...verdicts.violation import Violation
from .formats import BITS, Lanes
from .listing import Listing
from .space import Access, Space

WARP = 32


@dataclass
class Context:
    """What all chunks of one launch share.

    Attributes:
        entry: the kernel. grid: blocks in three dims. threads: of a block.
        memory: global memory. parameters: name -> bytes. poison: of registers and shared memory.
        shared: bytes of a block's shared memory. undefined: how often a register was read before it was written.
    """

    entry: Listing
    grid: tuple[int, int, int]
    threads: int
    memory: Space
    parameters: dict[str, bytes]
    poison: int
    shared: int
    undefined: int = 0


@dataclass
class Copies:
    """Asynchronous copies into shared memory, in groups; the last group is open."""

    groups: list[list[tuple[Access, list[Lanes]]]] = field(default_factory=lambda: [[]])


class Chunk:
    """Some blocks of a launch, and where their threads are.

    Args:
        context: the launch. blocks: their numbers.

    Attributes:
        size: how many threads. lanes: their numbers here. numbers: in the whole launch. block: of each, here.
        within: the number of each in its block. special: the special registers.
        mask: the threads that execute the current block of instructions; None for all.
        alive: the threads that have not ended. shared: the shared memory of all blocks. copies: that are pending.
        target: the block of instructions that comes next. parting: the threads that go elsewhere, and where.
        waiting: the threads that came to a barrier in this block of instructions.
    """

    def __init__(self, context: Context, blocks: Lanes) -> None:
        threads = context.threads
        self.context, self.blocks = context, blocks
        self.size = blocks.size * threads
        self.lanes = np.arange(self.size)
        self.within = np.tile(np.arange(threads), blocks.size)
        self.block = np.repeat(np.arange(blocks.size), threads)
        self.numbers = np.repeat(blocks, threads) * threads + self.within
        self.special = self._special_registers()
        self.shared = Space(
            "shared", context.shared * blocks.size, blocks.size, threads, poison=context.poison, apart=True
        )
        self.copies = Copies()
        self.mask: Lanes | None = None
        self.alive = np.ones(self.size, bool)
        self.target = 0
        self.parting: tuple[Lanes, int] | None = None
        self.waiting: Lanes | None = None
        self._registers: dict[str, Lanes] = {}
        self._defined: dict[str, Lanes] = {}

    def _special_registers(self) -> dict[str, Any]:
        width, height, _ = grid = self.context.grid
        blocks = np.repeat(self.blocks, self.context.threads)
        places = blocks % width, blocks // width % height, blocks // (width * height)
        registers: dict[str, Any] = {"%laneid": (self.within % WARP).astype(np.uint32)}
        for axis, place, extent in zip("xyz", places, grid, strict=True):
            registers |= {f"%ctaid.{axis}": place.astype(np.uint32), f"%nctaid.{axis}": np.uint32(extent)}
            registers |= {f"%tid.{axis}": np.uint32(0), f"%ntid.{axis}": np.uint32(1)}
        return registers | {"%tid.x": self.within.astype(np.uint32), "%ntid.x": np.uint32(self.context.threads)}

    def read(self, name: str) -> Lanes:
        """The bits of a register; poison where nothing was written."""
        value = self._registers.get(name)
        if value is None:
            self.context.undefined += 1
            value = self._registers[name] = self._unwritten(name)
            self._defined[name] = np.zeros(self.size, bool)
        elif name in self._defined:
            missing = ~self._defined[name]
            self.context.undefined += bool((missing if self.mask is None else missing & self.mask).any())
        return value

    def write(self, name: str, value: Lanes, active: Lanes | None) -> None:
        """Write a register in the active threads; None means in all of them."""
        width = self.context.entry.registers[name]
        if value.dtype != np.bool_:
            if value.dtype.kind == "i" and value.dtype.itemsize < width:
                value = value.astype(f"i{width}")  # the sign goes on into a wider register
            value = value.view(BITS[value.dtype.itemsize]).astype(BITS[width], copy=False)
        if active is None:
            self._registers[name] = value
            self._defined.pop(name, None)
            return
        old = self._registers.get(name)
        if old is None:
            old, self._defined[name] = self._unwritten(name), np.zeros(self.size, bool)
        if name in self._defined:
            self._defined[name] = self._defined[name] | active
            if self._defined[name].all():
                del self._defined[name]
        self._registers[name] = np.where(active, value, old)

    def _unwritten(self, name: str) -> Lanes:
        width, poison = self.context.entry.registers[name], self.context.poison
        if name.startswith("%p"):
            return np.bool_(poison & 1)
        return np.frombuffer(bytes([poison] * width), BITS[width])[0]

    def chosen(self, active: Lanes | None) -> Lanes:
        """The numbers of the active threads."""
        return self.lanes if active is None else np.flatnonzero(active)

    def spread(self, value: Lanes) -> Lanes:
        """A value with an element for every thread."""
        return np.broadcast_to(value, (self.size,))

    def require_whole_warps(self, active: Lanes | None, where: str, members: Lanes | None = None) -> None:
        """Require that the threads of a warp come to an instruction together.

        Args:
            active: those that have come; None for all. where: the instruction in words.
            members: those that are named there; None for all that have not ended.

        Raises:
            Violation: some are missing.
        """
        if active is None and members is None and self.alive.all():
            return
        active = np.ones(self.size, bool) if active is None else active
        named = self.alive if members is None else members
        missing = named & ~active & np.repeat(active.reshape(-1, WARP).any(1), WARP)
        if missing.any():
            first = int(np.flatnonzero(missing)[0])
            thread = f"thread {int(self.within[first])} of block {int(self.blocks[self.block[first]])}"
            raise Violation(Code.DIVERGENT, f"{where}: {thread} does not come with the other threads of its warp")

    def pass_barrier(self, blocks: Lanes) -> None:
        """Blocks of this chunk pass a barrier."""
        self.shared.pass_barrier(blocks)
        self.context.memory.pass_barrier(self.blocks[blocks])
