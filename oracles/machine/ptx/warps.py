"""Steps of the threads of a warp together: shuffles, reductions, and 8 by 8 matrices of halves in shared memory.

Source: NVIDIA, PTX ISA 9.1, sections 9.7.9.6 (shfl.sync), 9.7.13.5 (redux.sync), 9.7.15.5 (ldmatrix, stmatrix).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .accesses import touch
from .chunk import WARP, Chunk
from .formats import NUMBERS, Lanes
from .grammar import unknown
from .listing import Instruction, Listing
from .operands import Step, active, address, destination, elements, reader

_REDUCED: dict[str, Any] = {
    "max": np.maximum, "min": np.minimum, "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


def _members(chunk: Chunk, threads: Lanes | None, masks: Lanes, instruction: Instruction) -> Lanes:
    """The threads that are named by a mask of 32 bits, which those of a warp that come must agree on, and come all.

    Args:
        chunk, threads: all threads, and those that come; None for all. masks: as each thread has it, or one for all.
        instruction: for messages.
    """
    come = np.ones(chunk.size, bool) if threads is None else threads
    rows, present = chunk.spread(masks).reshape(-1, WARP), come.reshape(-1, WARP)
    low, high = np.where(present, rows, np.uint32(0xFFFFFFFF)).min(1), np.where(present, rows, np.uint32(0)).max(1)
    if (present.any(1) & (low != high)).any():
        raise unknown(instruction, "threads of a warp that name others each for itself")
    named = (low[:, None] >> np.arange(WARP, dtype=np.uint32) & np.uint32(1) == 1).reshape(-1)
    # One that comes and is not named has no part in what it waits for.
    chunk.require_whole_warps(come & named, str(instruction), named | come)
    return named


def shuffle(instruction: Instruction, entry: Listing) -> Step:
    """shfl.sync: every thread gets the value of another one of its warp."""
    how, where = instruction.modifiers[1], active(instruction)
    target, *sources = instruction.operands
    name = destination(instruction, target, entry)
    value, by, clamp, members = (reader(instruction, source, "b32", entry) for source in sources)

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        _members(chunk, threads, members(chunk), instruction)
        source = _source(how, chunk.lanes % WARP, by(chunk), clamp(chunk))
        chunk.write(name, chunk.spread(value(chunk))[chunk.lanes - chunk.lanes % WARP + source], threads)

    return step


def _source(how: str, lane: Lanes, by: Lanes, clamp: Lanes) -> Lanes:
    """The lane whose value a thread gets; its own where that is beyond the end of its segment."""
    amount, control = np.asarray(by).astype(np.int64) & 31, np.asarray(clamp).astype(np.int64)
    segment, limit = (control >> 8) & 31, control & 31
    end = (lane & segment) | (limit & ~segment)
    if how == "up":
        source = lane - amount
        return np.where(source >= end, source, lane)
    if how == "bfly":
        source = lane ^ amount
    elif how == "down":
        source = lane + amount
    else:
        source = (lane & segment) | (amount & ~segment)
    return np.where(source <= end, source, lane)


def reduce(instruction: Instruction, entry: Listing) -> Step:
    """redux.sync: every thread of a warp that is named gets the reduction of the values of all that are."""
    function, kind, where = _REDUCED[instruction.modifiers[1]], instruction.kind, active(instruction)
    target, source, mask_operand = instruction.operands
    name, value = destination(instruction, target, entry), reader(instruction, source, kind, entry)
    mask = reader(instruction, mask_operand, "b32", entry)
    limits = np.iinfo(NUMBERS[kind])
    neutral = NUMBERS[kind]({"max": limits.min, "min": limits.max, "and": limits.max}.get(instruction.modifiers[1], 0))

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        members = _members(chunk, threads, mask(chunk), instruction)
        values = np.where(members, chunk.spread(value(chunk)), neutral).reshape(-1, WARP)
        chunk.write(name, np.repeat(function.reduce(values, axis=1, dtype=values.dtype), WARP), threads)

    return step


def _matrix_places(chunk: Chunk, at: Lanes, number: int, transposed: bool) -> list[Lanes]:
    """The addresses of the two halves that every thread has of matrix `number`, whose rows eight threads name."""
    warp, lane = chunk.lanes - chunk.lanes % WARP, chunk.lanes % WARP
    row, column = lane // 4, 2 * (lane % 4)
    places = [(column + more, row) if transposed else (row, column + more) for more in (0, 1)]
    return [at[warp + 8 * number + r] + 2 * c for r, c in places]


def _matrix_access(instruction: Instruction, operand: Any, entry: Listing) -> tuple[Any, bool, Any]:
    """Where a matrix is in shared memory, whether it is transposed, and which threads take part."""
    return address(instruction, operand, entry, "shared"), "trans" in instruction.modifiers, active(instruction)


def load_matrix(instruction: Instruction, entry: Listing) -> Step:
    """ldmatrix: two halves of each matrix for every thread."""
    target, source = instruction.operands
    names = [destination(instruction, name, entry) for name in elements(target)]
    place, transposed, where = _matrix_access(instruction, source, entry)

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        chunk.require_whole_warps(threads, str(instruction))
        chosen, at = chunk.chosen(threads), place(chunk)
        for number, name in enumerate(names):
            low, high = (
                touch(chunk, "shared", half[chosen], chosen, (2, 1), str(instruction))[0].astype(np.uint32)
                for half in _matrix_places(chunk, at, number, transposed)
            )
            whole = np.zeros(chunk.size, np.uint32)
            whole[chosen] = low | (high << np.uint32(16))
            chunk.write(name, whole, threads)

    return step


def store_matrix(instruction: Instruction, entry: Listing) -> Step:
    """stmatrix: the reverse of ldmatrix."""
    target, source = instruction.operands
    readers = [reader(instruction, register, "b32", entry) for register in elements(source)]
    place, transposed, where = _matrix_access(instruction, target, entry)

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        chunk.require_whole_warps(threads, str(instruction))
        chosen, at = chunk.chosen(threads), place(chunk)
        for number, read in enumerate(readers):
            value = chunk.spread(read(chunk))[chosen]
            for more, half in enumerate(_matrix_places(chunk, at, number, transposed)):
                part = (value >> np.uint32(16 * more)).astype(np.uint16)
                touch(chunk, "shared", half[chosen], chosen, (2, 1), str(instruction), [part])

    return step
