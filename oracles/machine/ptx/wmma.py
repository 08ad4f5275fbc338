"""wmma: matrices that a warp loads, multiplies and stores as fragments, whose layout is nobody's but the machine's.

Source: NVIDIA, PTX ISA 9.1, section 9.7.15.4. Which element stands in which register of which thread is left open
there, so it is our own here: in order of rows, the same number for each thread. Where an instruction has twice as many
registers as the elements need, as for factors of float16, both halves hold the same. Sums are those of mma.sync.
"""

from __future__ import annotations

import re

import numpy as np

from .accesses import touch
from .chunk import Chunk
from .formats import BITS, NUMBERS, WIDTHS, WINDOWS, Lanes, to_float16
from .grammar import unknown
from .listing import Instruction, Listing, Operand
from .operands import Reader, Step, active, address, destination, elements, reader
from .space import WARP
from .tensor_cores import ELEMENT_WIDTHS, accumulate, read_elements

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_SUMS = ("f16", "f32", "s32")


def fragments(instruction: Instruction, entry: Listing) -> Step:
    """wmma.load, wmma.store and wmma.mma."""
    make = {"load": _load_fragment, "store": _store_fragment, "mma": _multiply_fragments}[instruction.modifiers[0]]
    return make(instruction, entry)


def _extents_of_shape(instruction: Instruction, part: str) -> tuple[int, int]:
    """Rows and columns of a matrix of the instruction's shape."""
    match = next(shape for name in instruction.modifiers if (shape := _SHAPE.fullmatch(name)))
    m, n, k = map(int, match.groups())
    return {"a": (m, k), "b": (k, n)}.get(part, (m, n))


def _places_of_matrix(
    instruction: Instruction, entry: Listing, memory: Operand, stride: Operand
) -> tuple[str, Reader, Reader]:
    """The space of a matrix in memory, and readers of its address and of the elements from one row to the next."""
    space = next((name.partition(":")[0] for name in instruction.modifiers if name[:6] in ("global", "shared")), "")
    return space, address(instruction, memory, entry, space or "generic"), reader(instruction, stride, "u32", entry)


def _addresses_of_elements(
    chunk: Chunk, lanes: Lanes, extents: tuple[int, int], by_rows: bool, width: int, places: tuple[str, Reader, Reader]
) -> tuple[str, list[Lanes]]:  # fmt: skip
    """The space, and of each element of a thread in turn the addresses in it."""
    space, where, stride = places
    base, step = where(chunk)[lanes].astype(np.int64), chunk.spread(stride(chunk))[lanes].astype(np.int64)
    if not space:
        space = "shared" if base.size and WINDOWS["shared"] <= base[0] < WINDOWS["local"] else "global"
        base = base - WINDOWS[space]
    rows, columns = extents
    count = rows * columns // WARP
    numbers = (lanes % WARP)[:, None] * count + np.arange(count)
    row, column = numbers // columns, numbers % columns
    offsets = (row * step[:, None] + column if by_rows else column * step[:, None] + row) * width
    return space, [base + offsets[:, i] for i in range(count)]


def _width_of_kind(kind: str) -> int:
    return ELEMENT_WIDTHS.get(kind) or WIDTHS[kind]


