"""Maps of tensors, by which whole boxes of them are copied (TMA): how they are made, and what they say.

Source: NVIDIA, PTX ISA 9.1, sections 5.5.8 (tensor-map) and 9.7.9.28 (tensormap.replace); CUDA Driver API,
cuTensorMapEncodeTiled. What stands where in the 128 bytes of a map is not documented: here each field has a place of
its own, and who makes a map by other means than these gets another one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .accesses import touch
from .chunk import Chunk
from .formats import BASE, BITS, WIDTHS, WINDOWS
from .grammar import unknown
from .listing import Instruction, Listing
from .operands import Step, active, address, reader
from .parameters import Structure

#: Bytes of a map.
SIZE = 128
#: By field: where its first value stands.
_PLACES = {
    "global_address": 0, "rank": 8, "elemtype": 12, "interleave_layout": 16, "swizzle_mode": 20, "fill_mode": 24,
    "box_dim": 28, "global_dim": 48, "element_stride": 68, "global_stride": 88,
}  # fmt: skip
#: Bytes of an element, by the number of its type for tensormap.replace; TF32 and packed types are not copied.
_ELEMENTS = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 4, 9: 8, 10: 2}
#: Units of 16 bytes in a row of each swizzle, by its number; 1 for none.
_UNITS = (1, 2, 4, 8)


@dataclass(frozen=True)
class TensorMap:
    """A map, read.

    Attributes:
        address: of the tensor, from the start of global memory. width: bytes of an element.
        units: of the swizzle. fills: whether what lies outside is NaN, not zero.
        box, shape, steps, strides: along each axis, the innermost first: elements of the box and of the tensor, how
            many elements it goes on from one to the next, and how many bytes apart two neighbours are.
    """

    address: int
    width: int
    units: int
    fills: bool
    box: tuple[int, ...]
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    strides: tuple[int, ...]


def host_map(value: Any, meta: Any) -> Structure:
    """The map that Triton's launcher makes of a descriptor.

    Args:
        value: a `triton.tools.tensor_descriptor.TensorDescriptor`. meta: what its compiler says of the argument.
    """
    rank, width = len(value.shape), value.base.element_size()
    shape = [int(n) for n in reversed(value.shape)]
    strides = [int(n) * width for n in reversed(value.strides[:-1])]
    kind = 11 if getattr(value, "round_f32_to_tf32", False) else int(meta["elem_type"])
    fill = int(getattr(value, "padding", "zero") == "nan")
    padded = [_five(row) for row in (list(reversed(meta["block_size"])), shape, [1] * rank)]
    content = struct.pack("<Q5I", 0, rank - 1, kind, 0, int(meta["swizzle"]), fill)
    content += b"".join(struct.pack("<5I", *row) for row in padded) + struct.pack("<4Q", *_five(strides)[:4])
    return Structure(content.ljust(SIZE, b"\0"), {0: value.base})


def _five(row: Sequence[int]) -> list[int]:
    return [*row, 0, 0, 0, 0, 0][:5]


def read_map(chunk: Chunk, lane: int, at: int, instruction: Instruction) -> TensorMap:
    """The map at a generic address, of a parameter or in memory.

    Raises:
        Violation: the address is outside of every operand. Unsupported: it is of a kind that is not copied.
    """
    if WINDOWS["param"] <= at < BASE:
        raw = chunk.context.parameter_bytes(at - WINDOWS["param"], SIZE)
    else:
        lanes = np.array([lane])
        words = touch(chunk, "global", np.array([at - BASE]), lanes, (8, SIZE // 8), str(instruction))
        raw = b"".join(int(word[0]).to_bytes(8, "little") for word in words)
    base, rank, kind, interleave, swizzle, fill = struct.unpack_from("<Q5I", raw)
    box, shape, steps = (
        struct.unpack_from("<5I", raw, _PLACES[f]) for f in ("box_dim", "global_dim", "element_stride")
    )
    strides = struct.unpack_from("<4Q", raw, _PLACES["global_stride"])
    if rank > 4 or kind not in _ELEMENTS or interleave or swizzle >= len(_UNITS):
        fields = f"rank {rank + 1}, type {kind}, swizzle {swizzle}, layout {interleave}"
        raise unknown(instruction, f"a map of {fields}; or host code has made it without the driver (CuTe DSL does)")
    n, width = rank + 1, _ELEMENTS[kind]
    return TensorMap(
        base - BASE, width, _UNITS[swizzle], bool(fill), box[:n], shape[:n], steps[:n], (width, *strides[:rank])
    )


def change_map(instruction: Instruction, entry: Listing) -> Step:
    """tensormap.replace: one field of a map in shared or global memory; cp_fenceproxy copies one from there to here."""
    if instruction.modifiers[0] == "cp_fenceproxy":
        return _copy_map(instruction, entry)
    name, kind = instruction.modifiers[2], instruction.kind
    place, *numbers, value = instruction.operands
    ordinal = int(str(numbers[0]), 0) if numbers else 0
    space = "shared" if "shared::cta" in instruction.modifiers else "global"
    at, read = address(instruction, place, entry, space), reader(instruction, value, kind, entry)
    start, where, width = _PLACES[name] + ordinal * WIDTHS[kind], active(instruction), WIDTHS[kind]

    def step(chunk: Chunk) -> None:
        lanes = chunk.select_lanes(where(chunk))
        if lanes.size:
            bits = chunk.spread(read(chunk))[lanes].astype(BITS[width])
            touch(chunk, space, at(chunk)[lanes] + start, lanes, (width, 1), str(instruction), [bits])

    return step


def _copy_map(instruction: Instruction, entry: Listing) -> Step:
    """A warp copies a map from shared to global memory, by its first thread."""
    target, source = (
        address(instruction, operand, entry, space)
        for operand, space in zip(instruction.operands, ("global", "shared"), strict=False)
    )
    where, label = active(instruction), str(instruction)

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        chunk.require_whole_warps(threads, label)
        lanes = chunk.select_lanes(threads)[::32]
        if lanes.size:
            shape = 8, SIZE // 8
            words = [
                touch(chunk, "shared", source(chunk)[lanes] + 8 * i, lanes, (8, 1), label)[0] for i in range(shape[1])
            ]
            for i, word in enumerate(words):
                touch(chunk, "global", target(chunk)[lanes] + 8 * i, lanes, (8, 1), label, [word])

    return step
