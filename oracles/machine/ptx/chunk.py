"""The threads that run at once: whole blocks, whose registers are one array each, with an element for every thread.

A register that is the same in all threads may be a NumPy scalar, and is then computed once.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ...verdicts.violation import Code, Violation
from .formats import BITS, Lanes
from .listing import Listing
from .ongoing import WorkGroups
from .space import WARP, Space

#: How many barriers a block has.
BARRIERS = 16
#: Sizes along x, y and z.
Extents: TypeAlias = tuple[int, int, int]
#: By how many cycles a clock goes on from one look at it to the next.
_CYCLES = 64
#: From this bit on, addresses of shared memory have one more than the rank of a block in its cluster; 0: their own.
RANK = 24
#: Which lanes, of all, the masks of a lane name.
_MASKS = {"eq": np.equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}


@dataclass(frozen=True)
class Geometry:
    """The name of a launched kernel, its blocks and the threads of one along three axes, its dynamic shared memory in
    bytes, and the blocks of a cluster along three axes.
    """

    name: str
    grid: Extents
    block: Extents
    shared: int
    cluster: Extents = (1, 1, 1)


@dataclass
class Context:
    """What all chunks of one launch share.

    Attributes:
        entry: the kernel. geometry: of the launch.
        memory: global memory. parameters: name -> bytes. poison: of registers and shared memory.
        shared: bytes of a block's shared memory. symbols: the addresses of the module's variables.
        unordered: whether the order of sums of floats, several into one element, was not decided.
        unwritten: the first read of memory or of a register to which nothing was written, in words.
        cycles: that a clock has.
        deadline: when the blocks have to have ended, on the clock of the process.
    """

    entry: Listing
    geometry: Geometry
    memory: Space
    parameters: dict[str, bytes]
    poison: int
    shared: int
    symbols: dict[str, int] = field(default_factory=dict)
    unwritten: str = ""
    unordered: bool = False
    cycles: int = 0
    deadline: float = math.inf

    def parameter_bytes(self, at: int, count: int) -> bytes:
        """Bytes of a parameter, by the place that `Listing.parameter_place` gives."""
        for name, raw in self.parameters.items():
            start = at - self.entry.parameter_place(name)
            if start >= 0 and start + count <= len(raw):
                return raw[start : start + count]
        raise Violation(Code.OUT_OF_BOUNDS, f"{count} bytes at byte {at} of the parameters are of none", [])

    @property
    def threads(self) -> int:
        """Of a block, in whole warps: what of the last one is no thread of the block has ended before it begins."""
        return whole_warps(self.geometry.block)

    @property
    def joined(self) -> int:
        """How many blocks a cluster has."""
        return math.prod(self.geometry.cluster)


def whole_warps(block: Extents) -> int:
    """The threads of a block, and as many more as fill its last warp."""
    return -(-math.prod(block) // WARP) * WARP


@dataclass
class Asynchronous:
    """What threads have begun and not waited for.

    Attributes:
        copies: of cp.async. products: of wgmma. bulk: of cp.async.bulk, what goes out.
        barriers: of `mbarriers.py`, by block and address. tests: of them that have failed since somebody came.
        arrivals: of threads that do not wait, by block and number of the barrier.
        meetings: of each thread how many barriers of its cluster it has come to, and how many it has passed.
    """

    copies: WorkGroups
    products: WorkGroups
    bulk: WorkGroups
    meetings: Lanes
    barriers: dict[tuple[int, int], Any] = field(default_factory=dict)
    tests: int = 0
    arrivals: dict[tuple[int, int], int] = field(default_factory=dict)


@functools.lru_cache(8)
def _every_lane(size: int, times: int) -> Lanes:
    return np.tile(np.arange(size), times)


class Chunk:
    """Some blocks of a launch, and where their threads are.

    Args:
        context: the launch. blocks: their numbers, those of a cluster side by side, by their ranks.

    Attributes:
        size: how many threads. lanes: their numbers here. numbers: in the whole launch. block: of each, here.
        within: the number of each in its block. special: the special registers.
        mask: the threads that execute the current block of instructions; None for all.
        alive: the threads that have not ended. shared: the shared memory of all blocks. local: that of all threads.
        begun: what goes on by itself.
        target: the block of instructions that comes next. parting: the threads that go elsewhere, and where.
        waiting: of each thread the barrier that it came to in this block of instructions: one more than its number, and
            `BARRIERS` for each thread that has to come; 0 for none.
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
            "shared", context.shared * blocks.size, blocks.size, threads, poison=context.poison, apart=True,
            numbers=blocks, joint=context.joined > 1,
        )  # fmt: skip
        # A thread is the only one of a block of its own as far as its local memory goes.
        size = -(-context.entry.sizes["local"] // 16) * 16
        self.local = Space("local", size * self.size, self.size, 1, poison=context.poison, apart=True)
        groups = [WorkGroups(self.size) for _ in range(3)]
        self.begun = Asynchronous(groups[0], groups[1], groups[2], np.zeros((2, self.size), np.int64))
        self.mask: Lanes | None = None
        self.alive = self.within < math.prod(context.geometry.block)
        self.target = 0
        self.parting: tuple[Lanes, int] | None = None
        self.waiting: Lanes | None = None
        self._registers: dict[str, Lanes] = {}
        self._defined: dict[str, Lanes] = {}

    def _special_registers(self) -> dict[str, Any]:
        threads, geometry = self.context.threads, self.context.geometry
        registers: dict[str, Any] = {"%laneid": (self.within % WARP).astype(np.uint32)}
        registers["%dynamic_smem_size"] = np.uint32(geometry.shared)
        registers |= {"%warpid": (self.within // WARP).astype(np.uint32), "%nwarpid": np.uint32(threads // WARP)}
        blocks = np.repeat(self.blocks, threads)
        ranks = self.block % self.context.joined
        registers |= {"%cluster_ctarank": ranks.astype(np.uint32), "%cluster_nctarank": np.uint32(self.context.joined)}
        clusters = (*(n // m for n, m in zip(geometry.grid, geometry.cluster, strict=True)),)
        for name, extents, number in (
            ("ctaid", geometry.grid, blocks), ("tid", geometry.block, self.within),
            ("cluster_ctaid", geometry.cluster, ranks), ("clusterid", clusters, None),
        ):  # fmt: skip
            width, height, _ = extents
            if number is None:  # each axis of the grid has that of the cluster within
                places = tuple(
                    registers[f"%ctaid.{axis}"] // m for axis, m in zip("xyz", geometry.cluster, strict=True)
                )
            else:
                places = number % width, number // width % height, number // (width * height)
            for axis, place, extent in zip("xyz", places, extents, strict=True):
                along = place.astype(np.uint32) if extent > 1 else np.uint32(0)
                counted = f"%cluster_n{name[8:]}" if name == "cluster_ctaid" else f"%n{name}"
                registers |= {f"%{name}.{axis}": along, f"{counted}.{axis}": np.uint32(extent)}
        for relation, holds in _MASKS.items():
            named = holds(np.arange(WARP)[None, :], np.arange(WARP)[:, None])
            masks = (named << np.arange(WARP)).sum(1).astype(np.uint32)
            registers[f"%lanemask_{relation}"] = masks[self.within % WARP]
        return registers

    def read(self, name: str) -> Lanes:
        """The bits of a register; poison where nothing was written."""
        value = self._registers.get(name)
        if value is None:
            self._note_unwritten(name)
            value = self._registers[name] = self._unwritten(name)
            self._defined[name] = np.zeros(self.size, bool)
        elif name in self._defined:
            missing = ~self._defined[name]
            if (missing if self.mask is None else missing & self.mask).any():
                self._note_unwritten(name)
        return value

    def read_clock(self) -> int:
        """Cycles since the launch began: more each time that somebody asks."""
        self.context.cycles += _CYCLES
        return self.context.cycles

    def _note_unwritten(self, name: str) -> None:
        self.context.unwritten = self.context.unwritten or f"register {name}"

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
        if width == 1:  # of a predicate, whatever its name is: numbers of bytes would choose threads by their places
            return np.bool_(poison & 1)
        return np.frombuffer(bytes([poison] * width), BITS[width])[0]

    def select_lanes(self, active: Lanes | None) -> Lanes:
        """The numbers of the active threads."""
        return self.lanes if active is None else np.flatnonzero(active)

    def pick(self, values: Lanes, lanes: Lanes) -> Lanes:
        """What some threads have of values of all."""
        return values if lanes is self.lanes else values[lanes]

    def repeat(self, lanes: Lanes, times: int) -> Lanes:
        """The numbers of threads, so many times; the same array for the same threads where these are all."""
        return _every_lane(self.size, times) if lanes is self.lanes else np.tile(lanes, times)

    def spread(self, value: Lanes) -> Lanes:
        """A value with an element for every thread."""
        return value if np.ndim(value) else np.broadcast_to(value, (self.size,))

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
        self.require_each(~missing, f"{where}: {{}} does not come with the other threads of its warp")

    def require_each(self, fit: Lanes, title: str) -> None:
        """Raise a Violation where a thread is not fit; the title has a place for its name."""
        if not fit.all():
            raise Violation(Code.DIVERGENT, title.format(self.name(int(np.argmin(fit)))))

    def pass_warp_barrier(self, active: Lanes | None) -> None:
        """Warps pass a barrier of their own: those of the active threads, whole warps."""
        first = self.select_lanes(active)[::WARP]
        self.shared.books.pass_warp_barrier(self.lanes[first] // WARP)
        self.context.memory.books.pass_warp_barrier(self.numbers[first] // WARP)

    def pass_barrier(self, blocks: Lanes) -> None:
        """Blocks of this chunk pass a barrier."""
        self.shared.pass_barrier(blocks)
        self.context.memory.pass_barrier(self.blocks[blocks])

    def meet(self, lanes: Lanes, releases: bool) -> None:
        """Threads come to a barrier of their cluster, or pass it; `releases`: what they did so far comes before."""
        self.shared.meet(lanes, releases)
        self.context.memory.order.pass_through(np.unique(self.blocks[self.block[lanes]]), releases)

    def find_home(self, at: Lanes, lanes: Lanes, label: str) -> tuple[Lanes | None, Lanes]:
        """Of addresses of shared memory by threads, the blocks in whose it is, None for their own, and where there.

        Raises:
            Violation: that block has ended.
        """
        ranks = at >> RANK
        if not ranks.any():
            return None, at
        there, joined, own = (ranks > 0) & (ranks <= self.context.joined), self.context.joined, self.block[lanes]
        homes = np.where(there, own // joined * joined + ranks - 1, own)
        ended = np.asarray(~self.alive.reshape(self.blocks.size, -1).any(1))[homes]
        if ended.any():
            first = int(np.argmax(ended))
            title = f"{label}: {self.name(int(lanes[first]))} touches shared memory of block"
            raise Violation(Code.UNDEFINED, f"{title} {int(self.blocks[homes[first]])}, which has ended")
        return homes, np.where(there, at & (1 << RANK) - 1, at)

    def name(self, lane: int) -> str:
        """A thread, in words."""
        return f"thread {int(self.within[lane])} of block {int(self.blocks[self.block[lane]])}"
