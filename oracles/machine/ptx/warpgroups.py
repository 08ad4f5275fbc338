"""wgmma: products of matrices that the four warps of a group begin together and wait for.

Source: NVIDIA, PTX ISA 9.1, sections 9.7.15.5 (descriptors and layouts in shared memory) and 9.7.15.7 (instructions).
A descriptor has the address of a matrix, two distances and a swizzle, all but that in units of 16 bytes. In such units
lie, with T elements in each (NVIDIA, CUTLASS, cute/atom/mma_traits_sm90_gmma.hpp, "Canonical layouts"):

- where rows of K lie together (K-major): ((8, m), 2) at ((1, stride), leading) without a swizzle, and of a swizzle with
  rows of W units, 2, 4 or 8, at ((W, stride), 1);
- where K is across them (transposed): ((1, m), (8, k)) at ((-, stride), (1, leading)), and of a swizzle
  ((W, m), (8, k)) at ((1, leading), (W, stride)).

A swizzle has the unit's number within 128 bytes, bits 4 to 6 of an address, in exclusive or with as many of bits 7
to 9.

The sums are computed at the instruction, and their registers written there: that somebody looks at them before the wait
is not seen. That shared memory is still read until the wait is (`ongoing.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from ...verdicts.violation import Code, Violation
from .accesses import group_work
from .chunk import Chunk
from .formats import NUMBERS, Lanes
from .grammar import unknown
from .listing import Instruction, Listing, Operand
from .operands import Reader, Step, active, destination, elements, reader
from .space import WARP, Access
from .tensor_cores import ELEMENT_WIDTHS, KEPT_DIGITS, accumulate, read_elements, read_matrix, read_sums, sum_registers

#: Threads of a group, and rows of its product.
GROUP, _ROWS = 128, 64
_SHAPE = re.compile(r"m64n(\d+)k(\d+)")
#: Units of 16 bytes in a row of each swizzle, by the descriptor's two highest bits.
_UNITS = (1, 8, 4, 2)
#: Bits that an H100 keeps of sums of 8-bit floats (docs/h100.md).
_KEPT_OF_LOW_BITS = 13


def multiply_groups(instruction: Instruction, entry: Listing) -> Step:
    """wgmma: fence, mma_async, commit_group and wait_group."""
    verb, where, label = instruction.modifiers[0], active(instruction), str(instruction)
    if verb == "fence":  # orders registers, which are in order here
        return lambda chunk: None
    groups = group_work(instruction, lambda chunk: chunk.begun.products)
    if groups is not None:
        return groups
    product = _read_product(instruction, entry)

    def step(chunk: Chunk) -> None:
        lanes = chunk.select_lanes(where(chunk))
        if lanes.size:
            _require_groups(chunk, lanes, label)
            product.compute(chunk, lanes)

    return step


def _require_groups(chunk: Chunk, lanes: Lanes, label: str) -> None:
    """Require that all threads of a group come to an instruction together."""
    whole = lanes.size % GROUP == 0 and bool((chunk.within[lanes].reshape(-1, GROUP) % GROUP == np.arange(GROUP)).all())
    if not whole:
        thread = f"thread {int(chunk.within[lanes[0]])} of block {int(chunk.blocks[chunk.block[lanes[0]]])}"
        raise Violation(Code.DIVERGENT, f"{label}: {thread} does not come with all four warps of its group")


@dataclass(frozen=True)
class _GroupProduct:
    """A wgmma.mma_async.

    Attributes:
        sums: the registers of D. kinds: types of an element of A, of B and of D. depth, columns: of the product.
        a: a descriptor, or registers of A. b: a descriptor. adds: whether D is added to; None for always.
        signs: of A and B. transposed: whether A and B lie so. saturates: of integers. instruction: for messages.
    """

    sums: list[str]
    kinds: tuple[str, str, str]
    depth: int
    columns: int
    a: list[Reader]
    b: Reader
    adds: Reader
    signs: tuple[float, float]
    transposed: tuple[bool, bool]
    saturates: bool
    instruction: Instruction

    def compute(self, chunk: Chunk, lanes: Lanes) -> None:
        """Multiply for the groups of some threads."""
        warps = lanes.size // WARP
        of_a, of_b, of_d = self.kinds
        if len(self.a) == 1:
            a = self._matrix(chunk, lanes, self.a[0], of_a, _ROWS, self.transposed[0])
            a = a.reshape(warps, _ROWS // 4, self.depth)
        else:
            registers = [chunk.spread(read(chunk))[lanes].reshape(warps, WARP) for read in self.a]
            a = read_matrix("a", of_a, (_ROWS // 4, self.depth), registers)
        b = self._matrix(chunk, lanes, self.b, of_b, self.columns, self.transposed[1]).swapaxes(1, 2)
        adds = chunk.spread(self.adds(chunk))[lanes].reshape(warps, WARP)[:, :1]
        # Where nothing is added to, the registers may hold anything.
        bits = [np.zeros((warps, WARP), np.uint32)] * len(self.sums)
        if adds.any():
            bits = [np.where(adds, _bits(chunk, name, lanes).reshape(warps, WARP), zeros)
                    for name, zeros in zip(self.sums, bits, strict=True)]  # fmt: skip
        low_bits = of_a in ("e4m3", "e5m2")
        result = accumulate(
            a * self.signs[0], (b * self.signs[1]).repeat(4, 0), read_sums(bits, _ROWS // 4, NUMBERS[of_d]),
            saturates=self.saturates, digits=_KEPT_OF_LOW_BITS if low_bits else KEPT_DIGITS,
        )  # fmt: skip
        threads = None if lanes.size == chunk.size else np.zeros(chunk.size, bool)
        if threads is not None:
            threads[lanes] = True
        for name, register in zip(self.sums, sum_registers(result), strict=True):
            whole = register if threads is None else np.zeros(chunk.size, register.dtype)
            if threads is not None:
                whole[lanes] = register
            chunk.write(name, whole, threads)

    def _matrix(self, chunk: Chunk, lanes: Lanes, read: Reader, kind: str, rows: int, transposed: bool) -> Lanes:
        """A factor in shared memory, as (groups, rows, depth); reading it goes on from here."""
        descriptors = chunk.spread(read(chunk))[lanes].reshape(-1, GROUP)
        if (descriptors != descriptors[:, :1]).any():
            raise unknown(self.instruction, "descriptors that threads of a group do not share")
        first, width = lanes[::GROUP], ELEMENT_WIDTHS[kind]
        places = np.empty((first.size, rows, self.depth), np.int64)
        for form in np.unique(descriptors[:, 0] >> np.uint64(16)):
            choice = descriptors[:, 0] >> np.uint64(16) == form
            start = ((descriptors[choice, 0] & np.uint64(0x3FFF)) << np.uint64(4)).astype(np.int64)
            places[choice] = self._places(int(form) << 16, (rows, self.depth), width, transposed, start)
        at = (places + (chunk.block[first] * chunk.context.shared)[:, None, None]).reshape(-1)
        # Threads of two warps, so that whoever writes there without a barrier of the block races with one of them.
        readers = first.repeat(rows * self.depth)
        for warp in (0, 1):
            access = Access(at, readers + warp * WARP, width, 1, str(self.instruction))
            (loaded,) = chunk.shared.begin(access)
            chunk.begun.products.begin(access, None)
        return read_elements(kind, loaded).reshape(first.size, rows, self.depth)

    def _places(self, descriptor: int, shape: tuple[int, int], width: int, transposed: bool, start: Lanes) -> Lanes:
        """The addresses of elements of matrices that begin at `start`, as (matrices, rows, depth)."""
        leading, stride = ((descriptor >> shift & 0x3FFF) << 4 for shift in (16, 32))
        units = _UNITS[descriptor >> 62]
        if descriptor >> 49 & 7:
            raise unknown(self.instruction, "a descriptor with a base offset")
        row, depth = np.arange(shape[0])[:, None], np.arange(shape[1])[None, :]
        along, across = (row, depth) if transposed else (depth, row)
        unit, rest = along * width // 16, along * width % 16
        if not transposed:
            offsets = across % 8 * units * 16 + across // 8 * stride + unit * (leading if units == 1 else 16) + rest
        elif units == 1:
            offsets = unit * stride + across % 8 * 16 + across // 8 * leading + rest
        else:
            offsets = (
                unit % units * 16 + unit // units * leading + across % 8 * units * 16 + across // 8 * stride + rest
            )
        return swizzled(start[:, None, None] + offsets, units)


def swizzled(at: Lanes, units: int) -> Lanes:
    """Addresses under a swizzle with rows of so many units of 16 bytes; 1 for none."""
    return at ^ ((at >> 7 & (units - 1)) << 4)


def _bits(chunk: Chunk, name: str, lanes: Lanes) -> Lanes:
    return chunk.spread(chunk.read(name))[lanes]


def _read_product(instruction: Instruction, entry: Listing) -> _GroupProduct:
    match = next(shape for name in instruction.modifiers if (shape := _SHAPE.fullmatch(name)))
    columns, depth = int(match[1]), int(match[2])
    of_d, of_a, of_b = instruction.modifiers[-3:]
    target, first, second, adds, *flags = instruction.operands
    sums = [destination(instruction, name, entry) for name in elements(target)]
    numbers = _numbers(instruction, flags)
    whole = of_d == "s32"
    signs = (1.0, 1.0) if whole else (float(numbers[0]), float(numbers[1]))
    transposed = [bool(n) for n in numbers[0 if whole else 2 :]]
    if not isinstance(first, str):  # registers are never transposed
        transposed = [False, *transposed]
        a = [reader(instruction, name, "b32", entry) for name in first]
    else:
        a = [reader(instruction, first, "b64", entry)]
    if len(sums) != _ROWS * columns // GROUP // (2 if of_d == "f16" else 1) or len(a) not in (1, 4):
        raise unknown(instruction, f"the operands {instruction.operands}")
    transposed = [*transposed, False, False][:2]
    return _GroupProduct(
        sums, (of_a, of_b, of_d), depth, columns, a, reader(instruction, second, "b64", entry),
        reader(instruction, adds, "pred", entry), signs, (transposed[0], transposed[1]),
        "satfinite" in instruction.modifiers, instruction,
    )  # fmt: skip


def _numbers(instruction: Instruction, flags: list[Operand]) -> list[int]:
    try:
        return [int(str(flag), 0) for flag in flags]
    except ValueError:
        raise unknown(instruction, f"the operands {flags}") from None
