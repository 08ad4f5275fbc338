"""Instructions on the bits of integers, upper halves of products, and sums that carry.

Source: NVIDIA, PTX ISA 9.1, sections 9.7.1 (integers), 9.7.2 (extended precision) and 9.7.8 (logic and shift).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .chunk import Chunk
from .formats import BITS, NUMBERS, WIDTHS, Lanes
from .grammar import unknown
from .listing import Instruction, Listing
from .operands import Step, active, destination, reader

#: The register of the carry, which sums with .cc write.
_CARRY = "%carry"


def upper_product(kind: str) -> Callable[[Lanes, Lanes], Lanes]:
    """mul.hi: the upper half of a product."""
    bits, number = 8 * WIDTHS[kind], NUMBERS[kind]
    if bits < 64:
        wide = NUMBERS[f"{kind[0]}{2 * bits}"]
        return lambda a, b: ((a.astype(wide) * b.astype(wide)) >> wide(bits)).astype(number)

    def compute(a: Lanes, b: Lanes) -> Lanes:
        x, y, low, by = (
            np.asarray(a).view(np.uint64),
            np.asarray(b).view(np.uint64),
            np.uint64(0xFFFFFFFF),
            np.uint64(32),
        )
        middle = (x >> by) * (y & low) + (((x & low) * (y & low)) >> by)
        other = (x & low) * (y >> by) + (middle & low)
        high = (x >> by) * (y >> by) + (middle >> by) + (other >> by)
        if kind[0] == "s":  # a negative factor counts 2^64 too much
            zero = np.uint64(0)
            high = high - np.where(np.asarray(a).view(np.int64) < 0, y, zero)
            high = high - np.where(np.asarray(b).view(np.int64) < 0, x, zero)
        return np.asarray(high).view(number)

    return compute


def count_ones(a: Lanes) -> Lanes:
    """popc."""
    return np.bitwise_count(a).astype(np.uint32)


def count_leading_zeros(a: Lanes) -> Lanes:
    """clz."""
    bits = 8 * np.asarray(a).dtype.itemsize
    value = np.asarray(a)
    for shift in (1, 2, 4, 8, 16, 32)[: bits.bit_length() - 1]:
        value = value | (value >> value.dtype.type(shift))
    return (bits - np.bitwise_count(value)).astype(np.uint32)


def find_leading(kind: str, shifts: bool) -> Callable[[Lanes], Lanes]:
    """bfind: the position of the highest bit that is not the sign, or by how much to shift it to the top (9.7.1.19).

    "bfind returns 0xffffffff if no non-sign bit is found."
    """
    bits = 8 * WIDTHS[kind]

    def compute(a: Lanes) -> Lanes:
        value = np.asarray(a)
        value = (np.where(value < 0, ~value, value) if kind[0] == "s" else value).view(BITS[bits // 8])
        zeros = count_leading_zeros(value)
        position = zeros if shifts else np.uint32(bits - 1) - zeros
        return np.where(value == 0, np.uint32(0xFFFFFFFF), position)

    return compute


def reverse_bits(a: Lanes) -> Lanes:
    """brev."""
    value = np.asarray(a)
    result, one = np.zeros_like(value), value.dtype.type(1)
    for position in range(8 * value.dtype.itemsize):
        result = (result << one) | ((value >> value.dtype.type(position)) & one)
    return result


def look_up(a: Lanes, b: Lanes, c: Lanes, table: Lanes) -> Lanes:
    """lop3: the bitwise function of a, b and c whose truth table are the eight bits of `table`."""
    result: Lanes = np.uint32(0)
    for row in range(8):
        term = np.where((table >> np.uint32(row)) & np.uint32(1), np.uint32(0xFFFFFFFF), np.uint32(0))
        for value, digit in ((a, row & 4), (b, row & 2), (c, row & 1)):
            term = term & (value if digit else ~value)
        result = result | term
    return np.asarray(result)


def funnel_shift(left: bool, wraps: bool) -> Callable[[Lanes, Lanes, Lanes], Lanes]:
    """shf: a word of two, the second of which is the upper one, that were shifted."""

    def compute(low: Lanes, high: Lanes, by: Lanes) -> Lanes:
        amount = (by & np.uint32(31) if wraps else np.minimum(by, np.uint32(32))).astype(np.uint64)
        both = low.astype(np.uint64) | (high.astype(np.uint64) << np.uint64(32))
        shifted = (both << amount) >> np.uint64(32) if left else both >> amount
        return shifted.astype(np.uint32)

    return compute


def insert_field(kind: str) -> Callable[[Lanes, Lanes, Lanes, Lanes], Lanes]:
    """bfi: bits of the first operand in the place of a field of the second."""
    bits, number = 8 * WIDTHS[kind], BITS[WIDTHS[kind]]

    def compute(a: Lanes, b: Lanes, position: Lanes, length: Lanes) -> Lanes:
        start, size = np.minimum(position & 255, bits), np.minimum(length & 255, bits)
        size = np.minimum(size, bits - start)
        field = np.where(size == 0, number(0), ~number(0) >> (bits - np.maximum(size, 1)).astype(number))
        at = np.minimum(start, bits - 1).astype(number)
        mask = np.where(start >= bits, number(0), field << at)
        return np.asarray((b & ~mask) | ((a << at) & mask))

    return compute


def copy_sign(kind: str) -> Callable[[Lanes, Lanes], Lanes]:
    """copysign: the second operand with the sign of the first."""
    sign = BITS[WIDTHS[kind]](1 << (8 * WIDTHS[kind] - 1))
    return lambda a, b: np.asarray((b & ~sign) | (a & sign))


def carry(instruction: Instruction, entry: Listing) -> Step:
    """add.cc, addc, sub.cc, subc, mad.cc and madc: with the carry of the one before, and of its own."""
    name, kind = instruction.name, instruction.kind
    takes, gives = name.endswith("c"), "cc" in instruction.modifiers
    unsigned = f"u{8 * WIDTHS[kind]}"
    target, *sources = instruction.operands
    readers = [reader(instruction, source, kind if name[0] == "m" else unsigned, entry) for source in sources]
    if len(readers) != (3 if name[0] == "m" else 2):
        raise unknown(instruction, f"{len(readers)} sources")
    entry.registers[_CARRY] = 1
    into, where, number = destination(instruction, target, entry), active(instruction), NUMBERS[unsigned]
    upper = upper_product(kind) if "hi" in instruction.modifiers else lambda a, b: a * b
    minus = name.startswith("sub")

    def step(chunk: Chunk) -> None:
        threads, values = where(chunk), [chunk.spread(reader(chunk)) for reader in readers]
        first, second = (upper(*values[:2]), values[2]) if len(values) == 3 else values
        a, b = np.asarray(first).view(number), np.asarray(second).view(number)
        brought = chunk.spread(chunk.read(_CARRY)).astype(number) if takes else number(0)
        between = a - b if minus else a + b
        result = between - brought if minus else between + brought
        chunk.write(into, result, threads)
        if gives:
            over = (between > a) | (result > between) if minus else (between < a) | (result < between)
            chunk.write(_CARRY, over, threads)

    return step


#: By instruction: its function, and the types of its sources.
MAKERS: dict[str, Callable[[Instruction], tuple[Any, tuple[str, ...]]]] = {
    "popc": lambda i: (count_ones, (i.kind,)), "clz": lambda i: (count_leading_zeros, (i.kind,)),
    "bfind": lambda i: (find_leading(i.kind, "shiftamt" in i.modifiers), (i.kind,)),
    "brev": lambda i: (reverse_bits, (i.kind,)), "lop3": lambda i: (look_up, ("b32",) * 4),
    "shf": lambda i: (funnel_shift(i.modifiers[0] == "l", i.modifiers[1] == "wrap"), ("b32",) * 3),
    "bfi": lambda i: (insert_field(i.kind), (i.kind, i.kind, "u32", "u32")),
    "copysign": lambda i: (copy_sign(i.kind), (f"b{8 * WIDTHS[i.kind]}",) * 2),
}  # fmt: skip
