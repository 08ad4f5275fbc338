"""Blocks of a cluster: its barrier, and the shared memory that they have of each other.

Source: NVIDIA, PTX ISA 9.1, sections 5.1.7 and 9.7.8 (.shared::cluster, mapa, getctarank), 9.7.13.4 (barrier.cluster).
Which bits of an address name a block is not documented; here those from `RANK` on do, so that an address of a
thread's own block is the same number in .shared::cta and .shared::cluster.

What is hard here: barriers of a block do not order what other blocks do with its memory. So there what was done is
never forgotten, and an order is made by barriers in memory and of the cluster alone (`block_order.py`); a barrier of a
block has all its warps hand on what each of them knows. That a block is still there when others touch its memory is
looked at in the order in which threads run here.
"""

from __future__ import annotations

import numpy as np

from ...verdicts.violation import Code, Violation
from .chunk import RANK, Chunk, Geometry
from .formats import WINDOWS, Lanes
from .listing import Instruction, Listing
from .operands import Step, active, destination, reader

#: The barrier of a cluster, in `Chunk.waiting`.
MEETING = 1 << 40


def whole_clusters(geometry: Geometry, blocks: Lanes) -> Lanes:
    """The numbers of all blocks of the clusters of some, one cluster after the other, by ranks."""
    (width, height, _), (x, y, z) = geometry.grid, geometry.cluster
    if x * y * z == 1:
        return blocks
    column, row, layer = blocks % width // x * x, blocks // width % height // y * y, blocks // (width * height) // z * z
    rank = np.arange(x * y * z)
    first = np.unique(column + width * (row + height * layer))
    return (first[:, None] + rank % x + width * (rank // x % y + height * (rank // (x * y)))).reshape(-1)


def cluster_barrier(instruction: Instruction, entry: Listing) -> Step:
    """barrier.cluster: arrive, and wait until all threads of the cluster that have not ended have arrived."""
    where, label, words = active(instruction), str(instruction), {*instruction.modifiers}
    waits, releases = "wait" in words, "relaxed" not in words

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        if "aligned" in words:
            chunk.require_whole_warps(threads, label)
        lanes, (come, passed) = chunk.select_lanes(threads), chunk.begun.meetings
        wrong = lanes[(come[lanes] > passed[lanes]) != waits]
        if wrong.size:
            text = "waits and has not arrived" if waits else "arrives again and has not waited"
            raise Violation(Code.DIVERGENT, f"{label}: {chunk.name(int(wrong[0]))} {text}")
        if waits:
            chunk.waiting = np.where(True if threads is None else threads, MEETING, np.zeros(chunk.size, np.int64))
        else:
            come[lanes] += 1
            chunk.meet(lanes, releases)

    return step


def pass_cluster_barriers(chunk: Chunk, waiting: Lanes) -> bool:
    """Have threads go on from barriers of clusters to which all have come that have to; whether any does."""
    come, passed = chunk.begun.meetings
    size = chunk.context.threads * chunk.context.joined
    least = np.where(chunk.alive, come, np.iinfo(np.int64).max).reshape(-1, size).min(1).repeat(size)
    lanes = np.flatnonzero((waiting == MEETING) & (least > passed))
    if lanes.size:
        waiting[lanes] = 0
        passed[lanes] += 1
        blocks = np.unique(chunk.block[lanes])
        chunk.shared.books.pass_barrier(blocks)
        chunk.context.memory.books.pass_barrier(chunk.blocks[blocks])
        chunk.meet(lanes, False)
    return bool(lanes.size)


def map_shared(instruction: Instruction, entry: Listing) -> Step:
    """mapa: an address of shared memory as that of another block of the cluster; getctarank: whose it is."""
    target, source, *by = instruction.operands
    name, where, label = destination(instruction, target, entry), active(instruction), str(instruction)
    generic = "shared::cluster" not in instruction.modifiers
    maps, window = instruction.name == "mapa", WINDOWS["shared"] if generic else 0
    # An address has the width of the type; of getctarank it is what is read.
    kind = "b64" if entry.registers.get(str(source)) == 8 else "b32"
    place, rank = (reader(instruction, each, of, entry) for each, of in ((source, kind), ((*by, "0")[0], "u32")))
    bits = np.uint64 if instruction.kind == "u64" and maps else np.uint32

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        at, joined = chunk.spread(place(chunk)).astype(np.int64) - window, chunk.context.joined
        if not maps:
            own = chunk.block % joined
            chunk.write(name, np.where(at >> RANK > 0, (at >> RANK) - 1, own).astype(bits), threads)
            return
        ranks, lanes = chunk.spread(rank(chunk)).astype(np.int64), chunk.select_lanes(threads)
        beyond = lanes[ranks[lanes] >= joined]
        if beyond.size:
            text = f"{label}: {chunk.name(int(beyond[0]))} names block {int(ranks[beyond[0]])} of a cluster of {joined}"
            raise Violation(Code.UNDEFINED, text)
        chunk.write(name, ((at & (1 << RANK) - 1) + (ranks + 1 << RANK) + window).astype(bits), threads)

    return step
