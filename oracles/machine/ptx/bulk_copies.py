"""cp.async.bulk: copies of whole rows and boxes of tensors between global and shared memory (TMA).

cp.reduce.async.bulk adds rows to what is in global memory, or changes it by them in another way, as atomic operations.

Source: NVIDIA, PTX ISA 9.1, sections 9.7.9.25.4 (cp.async.bulk, cp.reduce.async.bulk) and 9.7.9.27
(cp.async.bulk.tensor), and 5.5.3 (tiled mode): what of a box is outside of the tensor is filled with zeros, or with
NaN, and is not written; its bytes count as copied.

What comes into shared memory is there once its barrier is waited for (`mbarriers.py`); what goes out is read from
shared memory until its group is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...verdicts.violation import Code, Violation
from .accesses import group_work, touch
from .atomics import change_global
from .books import Access
from .chunk import Chunk
from .formats import BITS, WIDTHS, Lanes
from .grammar import unknown
from .listing import Instruction, Listing, Operand
from .mbarriers import deliver, locate, shared_address
from .operands import Reader, Step, active, address, reader
from .tensor_maps import TensorMap, read_map
from .warpgroups import swizzled

_BOX = re.compile(r"\[\s*([^,\s]+)\s*,\s*\{([^}]*)\}\s*\]")


def copy_in_bulk(instruction: Instruction, entry: Listing) -> Step:
    """cp.async.bulk, of a tensor or of bytes, and the groups of those that go out."""
    verb = (*instruction.modifiers, "", "")[2]
    groups = group_work(instruction, lambda chunk: chunk.begun.bulk)
    if groups is not None:
        return groups
    if verb == "prefetch":
        return lambda chunk: None
    if verb == "tensor":
        return _copy_box(instruction, entry)
    return _copy_bytes(instruction, entry)


@dataclass(frozen=True)
class _Block:
    """What one thread copies: bytes of an element; where elements are, in the shared memory of a block and in global
    memory; which of them are inside of the tensor; and what those outside become.
    """

    width: int
    near: Lanes
    far: Lanes
    inside: Lanes
    filler: int = 0

    def bring(self, chunk: Chunk, lane: int, goal: tuple[list[int], int], label: str) -> None:
        """Copy into shared memory, of some blocks; in each a barrier counts the bytes, at one place in all of them."""
        homes, barrier_at = goal
        values = np.full(self.near.size, self.filler, BITS[self.width])
        lanes = np.full(int(self.inside.sum()), lane)
        (loaded,) = touch(chunk, "global", self.far[self.inside], lanes, (self.width, 1), label)
        values[self.inside] = loaded
        for home in homes:
            deliver(chunk, lane, (home, self.near), (self.width, [values]), (barrier_at, label))


def _send_out(chunk: Chunk, blocks: dict[int, _Block], instruction: Instruction) -> None:
    """Copy out of shared memory, for some threads at once: where nobody is elected all of a warp do."""
    parts = [(lane, block, np.flatnonzero(block.inside)) for lane, block in blocks.items()]
    if not parts:
        return
    lanes = np.concatenate([np.full(inside.size, lane) for lane, _, inside in parts])
    near, far = (
        np.concatenate([getattr(block, name)[inside] for _, block, inside in parts]) for name in ("near", "far")
    )
    width, label = parts[0][1].width, str(instruction)
    access = Access(near + chunk.block[lanes] * chunk.context.shared, lanes, width, 1, label)
    (values,) = chunk.shared.begin(access)
    chunk.begun.bulk.begin(access, None)
    if instruction.modifiers[0] == "reduce":
        there = Access(far, chunk.pick(chunk.numbers, lanes), width, 1, label)
        change_global(chunk, instruction, there, values)
    else:
        touch(chunk, "global", far, lanes, (width, 1), label, [values])


def _copy_box(instruction: Instruction, entry: Listing) -> Step:
    comes = "bulk_group" not in instruction.modifiers
    operands = instruction.operands if comes else instruction.operands[::-1]
    match = _BOX.fullmatch(str(operands[1]))
    spreads = "multicast::cluster" in instruction.modifiers
    if match is None or len(instruction.operands) != 2 + comes + spreads:
        raise unknown(instruction, f"the operands {instruction.operands}")
    where, label = active(instruction), str(instruction)
    place = reader(instruction, match[1], "b64", entry)
    coordinates = [reader(instruction, each.strip(), "s32", entry) for each in match[2].split(",")]
    find_goal = _goals(instruction, entry, operands[0], (*operands[2:], None, None)[:2])

    def step(chunk: Chunk) -> None:
        lanes, known, out = chunk.select_lanes(where(chunk)), dict[tuple[int, ...], _Block](), dict[int, _Block]()
        boxes = np.stack([chunk.spread(read(chunk))[lanes].astype(np.int64) for read in (place, *coordinates)], 1)
        for lane, (at, *corner) in zip(lanes.tolist(), boxes.tolist(), strict=True):
            start, goal = find_goal(chunk, lane)
            key = at, start, *corner
            if key not in known:
                known[key] = _block(read_map(chunk, lane, at, instruction), corner, start, instruction)
            if comes:
                known[key].bring(chunk, lane, goal, label)
            else:
                out[lane] = known[key]
        _send_out(chunk, out, instruction)

    return step


def _goals(
    instruction: Instruction, entry: Listing, near: Operand, rest: Sequence[Operand | None]
) -> Callable[[Chunk, int], tuple[int, tuple[list[int], int]]]:
    """A function that gives where in shared memory a thread copies, of which blocks, and where their barriers are.

    Args:
        near: that place. rest: the barrier, and the mask of the blocks of the cluster that get copies; None for none.
    """
    place, label = shared_address(instruction, near, entry), str(instruction)
    barrier = place if rest[0] is None else shared_address(instruction, rest[0], entry)
    mask = None if rest[1] is None else reader(instruction, rest[1], "u16", entry)

    def find(chunk: Chunk, lane: int) -> tuple[int, tuple[list[int], int]]:
        (home, start), (other, gate) = (locate(chunk, lane, int(each(chunk)[lane]), label) for each in (place, barrier))
        if mask is None:
            if other != home or (rest[0] is None and home != chunk.block[lane]):
                raise unknown(instruction, "shared memory of another block than the thread's or the barrier's")
            return start, ([home], gate)
        named, joined = int(chunk.spread(mask(chunk))[lane]), chunk.context.joined
        if named >> joined:
            text = f"{label}: {chunk.name(lane)} names blocks {named:#b} of a cluster of {joined}"
            raise Violation(Code.UNDEFINED, text)
        first = int(chunk.block[lane]) // joined * joined
        return start, ([first + rank for rank in range(joined) if named >> rank & 1], gate)

    return find


def _block(tensor: TensorMap, corner: list[int], start: int, instruction: Instruction) -> _Block:
    """A box of a tensor, the innermost axis first, at a place in the shared memory of a block."""
    if len(corner) != len(tensor.box):
        raise unknown(instruction, f"{len(corner)} coordinates of a tensor of {len(tensor.box)} axes")
    if start % 128:
        raise Violation(Code.MISALIGNED, f"{instruction}: byte {start} of shared memory is no multiple of 128")
    count = int(np.prod(tensor.box))
    numbers, far, inside = np.arange(count), np.full(count, tensor.address, np.int64), np.ones(count, bool)
    near = swizzled(start + numbers * tensor.width, tensor.units)
    for axis, size in enumerate(tensor.box):
        index = corner[axis] + numbers % size * tensor.steps[axis]
        numbers = numbers // size
        inside &= (index >= 0) & (index < tensor.shape[axis])
        far += index * tensor.strides[axis]
    nan = {2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0x7FF8 << 48}.get(tensor.width, 0)
    return _Block(tensor.width, near, far, inside, nan if tensor.fills else 0)


def _copy_bytes(instruction: Instruction, entry: Listing) -> Step:
    comes = "bulk_group" not in instruction.modifiers
    width = WIDTHS[instruction.kind] if instruction.modifiers[0] == "reduce" else 8
    target, source, size, *rest = instruction.operands
    find_goal = _goals(instruction, entry, target if comes else source, (*rest, None, None)[:2])
    far: Reader = address(instruction, source if comes else target, entry, "global")
    amount, where, label = reader(instruction, size, "u32", entry), active(instruction), str(instruction)
    if len(rest) != comes + ("multicast::cluster" in instruction.modifiers):
        raise unknown(instruction, f"the operands {instruction.operands}")

    def step(chunk: Chunk) -> None:
        for lane in chunk.select_lanes(where(chunk)).tolist():
            count, there = (int(chunk.spread(each(chunk))[lane]) for each in (amount, far))
            start, goal = find_goal(chunk, lane)
            if count % 16 or start % 16 or there % 16:
                raise Violation(Code.MISALIGNED, f"{label}: {count} bytes from {there} and {start}, no multiples of 16")
            steps = np.arange(0, count, width)
            block = _Block(width, start + steps, there + steps, np.ones(steps.size, bool))
            if comes:
                block.bring(chunk, lane, goal, label)
            else:
                _send_out(chunk, {lane: block}, instruction)

    return step
