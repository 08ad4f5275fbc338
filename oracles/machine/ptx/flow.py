"""Where threads go: branches, the end, barriers, and the order in which parted threads run."""

from __future__ import annotations

import numpy as np

from ...verdicts.violation import Code, Violation
from .chunk import BARRIERS, Chunk
from .clusters import cluster_barrier
from .formats import Lanes
from .grammar import unknown
from .listing import Instruction, Listing
from .operands import Step, active, reader

#: The scopes of fences that order what threads of several blocks do.
_WIDE = frozenset({"gl", "gpu", "sys"})


def rank_blocks(entry: Listing) -> Lanes:
    """The place of every basic block in the order in which parted threads run, and behind them that of the end.

    A GPU takes parted threads on to the next block that all of their ways lead to. Where blocks run in an order in
    which each stands behind all from which a way leads to it, but for the ways around a loop, the threads that are
    earliest in the order always catch up with the others there. The text has such an order in most cases, not in all:
    compilers put the end of a loop before its beginning.
    """
    following = [_following(entry, number) for number in range(len(entry.blocks))]
    reach = _reach(following)
    begun: set[int] = set()
    ended: list[int] = []

    def in_turn(number: int) -> list[int]:
        """What follows a block: first what leaves its loop, which has to run last; else the last of the text first."""
        return sorted(following[number], key=lambda each: (reach[each] >> number & 1, -each))

    for root in range(len(entry.blocks)):
        if root in begun:
            continue
        begun.add(root)
        path = [(root, iter(in_turn(root)))]
        while path:
            _, others = path[-1]
            other = next((each for each in others if each not in begun), None)
            if other is None:
                ended.append(path.pop()[0])
            else:
                begun.add(other)
                path.append((other, iter(in_turn(other))))
    ranks = np.empty(len(entry.blocks) + 1, np.int64)
    ranks[[*reversed(ended), len(entry.blocks)]] = np.arange(len(entry.blocks) + 1)
    return ranks


def _following(entry: Listing, number: int) -> list[int]:
    """The blocks to which threads may go from a block."""
    last = entry.blocks[number][-1]
    beside = [number + 1] if number + 1 < len(entry.blocks) else []
    if last.name == "bra":
        target = entry.labels[str(last.operands[0])]
        jump = [target] if target < len(entry.blocks) else []
        return [*jump, *(beside if last.predicate else [])]
    return beside if last.predicate or last.name not in ("ret", "exit") else []


def _reach(following: list[list[int]]) -> list[int]:
    """Of each block those to which some way leads from it, as the bits of a number."""
    reach = [0] * len(following)
    settled = False
    while not settled:  # Ways mostly lead down the text, so few rounds from below see them all.
        settled = True
        for number in reversed(range(len(following))):
            blocks = reach[number]
            for each in following[number]:
                blocks |= reach[each] | 1 << each
            settled &= blocks == reach[number]
            reach[number] = blocks
    return reach


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
    """membar and fence: memory is in one order here anyway; which blocks one of them orders `BlockOrder` says."""
    words, where = {*instruction.modifiers}, active(instruction)
    if words.isdisjoint((*_WIDE, "cluster")) or "mbarrier_init" in words:
        return lambda chunk: None

    def step(chunk: Chunk) -> None:
        lanes = chunk.select_lanes(where(chunk))
        chunk.shared.pass_fence(lanes)
        if not words.isdisjoint(_WIDE):
            chunk.context.memory.pass_fence(chunk.numbers[lanes])

    return step


def barrier(instruction: Instruction, entry: Listing) -> Step:
    """bar.sync: threads of a block wait for each other, all or so many of them, at one of 16 barriers; bar.arrive: they
    are counted there and go on; bar.warp.sync: those of a warp, which run together.
    """
    if "cluster" in instruction.modifiers:
        return cluster_barrier(instruction, entry)
    where, label = active(instruction), str(instruction)
    if "warp" in instruction.modifiers:

        def meet(chunk: Chunk) -> None:
            threads = where(chunk)
            chunk.require_whole_warps(threads, label)
            chunk.pass_warp_barrier(threads)

        return meet
    arrives = "arrive" in instruction.modifiers
    first = str(*instruction.operands[:1])
    if not arrives + 1 <= len(instruction.operands) <= 2 or (first.isdecimal() and int(first) >= BARRIERS):
        raise unknown(instruction, f"the operands {instruction.operands}")
    number, count = (reader(instruction, each, "u32", entry) for each in (*instruction.operands, "0")[:2])

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        chunk.require_whole_warps(threads, label)
        numbers, counts = (chunk.spread(read(chunk)).astype(np.int64) for read in (number, count))
        lanes = chunk.select_lanes(threads)
        if (numbers[lanes] >= BARRIERS).any():
            raise Violation(Code.UNDEFINED, f"{label}: {chunk.name(int(lanes[0]))} names none of {BARRIERS} barriers")
        if not arrives:
            codes = BARRIERS * counts + numbers + 1
            chunk.waiting = np.where(True if threads is None else threads, codes, np.zeros(chunk.size, np.int64))
            return
        for key in zip(chunk.block[lanes].tolist(), numbers[lanes].tolist(), strict=True):
            chunk.begun.arrivals[key] = chunk.begun.arrivals.get(key, 0) + 1

    return step
