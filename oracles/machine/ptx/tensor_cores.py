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

import functools
import re
from typing import Any

import numpy as np

from ..fused import fma
from . import approximations, hardware
from .chunk import Chunk
from .conversions import FROM_HALF
from .formats import NUMBERS, WIDTHS, Lanes, canonical, to_float16
from .grammar import unknown
from .listing import Instruction, Listing
from .low_bits import from_low_bits
from .operands import Step, active, destination, elements, reader
from .space import WARP

_SHAPE = re.compile(r"m(\d+)n8k(\d+)")
#: Digits of a sum, and bits that an H100 keeps of an addend behind the leading one of the largest.
_DIGITS, KEPT_DIGITS = 24, 25
#: Products that are looked at one by one at once; as many as a processor has near itself.
_AT_ONCE = 1 << 16


def multiply_matrices(instruction: Instruction, entry: Listing) -> Step:
    """mma.sync of a shape m16n8k4 to m16n8k32, or m8n8k4, into float32, float64 or int32."""
    match = next(shape for name in instruction.modifiers if (shape := _SHAPE.fullmatch(name)))
    rows, depth, kinds, kind = int(match[1]), int(match[2]), instruction.modifiers[-3:-1], instruction.kind
    target, *sources = instruction.operands
    names = [destination(instruction, name, entry) for name in elements(target)]
    bits = f"b{max(8 * WIDTHS[kind], 32)}"
    a, b, c = ([reader(instruction, each, bits, entry) for each in elements(source)] for source in sources)
    pack, sums = max(4 // ELEMENT_WIDTHS[kinds[0]], 1), rows // (8 if kind == "f16" else 4)
    if (len(names), len(a), len(b), len(c)) != (sums, rows * depth // pack // WARP, depth // pack // 4, sums):
        raise unknown(instruction, f"the operands {instruction.operands}")
    where, label, saturates = active(instruction), str(instruction), "satfinite" in instruction.modifiers

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        chunk.require_whole_warps(threads, label)
        left, right, start = (
            [chunk.spread(reader(chunk)).reshape(-1, WARP) for reader in readers] for readers in (a, b, c)
        )
        first, second = read_matrix("a", kinds[0], (rows, depth), left), read_matrix("b", kinds[1], (depth, 8), right)
        result = accumulate(first, second, read_sums(start, rows, NUMBERS[kind]), saturates=saturates)
        for name, register in zip(names, sum_registers(result), strict=True):
            chunk.write(name, register, threads)

    return step


def read_sums(registers: list[Lanes], rows: int, dtype: Any) -> Lanes:
    """Sums as (warps, rows, columns), of registers as (warps, lanes); two halves lie in one register."""
    numbers = np.stack(registers, -1).reshape(len(registers[0]), -1).view(dtype)
    return numbers.take(_places("sums", rows, numbers.shape[1] // rows), 1)


def sum_registers(sums: Lanes) -> list[Lanes]:
    """Registers of sums, with an element for every thread: the reverse of `read_sums`."""
    order = np.argsort(_places("sums", *sums.shape[1:]), axis=None)
    numbers = sums.reshape(len(sums), -1).take(order, 1)
    words = numbers.view(np.uint32 if sums.dtype == np.float16 else sums.dtype).reshape(len(sums) * WARP, -1)
    return [*np.ascontiguousarray(words.T)]


def accumulate(a: Lanes, b: Lanes, c: Lanes, *, saturates: bool = False, digits: int = KEPT_DIGITS) -> Lanes:
    """A B + C of matrices of several warps, in the type of C.

    Args:
        a, b, c: (warps, rows, depth), (warps, depth, columns) and (warps, rows, columns); a and b in float64.
        saturates: whether sums of integers beyond int32 become its ends (.satfinite), and do not wrap around.
        digits: as for `add_products`.
    """
    if c.dtype == np.int32:
        whole = np.matmul(a, b).astype(np.int64) + c  # float64 has all digits of these sums
        limits = np.iinfo(np.int32)
        return (np.clip(whole, limits.min, limits.max) if saturates else whole).astype(np.int32)
    if c.dtype == np.float64:  # each product is added with one rounding
        for k in range(a.shape[2]):
            c = fma(a[:, :, k, None], b[:, k, None, :], c)
        return c
    approximations.executed[approximations.MMA] += 1
    wide = c.astype(np.float32)
    step = max(1, _AT_ONCE // (a[0].size * b.shape[2]))
    parts = [slice(first, first + step) for first in range(0, len(a), step)]
    sums = canonical(np.concatenate([add_products(a[part], b[part], wide[part], digits) for part in parts]))
    return to_float16(sums).view(np.float16) if c.dtype == np.float16 else sums


#: Bytes of an element of a factor.
ELEMENT_WIDTHS = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1, "e4m3": 1, "e5m2": 1, "f64": 8}
_LANES = np.arange(WARP)
_GROUP, _MEMBER = _LANES // 4, _LANES % 4


@functools.cache
def _places(matrix: str, rows: int, columns: int, parts: int = 1) -> Lanes:
    """Where the elements of a matrix, "a", "b" or "sums", are among those of a warp, lane after lane.

    Registers, of so many parts, go in A first down eight rows, then on to the columns behind.
    """
    places, each, down = np.zeros((rows, columns), np.int64), rows * columns // WARP, rows // 8
    for number in range(each):
        register, more = divmod(number, parts)
        if matrix == "a":
            row, column = _GROUP + 8 * (register % down), parts * (_MEMBER + 4 * (register // down)) + more
        elif matrix == "b":
            row, column = parts * (_MEMBER + 4 * register) + more, _GROUP
        else:
            row, column = _GROUP + 8 * (number // 2 % 2), 8 * (number // 4) + 2 * _MEMBER + number % 2
        places[row, column] = _LANES * each + number
    return places


def read_elements(kind: str, bits: Lanes) -> Lanes:
    """Elements of a factor, in float64."""
    if kind == "f64":
        return bits.view(np.float64)
    if kind == "tf32":  # the lower 13 bits are not looked at
        return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if kind in ("s8", "u8"):
        return bits.view(NUMBERS[kind]).astype(np.float64)
    numbers = FROM_HALF[kind](bits) if kind in FROM_HALF else from_low_bits(kind, bits)
    return np.asarray(numbers).astype(np.float64)


def read_matrix(matrix: str, kind: str, shape: tuple[int, int], registers: list[Lanes]) -> Lanes:
    """A, 16 rows at most, or B, as (warps, rows, columns) in float64, of registers as (warps, lanes)."""
    width = ELEMENT_WIDTHS[kind]
    bits = np.stack(registers, -1).reshape(len(registers[0]), -1).view(f"u{width}")
    return read_elements(kind, bits.take(_places(matrix, *shape, max(4 // width, 1)), 1))


def add_products(a: Lanes, b: Lanes, c: Lanes, digits: int = KEPT_DIGITS) -> Lanes:
    """The sums in float32, as the hardware in use has them.

    Args:
        a, b, c: (warps, 16, k) and (warps, k, 8), in float64, and (warps, 16, 8) in float32.
        digits: bits that an H100 keeps behind the leading one; of the sum, too, where they are fewer than it has.
    """
    how = hardware.current().approximation
    addend = c.astype(np.float64)
    exact = np.matmul(a, b) + addend
    nearest = exact.astype(np.float32)
    if how == "nearest":
        return nearest
    products = a[:, :, :, None] * b[:, None, :, :]  # exact: 22 digits at most
    if how == "truncating":
        # The exponent of a product is the sum of its factors', whatever the product of their digits is.
        exponents = _exponent(a)[:, :, :, None] + _exponent(b)[:, None, :, :]
        unit = np.ldexp(1.0, np.maximum(exponents.max(2), _exponent(addend)) - digits)
        exact_cut = (np.trunc(products / unit[:, :, None, :]).sum(2) + np.trunc(addend / unit)) * unit
        if digits < _DIGITS:
            last = np.ldexp(1.0, _exponent(exact_cut) - digits)
            exact_cut = np.trunc(exact_cut / last) * last
        result = _towards_zero(exact_cut)
    else:
        largest = np.maximum(np.abs(products).max(2), np.abs(addend))
        unit = np.ldexp(1.0, np.maximum(np.frexp(np.where(np.isfinite(largest), largest, 0.0))[1] - _DIGITS, -149))
        products /= unit[:, :, None, :]
        lost = (np.trunc(products) != products).sum(2, dtype=np.int8) + (np.trunc(addend / unit) * unit != addend)
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
