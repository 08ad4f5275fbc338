"""Steps of the threads of a warp together: shuffles, reductions, and 8 by 8 matrices of halves in shared memory.

Source: NVIDIA, PTX ISA 9.1, sections 9.7.9.6 (shfl.sync), 9.7.13.5 (redux.sync), 9.7.15.5 (ldmatrix, stmatrix).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .accesses import spread_over, touch
from .chunk import Chunk
from .formats import NUMBERS, Lanes
from .listing import Instruction, Listing, Operand
from .operands import Step, active, address, destination, elements, reader
from .space import WARP

_REDUCED: dict[str, Any] = {
    "max": np.maximum, "min": np.minimum, "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip

_EVERY_LANE = 0xFFFFFFFF


def _members(chunk: Chunk, threads: Lanes | None, masks: Lanes, instruction: Instruction) -> Lanes:
    """Which threads of a warp are named, by masks of 32 bits: a row for all of its threads, or one for each of them.

    All that a thread names have to come, and to name the same; so the threads of a warp may be several groups.

    Args:
        chunk, threads: all threads, and those that come; None for all. masks: as each thread has it, or one for all.
        instruction: for messages.
    """
    come = np.ones(chunk.size, bool) if threads is None else threads
    if threads is None and np.ndim(masks) == 0 and masks == _EVERY_LANE and chunk.alive.all():
        return come.reshape(-1, 1, WARP)
    rows, present = chunk.spread(masks).reshape(-1, WARP), come.reshape(-1, WARP)
    low, high = np.where(present, rows, np.uint32(0xFFFFFFFF)).min(1), np.where(present, rows, np.uint32(0)).max(1)
    if (present.any(1) & (low != high)).any():
        groups = rows[:, :, None] >> np.arange(WARP, dtype=np.uint32) & np.uint32(1) == 1
        alike = present[:, None, :] & (rows[:, None, :] == rows[:, :, None])
        part = np.diagonal(groups, axis1=1, axis2=2) & (~groups | alike).all(2)
        chunk.require_each(
            (part | ~present).reshape(-1), f"{instruction}: {{}} does not come with the threads it names"
        )
        return groups
    named = (low[:, None] >> np.arange(WARP, dtype=np.uint32) & np.uint32(1) == 1).reshape(-1)
    # One that comes and is not named has no part in what it waits for.
    chunk.require_whole_warps(come & named, str(instruction), named | come)
    return named.reshape(-1, 1, WARP)


def _of_threads(results: Lanes) -> Lanes:
    """Results for each thread, of those of a row for all threads of a warp or for each."""
    return np.broadcast_to(results, (results.shape[0], WARP)).reshape(-1)


def shuffle(instruction: Instruction, entry: Listing) -> Step:
    """shfl.sync: every thread gets the value of another one of its warp."""
    how, where = instruction.modifiers[1], active(instruction)
    target, *sources = instruction.operands
    name, within = destinations(instruction, target, entry)
    value, by, clamp, members = (reader(instruction, source, "b32", entry) for source in sources)

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        _members(chunk, threads, members(chunk), instruction)
        amount, control = (each.reshape(-1, WARP) if np.ndim(each) else each for each in (by(chunk), clamp(chunk)))
        source, inside = _source_lane(how, np.arange(WARP), amount, control)
        places = chunk.lanes[::WARP, None] + source
        chunk.write(name, chunk.spread(value(chunk))[places.reshape(-1)], threads)
        if within:
            chunk.write(within, np.broadcast_to(inside, places.shape).reshape(-1), threads)

    return step


def _source_lane(how: str, lane: Lanes, by: Lanes, clamp: Lanes) -> tuple[Lanes, Lanes]:
    """The lane whose value a thread gets by `shfl.sync`, and whether that lane is in the thread's segment.

    A thread gets its own value where it is not. The operands are those of the PTX ISA: `by` is b, `clamp` is c.
    """
    amount, control = np.asarray(by).astype(np.int64) & 31, np.asarray(clamp).astype(np.int64)
    segment, limit = (control >> 8) & 31, control & 31
    end = (lane & segment) | (limit & ~segment)
    if how == "up":
        source = lane - amount
        return np.where(source >= end, source, lane), source >= end
    if how == "bfly":
        source = lane ^ amount
    elif how == "down":
        source = lane + amount
    else:
        source = (lane & segment) | (amount & ~segment)
    return np.where(source <= end, source, lane), source <= end


def destinations(instruction: Instruction, target: Operand, entry: Listing) -> tuple[str, str]:
    """The register that an instruction writes, and the predicate in "%r1|%p1"; "" for none."""
    first, _, second = target.partition("|") if isinstance(target, str) else ("", "", "")
    name = first if first == "_" else destination(instruction, first or target, entry)
    return name, destination(instruction, second, entry) if second else ""


def vote(instruction: Instruction, entry: Listing) -> Step:
    """vote.sync: of the threads that are named, which ones, whether all, or whether any have a true predicate."""
    how, where = instruction.modifiers[1], active(instruction)
    target, source, mask_operand = instruction.operands
    name, truth = destination(instruction, target, entry), reader(instruction, source, "pred", entry)
    mask = reader(instruction, mask_operand, "b32", entry)

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        members = _members(chunk, threads, mask(chunk), instruction)
        votes = chunk.spread(truth(chunk)).reshape(-1, 1, WARP)
        ballots, whole = _masks(votes & members), (votes | ~members).all(2)
        results = {"ballot": ballots, "any": ballots != 0, "all": whole, "uni": whole | (ballots == 0)}
        chunk.write(name, _of_threads(results[how]), threads)

    return step


def _masks(truths: Lanes) -> Lanes:
    """A number of 32 bits for each row of 32 truth values."""
    return (truths.astype(np.uint32) << np.arange(WARP, dtype=np.uint32)).sum(-1, dtype=np.uint32)


def match(instruction: Instruction, entry: Listing) -> Step:
    """match.sync: which of the threads that are named have the same value, of any, or if all have."""
    how, where = instruction.modifiers[0], active(instruction)
    target, source, mask_operand = instruction.operands
    name, same = destinations(instruction, target, entry)
    value = reader(instruction, source, instruction.modifiers[2], entry)
    mask = reader(instruction, mask_operand, "b32", entry)

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        members = _members(chunk, threads, mask(chunk), instruction)
        values = chunk.spread(value(chunk)).reshape(-1, WARP)
        masks = _masks((values[:, :, None] == values[:, None, :]) & members)
        if how == "all":
            whole = _masks(members)
            agree: Lanes = (~members | (masks == whole)[:, None, :]).all(2)
            masks = np.where(agree, whole, np.uint32(0))
            if same:
                chunk.write(same, _of_threads(agree), threads)
        chunk.write(name, _of_threads(masks), threads)

    return step


def active_mask(instruction: Instruction, entry: Listing) -> Step:
    """activemask: which threads of the warp come together."""
    name, where = destination(instruction, instruction.operands[0], entry), active(instruction)

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        come = chunk.alive if threads is None else threads
        chunk.write(name, np.repeat(_masks(come.reshape(-1, WARP)), WARP), threads)

    return step


def elect(instruction: Instruction, entry: Listing) -> Step:
    """elect.sync: the first of the threads that are named is the leader, and has a true predicate (9.7.13.15)."""
    name, leads = destinations(instruction, instruction.operands[0], entry)
    mask, where = reader(instruction, instruction.operands[1], "b32", entry), active(instruction)

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        leader = _of_threads(_members(chunk, threads, mask(chunk), instruction).argmax(2)).astype(np.uint32)
        if name != "_":
            chunk.write(name, leader, threads)
        chunk.write(leads, chunk.lanes % WARP == leader, threads)

    return step


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
        values = np.where(members, chunk.spread(value(chunk)).reshape(-1, 1, WARP), neutral)
        chunk.write(name, _of_threads(function.reduce(values, axis=2, dtype=values.dtype)), threads)

    return step


@functools.cache
def _matrix_places(count: int, transposed: bool) -> tuple[Lanes, Lanes]:
    """Of the two halves that every thread has of each matrix: whose address its row has, and how many bytes behind."""
    lane, half = np.arange(WARP), np.arange(2 * count)[:, None]
    row, column = lane // 4, 2 * (lane % 4) + half % 2
    rows, columns = (column, row) if transposed else (row, column)
    return 8 * (half // 2) + rows, 2 * columns


def _touch_matrices(
    chunk: Chunk, at: Lanes, threads: Lanes | None, form: tuple[int, bool, str], values: list[Lanes] | None = None
) -> Lanes:
    """Load or store the halves of matrices, as (halves, threads), at the addresses that threads name."""
    count, transposed, label = form
    chunk.require_whole_warps(threads, label)
    lanes, (rows, offsets) = chunk.select_lanes(threads), _matrix_places(count, transposed)
    places = (at.reshape(-1, WARP).take(rows, 1) + offsets).swapaxes(0, 1).reshape(2 * count, -1)[:, lanes]
    stores = None if values is None else [np.concatenate([chunk.pick(each, lanes) for each in values])]
    loaded = touch(chunk, "shared", places.reshape(-1), chunk.repeat(lanes, 2 * count), (2, 1), label, stores)
    return np.reshape(loaded, (-1, lanes.size))


def _matrix_access(instruction: Instruction, operand: Any, entry: Listing, count: int) -> tuple[Any, Any, Any]:
    """Where matrices are in shared memory; their number, whether they are transposed, and words; who takes part."""
    form = count, "trans" in instruction.modifiers, str(instruction)
    return address(instruction, operand, entry, "shared"), form, active(instruction)


def load_matrix(instruction: Instruction, entry: Listing) -> Step:
    """ldmatrix: two halves of each matrix for every thread."""
    target, source = instruction.operands
    names = [destination(instruction, name, entry) for name in elements(target)]
    place, form, where = _matrix_access(instruction, source, entry, len(names))

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        halves = _touch_matrices(chunk, place(chunk), threads, form).astype(np.uint32)
        for name, low, high in zip(names, halves[::2], halves[1::2], strict=True):
            whole = low | (high << np.uint32(16))
            chunk.write(name, spread_over(chunk, chunk.select_lanes(threads), whole, threads), threads)

    return step


def store_matrix(instruction: Instruction, entry: Listing) -> Step:
    """stmatrix: the reverse of ldmatrix."""
    target, source = instruction.operands
    readers = [reader(instruction, register, "b32", entry) for register in elements(source)]
    place, form, where = _matrix_access(instruction, target, entry, len(readers))

    def step(chunk: Chunk) -> None:
        words = [chunk.spread(read(chunk)) for read in readers]
        halves = [(word >> np.uint32(by)).astype(np.uint16) for word in words for by in (0, 16)]
        _touch_matrices(chunk, place(chunk), where(chunk), form, halves)

    return step
