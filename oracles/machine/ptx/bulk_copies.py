"""cp.async.bulk: copies of whole rows and boxes of tensors between global and shared memory (TMA).

Source: NVIDIA, PTX ISA 9.1, sections 9.7.9.25.4 (cp.async.bulk) and 9.7.9.27 (cp.async.bulk.tensor), and 5.5.3 (tiled
mode): what of a box is outside of the tensor is filled with zeros, or with NaN, and is not written; its bytes count as
copied.

What comes into shared memory is there once its barrier is waited for (`mbarriers.py`); what goes out is read from
shared memory until its group is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ...verdicts.violation import Code, Violation
from .accesses import group_work, touch
from .books import Access
from .chunk import Chunk
from .formats import BITS, Lanes
from .grammar import unknown
from .listing import Instruction, Listing
from .mbarriers import find_barrier, shared_address
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
    """What one thread copies: bytes of an element; where elements are, in the shared memory of all blocks and in
    global memory; which of them are inside of the tensor; and what those outside become.
    """

    width: int
    near: Lanes
    far: Lanes
    inside: Lanes
    filler: int = 0

    def bring(self, chunk: Chunk, lane: int, barrier_at: int, label: str) -> None:
        """Copy into shared memory; a barrier counts the bytes."""
        barrier = find_barrier(chunk, lane, barrier_at, label)
        values = np.full(self.near.size, self.filler, BITS[self.width])
        lanes = np.full(int(self.inside.sum()), lane)
        (loaded,) = touch(chunk, "global", self.far[self.inside], lanes, (self.width, 1), label)
        values[self.inside] = loaded
        access = Access(self.near, np.full(self.near.size, lane), self.width, 1, label)
        chunk.shared.begin(access, [values])
        barrier.copies.append((access, [values], self.near.size * self.width))
        chunk.begun.tests = 0

    def take(self, chunk: Chunk, lane: int, label: str) -> None:
        """Copy out of shared memory."""
        access = Access(self.near[self.inside], np.full(int(self.inside.sum()), lane), self.width, 1, label)
        (values,) = chunk.shared.begin(access)
        chunk.begun.bulk.begin(access, None)
        touch(chunk, "global", self.far[self.inside], access.threads, (self.width, 1), label, [values])


def _copy_box(instruction: Instruction, entry: Listing) -> Step:
    comes = "bulk_group" not in instruction.modifiers
    operands = instruction.operands if comes else instruction.operands[::-1]
    match = _BOX.fullmatch(str(operands[1]))
    if match is None or len(instruction.operands) != (3 if comes else 2):
        raise unknown(instruction, f"the operands {instruction.operands}")
    near, where, label = shared_address(instruction, operands[0], entry), active(instruction), str(instruction)
    place = reader(instruction, match[1], "b64", entry)
    coordinates = [reader(instruction, each.strip(), "s32", entry) for each in match[2].split(",")]
    barrier = shared_address(instruction, operands[2], entry) if comes else None

    def step(chunk: Chunk) -> None:
        for lane in chunk.select_lanes(where(chunk)).tolist():
            tensor = read_map(chunk, lane, int(chunk.spread(place(chunk))[lane]), instruction)
            corner = [int(chunk.spread(read(chunk))[lane]) for read in coordinates]
            if len(corner) != len(tensor.box):
                raise unknown(instruction, f"{len(corner)} coordinates of a tensor of {len(tensor.box)} axes")
            start = int(near(chunk)[lane])
            if start % 128:
                raise Violation(Code.MISALIGNED, f"{label}: byte {start} of shared memory is no multiple of 128")
            block = _block(tensor, corner, start, int(chunk.block[lane]) * chunk.context.shared)
            if barrier is not None:
                block.bring(chunk, lane, int(barrier(chunk)[lane]), label)
            else:
                block.take(chunk, lane, label)

    return step


def _block(tensor: TensorMap, corner: list[int], start: int, base: int) -> _Block:
    """A box of a tensor, the innermost axis first, at a place in the shared memory of a block that begins at `base`."""
    count = int(np.prod(tensor.box))
    numbers, far, inside = np.arange(count), np.full(count, tensor.address, np.int64), np.ones(count, bool)
    near = base + swizzled(start + numbers * tensor.width, tensor.units)
    for axis, size in enumerate(tensor.box):
        index = corner[axis] + numbers % size * tensor.steps[axis]
        numbers = numbers // size
        inside &= (index >= 0) & (index < tensor.shape[axis])
        far += index * tensor.strides[axis]
    nan = {2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0x7FF8 << 48}.get(tensor.width, 0)
    return _Block(tensor.width, near, far, inside, nan if tensor.fills else 0)


def _copy_bytes(instruction: Instruction, entry: Listing) -> Step:
    comes = "bulk_group" not in instruction.modifiers
    target, source, size, *rest = instruction.operands
    near = shared_address(instruction, target if comes else source, entry)
    far: Reader = address(instruction, source if comes else target, entry, "global")
    amount, where, label = reader(instruction, size, "u32", entry), active(instruction), str(instruction)
    if len(rest) != int(comes):
        raise unknown(instruction, f"the operands {instruction.operands}")
    barrier = shared_address(instruction, rest[0], entry) if comes else None

    def step(chunk: Chunk) -> None:
        for lane in chunk.select_lanes(where(chunk)).tolist():
            count, start, there = (int(chunk.spread(each(chunk))[lane]) for each in (amount, near, far))
            if count % 16 or start % 16 or there % 16:
                raise Violation(Code.MISALIGNED, f"{label}: {count} bytes from {there} and {start}, no multiples of 16")
            steps = np.arange(0, count, 8)
            base = int(chunk.block[lane]) * chunk.context.shared
            block = _Block(8, base + start + steps, there + steps, np.ones(steps.size, bool))
            if barrier is not None:
                block.bring(chunk, lane, int(barrier(chunk)[lane]), label)
            else:
                block.take(chunk, lane, label)

    return step
