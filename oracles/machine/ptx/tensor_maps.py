"""Maps of tensors, by which whole boxes of them are copied (TMA): how they are made, and what they say.

Source: NVIDIA, PTX ISA 9.1, sections 5.5.8 (tensor-map) and 9.7.9.28 (tensormap.replace); CUDA Driver API,
cuTensorMapEncodeTiled. What stands where in the 128 bytes of a map is not documented, and host code of CuTe DSL writes
them by itself. So its maps were read here, of tensors that differ in one thing (nvidia-cutlass-dsl 4.8.1):

    bits        what it is                          what was varied
    0-63        the address                         the tensor
    64-67       2                                   nothing changes it
    68-70       the number of axes, less 1          tensors of 1 to 5 axes
    71-74       type, as PTX numbers it             int8 to int64, float16, bfloat16, float32, float64
    77-79       swizzle                             none, 32, 64 and 128 bytes
    80          numbers are rounded to TF32         the type within of float32
    81-83       2: how much the L2 cache fetches    nothing; so it is taken for this
    85          a tensor of 2^17 bytes or more      510 to 513 rows of 256 bytes
    96+32k      stride k, in units of 16 bytes      strides of 256, 512, 2560 bytes
    224+4k      bits 36 to 39 of stride k           strides of 2^36 + 16 to 2^39 + 128 bytes
    256+32k     elements of axis k, less 1          3 to 2^31 - 1
    440+8k      elements of the box, less 1         1 to 256
    512-1023    what stood there before

Its maps have no other bits. For what is never in them, the layout, the steps and the filling, free bits are taken: the
maps that are made here alone have them. A map with any other bit is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .accesses import touch
from .chunk import Chunk
from .formats import BASE, WINDOWS, Lanes
from .grammar import unknown
from .listing import Instruction, Listing
from .operands import Step, active, address, reader
from .parameters import Structure

#: Bytes of a map, and those of them that say anything.
SIZE, _SAID = 128, 64


class Field(NamedTuple):
    """Where a field of a map is: its first bit, how many bits it has, that of the next ordinal; and what its number is
    less than its value, in which unit.
    """

    first: int
    bits: int
    apart: int = 0
    less: int = 0
    unit: int = 1


_FIELDS = {
    "global_address": Field(0, 64), "mark": Field(64, 4), "rank": Field(68, 3), "elemtype": Field(71, 4),
    "interleave_layout": Field(75, 2), "swizzle_mode": Field(77, 3), "fetch": Field(81, 3),
    "large": Field(85, 1),
    "global_stride": Field(96, 32, 32, unit=16), "higher_stride": Field(224, 4, 4), "global_dim": Field(256, 32, 32, 1),
    "element_stride": Field(416, 3, 3, 1), "box_dim": Field(440, 8, 8, 1), "fill_mode": Field(480, 1),
}  # fmt: skip
#: What the first of these is.
_MARK = 2
#: Fields that have an ordinal; strides have one less.
_BY_AXIS = ("global_dim", "element_stride", "box_dim")
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
    kind = 11 if getattr(value, "round_f32_to_tf32", False) else int(meta["elem_type"])
    fill = int(getattr(value, "padding", "zero") == "nan")
    whole = 0
    for name, number in (("mark", _MARK), ("rank", rank - 1), ("elemtype", kind), ("fill_mode", fill)):
        whole = put_field(whole, name, 0, number)
    whole = put_field(whole, "swizzle_mode", 0, int(meta["swizzle"]))
    sizes = [int(n) for n in reversed(value.shape)]
    for name, row in zip(_BY_AXIS, (sizes, [1] * rank, reversed(meta["block_size"])), strict=True):
        for axis, number in enumerate(row):
            whole = put_field(whole, name, axis, int(number))
    for axis, stride in enumerate(reversed(value.strides[:-1])):
        whole = put_field(whole, "global_stride", axis, int(stride) * width)
    return Structure(whole.to_bytes(SIZE, "little"), {0: value.base})


def field(whole: int, name: str, ordinal: int = 0) -> int:
    """A field of a map, whose bytes are a number."""
    own = _FIELDS[name]
    number = whole >> own.first + own.apart * ordinal & (1 << own.bits) - 1
    if name == "global_stride":
        number += field(whole, "higher_stride", ordinal) << own.bits
    return (number + own.less) * own.unit


def put_field(whole: int, name: str, ordinal: int, value: int) -> int:
    """A map with another value of a field."""
    own = _FIELDS[name]
    place, most = own.first + own.apart * ordinal, (1 << own.bits) - 1
    number = value // own.unit - own.less
    if name == "global_stride":
        whole = put_field(whole, "higher_stride", ordinal, number >> own.bits)
    return whole & ~(most << place) | (number & most) << place


def _bits_of(rank: int) -> Iterable[tuple[str, int]]:
    """The fields of a map of so many axes, with their ordinals."""
    yield from ((name, 0) for name, own in _FIELDS.items() if not own.apart)
    yield from ((name, axis) for name in _BY_AXIS for axis in range(rank))
    yield from ((name, axis) for name in ("global_stride", "higher_stride") for axis in range(rank - 1))


def read_map(chunk: Chunk, lane: int, at: int, instruction: Instruction) -> TensorMap:
    """The map at a generic address, of a parameter or in memory.

    Raises:
        Violation: the address is outside of every operand. Unsupported: it is of a kind that is not copied.
    """
    if WINDOWS["param"] <= at < BASE:
        whole = int.from_bytes(chunk.context.parameter_bytes(at - WINDOWS["param"], SIZE)[:_SAID], "little")
    else:
        (whole,) = _load_maps(chunk, "global", np.array([at - BASE]), np.array([lane]), str(instruction))
    rank = field(whole, "rank") + 1
    kind, swizzle, layout = (field(whole, name) for name in ("elemtype", "swizzle_mode", "interleave_layout"))
    rest = whole
    for name, ordinal in _bits_of(rank):
        own = _FIELDS[name]
        rest &= ~(((1 << own.bits) - 1) << own.first + own.apart * ordinal)
    if field(whole, "mark") != _MARK or rest or rank > 5:
        bits = [each for each in range(8 * _SAID) if rest >> each & 1]
        raise unknown(instruction, f"a map of {rank} axes with the mark {field(whole, 'mark')} and the bits {bits}")
    if kind not in _ELEMENTS or layout or swizzle >= len(_UNITS):
        raise unknown(instruction, f"a map of type {kind}, swizzle {swizzle}, layout {layout}")
    shape, steps, box = (tuple(field(whole, name, axis) for axis in range(rank)) for name in _BY_AXIS)
    strides = [field(whole, "global_stride", axis) for axis in range(rank - 1)]
    width, fills = _ELEMENTS[kind], bool(field(whole, "fill_mode"))
    address = field(whole, "global_address") - BASE
    return TensorMap(address, width, _UNITS[swizzle], fills, box, shape, steps, (width, *strides))


def _load_maps(chunk: Chunk, space: str, at: Lanes, lanes: Lanes, label: str) -> list[int]:
    """The maps at addresses of threads, as numbers."""
    words = touch(chunk, space, at, lanes, (8, _SAID // 8), label)
    return [int.from_bytes(row.tobytes(), "little") for row in np.stack(words, 1)]


def change_map(instruction: Instruction, entry: Listing) -> Step:
    """tensormap.replace: one field of a map in shared or global memory; cp_fenceproxy copies one from there to here."""
    if instruction.modifiers[0] == "cp_fenceproxy":
        return _copy_map(instruction, entry)
    name, kind = instruction.modifiers[2], instruction.kind
    place, *numbers, value = instruction.operands
    ordinal = int(str(numbers[0]), 0) if numbers else 0
    space = "shared" if "shared::cta" in instruction.modifiers else "global"
    at, read = address(instruction, place, entry, space), reader(instruction, value, kind, entry)
    where, label = active(instruction), str(instruction)

    def step(chunk: Chunk) -> None:
        lanes = chunk.select_lanes(where(chunk))
        if lanes.size:
            places, values = at(chunk)[lanes], chunk.spread(read(chunk))[lanes].tolist()
            maps = _load_maps(chunk, space, places, lanes, label)
            changed = [put_field(each, name, ordinal, value) for each, value in zip(maps, values, strict=True)]
            rows = np.array([np.frombuffer(each.to_bytes(_SAID, "little"), np.uint64) for each in changed])
            touch(chunk, space, places, lanes, (8, _SAID // 8), label, [*rows.T])

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
