"""Where threads go: branches, the end, barriers, and the order in which parted threads run."""

from __future__ import annotations

import numpy as np

from .chunk import BARRIERS, Chunk
from .formats import Lanes
from .grammar import unknown
from .listing import Instruction, Listing
from .operands import Step, active

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
    reach = [_reach(following, number) for number in range(len(entry.blocks))]
    begun: set[int] = set()
    ended: list[int] = []

    def in_turn(number: int) -> list[int]:
        """What follows a block: first what leaves its loop, which has to run last; else the last of the text first."""
        return sorted(following[number], key=lambda each: (number in reach[each], -each))

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


def _reach(following: list[list[int]], number: int) -> set[int]:
    """The blocks to which some way leads from a block."""
    reachable: set[int] = set()
    waiting = list(following[number])
    while waiting:
        each = waiting.pop()
        if each not in reachable:
            reachable.add(each)
            waiting += following[each]
    return reachable


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
    if _WIDE.isdisjoint(instruction.modifiers):
        return lambda chunk: None
    where = active(instruction)

    def step(chunk: Chunk) -> None:
        chunk.context.memory.order.pass_fence(chunk.numbers[chunk.select_lanes(where(chunk))] // chunk.context.threads)

    return step


def barrier(instruction: Instruction, entry: Listing) -> Step:
    """bar.sync: threads of a block wait for each other, all or so many of them, at one of 16 barriers; bar.arrive: they
    are counted there and go on; bar.warp.sync: those of a warp, which run together.
    """
    where, label = active(instruction), str(instruction)
    if "warp" in instruction.modifiers:

        def meet(chunk: Chunk) -> None:
            threads = where(chunk)
            chunk.require_whole_warps(threads, label)
            chunk.pass_warp_barrier(threads)

        return meet
    numbers = [int(each, 0) for each in instruction.operands if isinstance(each, str) and each.isdecimal()]
    arrives = "arrive" in instruction.modifiers
    if len(numbers) != len(instruction.operands) or not arrives + 1 <= len(numbers) <= 2 or numbers[0] >= BARRIERS:
        raise unknown(instruction, f"the operands {instruction.operands}")
    count = numbers[1] if len(numbers) > 1 else 0

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        chunk.require_whole_warps(threads, label)
        if not arrives:
            code = BARRIERS * count + numbers[0] + 1
            chunk.waiting = np.where(True if threads is None else threads, code, np.zeros(chunk.size, np.int64))
            return
        for block in chunk.block[chunk.select_lanes(threads)].tolist():
            key = block, numbers[0]
            chunk.begun.arrivals[key] = chunk.begun.arrivals.get(key, 0) + 1

    return step
