"""Steps that say where threads go: branches, the end, barriers."""

from __future__ import annotations

import numpy as np

from .chunk import Chunk
from .grammar import unknown
from .listing import Instruction, Listing
from .operands import Step, active


def branch(instruction: Instruction, entry: Listing) -> Step:
    """bra: some threads, or all, go on at a label."""
    (label,) = instruction.operands
    if not isinstance(label, str) or label not in entry.labels:
        raise unknown(instruction, f"the label {label}")
    return _go_to(instruction, entry.labels[label])


def end(instruction: Instruction, entry: Listing) -> Step:
    """ret and exit: some threads, or all, end."""
    return _go_to(instruction, len(entry.blocks))


def _go_to(instruction: Instruction, target: int) -> Step:
    where = active(instruction)

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        if threads is None or (chunk.mask is not None and np.array_equal(threads, chunk.mask)):
            chunk.target = target
        elif threads.any():
            chunk.parting = threads, target

    return step


def fence(instruction: Instruction, entry: Listing) -> Step:
    """membar and fence: memory is in one order here anyway; what they order with atomics `space.BlockOrder` says."""
    return lambda chunk: None


def barrier(instruction: Instruction, entry: Listing) -> Step:
    """bar.sync 0: the threads of a block wait for each other; bar.warp.sync: those of a warp, which run together."""
    where, warp = active(instruction), "warp" in instruction.modifiers
    if not warp and instruction.operands != ("0",):
        raise unknown(instruction, f"the operands {instruction.operands}")

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        chunk.require_whole_warps(threads, str(instruction))
        if warp:
            chunk.pass_warp_barrier(threads)
        else:
            chunk.waiting = np.ones(chunk.size, bool) if threads is None else threads

    return step