def _load_fragment(instruction: Instruction, entry: Listing) -> Step:
    target, memory, *rest = instruction.operands
    part, kind, by_rows = instruction.modifiers[1], instruction.kind, "row" in instruction.modifiers
    extents, width = _extents_of_shape(instruction, part), _width_of_kind(instruction.kind)
    places = _places_of_matrix(instruction, entry, memory, rest[0] if rest else str(extents[by_rows]))
    names, where, label = (
        [destination(instruction, n, entry) for n in elements(target)],
        active(instruction),
        str(instruction),
    )
    pack = 4 // width
    if len(names) % max(extents[0] * extents[1] // WARP // pack, 1):
        raise unknown(instruction, f"{len(names)} registers of {kind}")

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        chunk.require_whole_warps(threads, label)
        lanes = chunk.select_lanes(threads)
        space, addresses = _addresses_of_elements(chunk, lanes, extents, by_rows, width, places)
        loaded = [touch(chunk, space, at, lanes, (width, 1), label)[0].astype(np.uint32) for at in addresses]
        registers = [_pack_register(loaded[i : i + pack], width) for i in range(0, len(loaded), pack)]
        for number, name in enumerate(names):
            whole = np.zeros(chunk.size, np.uint32)
            whole[lanes] = registers[number % len(registers)]
            chunk.write(name, whole.view(np.float32) if kind == "f32" else whole, threads)

    return step


def _pack_register(parts: list[Lanes], width: int) -> Lanes:
    register = parts[0]
    for i, part in enumerate(parts[1:], 1):
        register = register | (part << np.uint32(8 * width * i))
    return register


def _store_fragment(instruction: Instruction, entry: Listing) -> Step:
    memory, source, *rest = instruction.operands
    kind, by_rows, extents = instruction.kind, "row" in instruction.modifiers, _extents_of_shape(instruction, "d")
    places = _places_of_matrix(instruction, entry, memory, rest[0] if rest else str(extents[by_rows]))
    readers = [reader(instruction, each, "b32", entry) for each in elements(source)]
    width, where, label = WIDTHS[kind], active(instruction), str(instruction)

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        chunk.require_whole_warps(threads, label)
        lanes = chunk.select_lanes(threads)
        space, addresses = _addresses_of_elements(chunk, lanes, extents, by_rows, width, places)
        registers = [chunk.spread(read(chunk))[lanes] for read in readers]
        parts = [(each >> np.uint32(by)).astype(BITS[width]) for each in registers for by in range(0, 32, 8 * width)]
        for at, bits in zip(addresses, parts, strict=False):
            touch(chunk, space, at, lanes, (width, 1), label, [bits])

    return step


def _multiply_fragments(instruction: Instruction, entry: Listing) -> Step:
    words = [each for each in instruction.modifiers if each in (*ELEMENT_WIDTHS, *_SUMS)]
    of_sum, of_start = words[0], words[-1]
    factors = words[1:3] if len(words) == 4 else ["f16", "f16"]
    target, *sources = instruction.operands
    names = [destination(instruction, name, entry) for name in elements(target)]
    a, b, c = ([reader(instruction, each, "b32", entry) for each in elements(source)] for source in sources)
    where, label, saturates = active(instruction), str(instruction), "satfinite" in instruction.modifiers
    parts = [_extents_of_shape(instruction, part) for part in "abc"]

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        chunk.require_whole_warps(threads, label)
        left, right, start = (
            _matrix_of_registers(chunk, readers, _width_of_kind(kind), extents)
            for readers, kind, extents in zip((a, b, c), (*factors, of_start), parts, strict=True)
        )
        first, second = read_elements(factors[0], left), read_elements(factors[1], right)
        begin = start.view(NUMBERS[of_start])
        whole = begin if of_start == "s32" else begin.astype(np.float32)
        sums = accumulate(first, second, whole, saturates=saturates)
        bits = to_float16(sums).view(np.uint16) if of_sum == "f16" else sums.view(np.uint32)
        count = bits[0].size // WARP
        lanes = bits.reshape(-1, WARP, count).astype(np.uint32)
        pack = 4 // WIDTHS[of_sum]
        for number, name in enumerate(names):
            own = [lanes[:, :, number * pack + i].reshape(-1) for i in range(pack)]
            register = _pack_register(own, WIDTHS[of_sum])
            chunk.write(name, register.view(np.float32) if of_sum == "f32" else register, threads)

    return step


def _matrix_of_registers(chunk: Chunk, readers: list[Reader], width: int, extents: tuple[int, int]) -> Lanes:
    """The bits of a matrix of each warp, (warps, rows, columns), of registers."""
    count, pack = extents[0] * extents[1] // WARP, 4 // width
    registers = [chunk.spread(read(chunk)).astype(np.uint32, copy=False) for read in readers[: count // pack]]
    parts = [(each >> np.uint32(8 * width * i)).astype(BITS[width]) for each in registers for i in range(pack)]
    return np.ascontiguousarray(np.stack(parts, -1).reshape(-1, *extents))
