"""mma.sync: D = A B + C of fragments that the 32 threads of a warp hold together.

Source of the fragments: NVIDIA, PTX ISA 9.1, section 9.7.15.5.

What is hard here: no document says in which order products are added, and to how many digits. What is known was
measured: addends are aligned to the largest of them and cut off behind 24 digits or a few more, and so is their sum
(M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 7,
2021). So the sum is, by the hardware in use, the exact one rounded once ("nearest"); that of an H100, bit for bit
("truncating"; docs/h100.md); or at an end of the interval that cuts behind 24 digits span: one unit for each addend
that loses digits, and one of the result ("up", "down", "mixed"). `oracles.bound.contract.TENSOR_SUMS` is what that
interval makes of a bound.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from . import approximations, hardware
from .chunk import Chunk
from .conversions import FROM_HALF
from .formats import Lanes, canonical
from .grammar import unknown
from .listing import Instruction, Listing
from .operands import Step, active, destination, elements, reader
from .space import WARP

_SHAPE = re.compile(r"m16n8k(\d+)")
#: Digits of a sum, and bits that an H100 keeps of an addend behind the leading one of the largest.
_DIGITS, _KEPT_DIGITS = 24, 25


def multiply_matrices(instruction: Instruction, entry: Listing) -> Step:
    """mma.sync of a shape m16n8k4 to m16n8k32, into float32 or int32."""
    match = next(shape for name in instruction.modifiers if (shape := _SHAPE.fullmatch(name)))
    depth, kinds, whole = int(match[1]), instruction.modifiers[-3:-1], instruction.kind == "s32"
    target, *sources = instruction.operands
    names = [destination(instruction, name, entry) for name in elements(target)]
    a, b, c = ([reader(instruction, each, "b32", entry) for each in elements(source)] for source in sources)
    pack = 4 // _WIDTHS[kinds[0]]
    if (len(names), len(a), len(b), len(c)) != (4, depth // pack // 2, depth // pack // 4, 4):
        raise unknown(instruction, f"the operands {instruction.operands}")
    where, label = active(instruction), str(instruction)

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        chunk.require_whole_warps(threads, label)
        left, right, start = (
            [chunk.spread(reader(chunk)).reshape(-1, WARP) for reader in readers] for readers in (a, b, c)
        )
        first, second = _matrix_a(kinds[0], depth, left), _matrix_b(kinds[1], depth, right)
        addend = np.zeros((first.shape[0], 16, 8), np.int32 if whole else np.float32)
        for number, register in enumerate(start):
            row, column = _place_of_sum(number)
            addend[:, row, column] = register.view(addend.dtype)
        if whole:
            product = np.einsum("wik,wkj->wij", first.astype(np.int64), second.astype(np.int64)) + addend
            result: Any = product.astype(np.uint64).astype(np.uint32)
        else:
            approximations.executed[approximations.MMA] += 1
            result = canonical(add_products(first, second, addend))
        for number, name in enumerate(names):
            row, column = _place_of_sum(number)
            chunk.write(name, np.ascontiguousarray(result[:, row, column]).reshape(-1), threads)

    return step


#: Bytes of an element of a factor.
_WIDTHS = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1}
_LANES = np.arange(WARP)
_GROUP, _MEMBER = _LANES // 4, _LANES % 4


def _place_of_sum(number: int) -> tuple[Lanes, Lanes]:
    """Row and column of register `number` of the sums, in each lane."""
    return _GROUP + 8 * (number // 2), 2 * _MEMBER + number % 2


def _numbers(kind: str, register: Lanes) -> list[Lanes]:
    """The elements that a register holds, from the lowest bits on, in float64."""
    if kind == "tf32":  # the lower 13 bits are not looked at
        return [(register & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)]
    width = _WIDTHS[kind]
    parts = [(register >> np.uint32(8 * width * i)).astype(f"u{width}") for i in range(4 // width)]
    if width == 1:
        return [part.view(np.int8 if kind[0] == "s" else np.uint8).astype(np.float64) for part in parts]
    return [FROM_HALF[kind](part).astype(np.float64) for part in parts]


def _matrix_a(kind: str, depth: int, registers: list[Lanes]) -> Lanes:
    """A as (warps, 16, depth): registers go first down eight rows, then on to the columns behind."""
    matrix = np.zeros((registers[0].shape[0], 16, depth))
    for number, register in enumerate(registers):
        parts = _numbers(kind, register)
        column = len(parts) * (_MEMBER + 4 * (number // 2))
        for more, part in enumerate(parts):
            matrix[:, _GROUP + 8 * (number % 2), column + more] = part
    return matrix


def _matrix_b(kind: str, depth: int, registers: list[Lanes]) -> Lanes:
    """B as (warps, depth, 8)."""
    matrix = np.zeros((registers[0].shape[0], depth, 8))
    for number, register in enumerate(registers):
        parts = _numbers(kind, register)
        row = len(parts) * (_MEMBER + 4 * number)
        for more, part in enumerate(parts):
            matrix[:, row + more, _GROUP] = part
    return matrix


def add_products(a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """The sums in float32, as the hardware in use has them.

    Args:
        a, b, c: (warps, 16, k) and (warps, k, 8), in float64, and (warps, 16, 8) in float32.
    """
    how = hardware.current().approximation
    addend = c.astype(np.float64)
    exact = np.einsum("wik,wkj->wij", a, b) + addend
    nearest = exact.astype(np.float32)
    if how == "nearest":
        return nearest
    products = a[:, :, :, None] * b[:, None, :, :]  # exact: 22 digits at most
    if how == "truncating":
        # The exponent of a product is the sum of its factors', whatever the product of their digits is.
        exponents = _exponent(a)[:, :, :, None] + _exponent(b)[:, None, :, :]
        unit = np.ldexp(1.0, np.maximum(exponents.max(2), _exponent(addend)) - _KEPT_DIGITS)
        result = _towards_zero((np.trunc(products / unit[:, :, None, :]).sum(2) + np.trunc(addend / unit)) * unit)
    else:
        largest = np.maximum(np.abs(products).max(2), np.abs(addend))
        unit = np.ldexp(1.0, np.maximum(np.frexp(np.where(np.isfinite(largest), largest, 0.0))[1] - _DIGITS, -149))
        cut = np.trunc(products / unit[:, :, None, :]) * unit[:, :, None, :]
        lost = (cut != products).sum(2) + (np.trunc(addend / unit) * unit != addend)
        last = np.where(nearest == exact, 0.0, approximations.spacing(np.abs(nearest)))
        share = approximations.share(np.abs(nearest) + np.float32(0))
        result = np.asarray(exact + share * (lost * unit + last)).astype(np.float32)
    return np.where(np.isfinite(exact), result, nearest)


def _exponent(x: Lanes) -> Lanes:
    """That of the leading digit; of zero, infinities and NaN one below all others."""
    return np.where((x == 0) | ~np.isfinite(x), -400, np.frexp(x)[1] - 1)


def _towards_zero(exact: Lanes) -> Lanes:
    nearest = exact.astype(np.float32)
    return np.where(np.abs(nearest) > np.abs(exact), np.nextafter(nearest, np.float32(0)), nearest)
