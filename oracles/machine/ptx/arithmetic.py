"""Arithmetic as PTX defines it, on arrays: what an instruction computes of its operands.

Source: NVIDIA, PTX ISA 9.1, sections 9.7.1 (integers), 9.7.3 (floating point), 9.7.4 (half precision), 9.7.6
(comparison) and 9.7.8 (logic and shift).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..fused import fma, fma_to_odd
from . import formats, integers
from .approximations import approximate, is_power_of_two, upper_word
from .chunk import Chunk
from .conversions import FROM_HALF, TO_HALF, conversion
from .extremes import extreme
from .formats import BITS, NUMBERS, WIDTHS, Lanes, as_type, canonical, flush, from_bfloat16, not_negative, within_one
from .listing import Instruction, Listing
from .operands import Step, active, destination, reader

#: Comparisons of setp are ordered, false of a NaN, or not, true of one; they may be combined with a predicate.
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: (a < b) | (a > b), "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "equ": lambda a, b: ~((a < b) | (a > b)),
    "neu": lambda a, b: a != b, "ltu": lambda a, b: ~(a >= b), "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b), "geu": lambda a, b: ~(a < b), "num": lambda a, b: (a == a) & (b == b),
    "nan": lambda a, b: (a != a) | (b != b),
}  # fmt: skip
_COMBINED = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def comparison(instruction: Instruction) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """The function of a setp, and the types of its sources: two numbers, and a predicate where there is one."""
    how, *modifiers, kind = instruction.modifiers
    compare = _COMPARED[how]
    combine = next((_COMBINED[name] for name in modifiers if name in _COMBINED), None)
    before: Callable[[Lanes], Lanes] = flush if "ftz" in modifiers else from_bfloat16 if kind == "bf16" else np.asarray
    kind = "b16" if kind == "bf16" else kind
    if combine is None:
        return lambda a, b: compare(before(a), before(b)), (kind, kind)
    return lambda a, b, truth: combine(compare(before(a), before(b)), truth), (kind, kind, "pred")


def _set(instruction: Instruction) -> Operation:
    """set: a comparison whose truth is 1.0, of an integer type all bits, and 0 otherwise (9.7.6.1)."""
    *how, into, kind = instruction.modifiers
    truth, kinds = comparison(replace(instruction, modifiers=(*how, kind)))
    one: Lanes = {"f16": np.uint16(0x3C00), "bf16": np.uint16(0x3F80), "f32": np.uint32(0x3F800000)}.get(into)
    yes = BITS[WIDTHS[into]](-1 & ((1 << 8 * WIDTHS[into]) - 1)) if one is None else one
    return Operation(lambda *operands: np.where(truth(*operands), yes, yes.dtype.type(0)), kinds)


def compare_pairs(instruction: Instruction, entry: Listing) -> Step:
    """setp of pairs of halves: two predicates, "%p1|%p2", of which the first is of the lower halves."""
    how, kind = instruction.modifiers[0], instruction.kind
    compare, number = _COMPARED[how], FROM_HALF[kind.removesuffix("x2")]
    target, *sources = instruction.operands
    names = [destination(instruction, name, entry) for name in str(target).split("|")]
    readers, where = [reader(instruction, source, "b32", entry) for source in sources], active(instruction)

    def step(chunk: Chunk) -> None:
        words = [np.asarray(reader(chunk)) for reader in readers]
        for shift, name in zip((0, 16), names, strict=True):
            halves = [number((word >> np.uint32(shift)).astype(np.uint16)) for word in words]
            chunk.write(name, compare(*halves), where(chunk))

    return step


Compute = Callable[..., Any]
#: Roundings down, up and towards zero.
_DIRECTIONS = frozenset({"rm", "rp", "rz"})


@dataclass(frozen=True)
class Operation:
    """What an instruction computes: a function of its sources, in the types of `kinds`, one for each."""

    compute: Compute
    kinds: tuple[str, ...]


def operation(instruction: Instruction) -> Operation | None:
    """The operation of an instruction that `grammar` knows; None for one that is no arithmetic."""
    if instruction.name in integers.MAKERS:
        return Operation(*integers.MAKERS[instruction.name](instruction))
    make = _MAKERS.get(instruction.name)
    if make is None:
        return None
    if instruction.kind.endswith("x2") and instruction.name in _PACKED:
        single = [m.removesuffix("x2") for m in instruction.modifiers]
        if instruction.name == "set":  # each half of an integer is all ones or zero
            single[-2] = single[-2].replace("32", "16")
        return _in_pairs(make(replace(instruction, modifiers=tuple(single))))
    return make(instruction)


def _rounded(instruction: Instruction, function: Compute) -> Compute:
    """A function as its kind rounds it: float32 with canonical NaNs, and with .ftz without subnormal numbers."""
    if "sat" in instruction.modifiers:
        unlimited = replace(instruction, modifiers=tuple(m for m in instruction.modifiers if m != "sat"))
        inner = _rounded(unlimited, function)
        return lambda *operands: within_one(inner(*operands))
    if instruction.kind != "f32":
        return function
    if "ftz" in instruction.modifiers:
        return lambda *operands: canonical(flush(function(*map(flush, operands))))
    return lambda *operands: canonical(function(*operands))


def _to_half(instruction: Instruction) -> Compute:
    """A function that rounds numbers to the half format of an instruction, between ends where it says so."""
    narrow = TO_HALF[instruction.kind]
    if "sat" in instruction.modifiers:
        return lambda x: narrow(within_one(x))
    return (lambda x: narrow(not_negative(x))) if "relu" in instruction.modifiers else narrow


def _of(count: int, function: Compute) -> Callable[[Instruction], Operation]:
    """The maker of an operation whose sources all have the instruction's type."""
    return lambda instruction: Operation(_rounded(instruction, function), (instruction.kind,) * count)


def _sum(function: Compute) -> Callable[[Instruction], Operation]:
    """The maker of a sum or difference; of halves it is rounded twice, by float32, which gives the nearest half.

    Source: S. A. Figueroa, When is double rounding innocuous?, ACM SIGNUM Newsletter 30(3), 1995: 24 >= 2 * 11 + 2.
    """

    def make(instruction: Instruction) -> Operation:
        kind, how = instruction.kind, instruction.modifiers[0]
        if how in _DIRECTIONS:
            sign = np.float32(function(0, 1))
            return _of(2, lambda a, b: _directed(how, b, sign, a))(instruction)
        if kind not in TO_HALF:
            return _of(2, function)(instruction)
        wide, narrow = FROM_HALF[kind], _to_half(instruction)
        if "f32" in instruction.modifiers:  # a half and a float32 number
            return Operation(lambda a, b: canonical(function(wide(a), b)), ("b16", "f32"))
        return Operation(lambda a, b: narrow(function(wide(a), wide(b))), ("b16", "b16"))

    return make


def _in_pairs(single: Operation) -> Operation:
    """An operation on both parts of a packed operand."""
    width = WIDTHS[single.kinds[0]]
    part, whole = BITS[width], BITS[2 * width]
    shift = whole(8 * width)

    def compute(*operands: Lanes) -> Lanes:
        halves = (
            [as_type(np.asarray(each >> by).astype(part), NUMBERS[single.kinds[0]]) for each in operands]
            for by in (whole(0), shift)
        )
        low, high = (np.asarray(single.compute(*half)).view(part).astype(whole) for half in halves)
        return low | (high << shift)

    return Operation(compute, (f"b{16 * width}",) * len(single.kinds))


def _product(instruction: Instruction) -> Operation:
    kind, first = instruction.kind, instruction.modifiers[0]
    if kind in TO_HALF:  # float32 has the digits of any product of halves
        return _sum(lambda a, b: a * b)(instruction)
    if first in _DIRECTIONS:  # a zero of the product's sign leaves it as it is
        return _of(2, lambda a, b: _directed(first, a, b, np.copysign(np.float32(0), a * b)))(instruction)
    if first == "hi":
        return Operation(integers.upper_product(kind), (kind, kind))
    if first != "wide":
        return _of(2, lambda a, b: a * b)(instruction)
    wide = NUMBERS[_doubled(kind)]
    return Operation(lambda a, b: a.astype(wide) * b.astype(wide), (kind, kind))


def _product_and_sum(instruction: Instruction) -> Operation:
    kind, first = instruction.kind, instruction.modifiers[0]
    if first in _DIRECTIONS:
        return _of(3, functools.partial(_directed, first))(instruction)
    mixed = instruction.modifiers[-1]
    if mixed in TO_HALF and "f32" in instruction.modifiers:  # a product of halves, and float32
        wide_half = FROM_HALF[mixed]
        return Operation(lambda a, b, c: canonical(fma(wide_half(a), wide_half(b), c)), ("b16", "b16", "f32"))
    if kind in ("f32", "f64"):
        return _of(3, fma)(instruction)
    if kind in TO_HALF:
        wide_half, narrow = FROM_HALF[kind], _to_half(instruction)
        return Operation(lambda a, b, c: narrow(fma_to_odd(*map(wide_half, (a, b, c)))), ("b16",) * 3)
    if first == "hi":
        upper = integers.upper_product(kind)
        return Operation(lambda a, b, c: upper(a, b) + c, (kind,) * 3)
    if first == "wide":
        wide = NUMBERS[_doubled(kind)]
        return Operation(lambda a, b, c: a.astype(wide) * b.astype(wide) + c, (kind, kind, _doubled(kind)))
    return Operation(lambda a, b, c: a * b + c, (kind,) * 3)


def _doubled(kind: str) -> str:
    return f"{kind[0]}{2 * int(kind[1:])}"


def _directed(how: str, a: Lanes, b: Lanes, c: Lanes) -> Lanes:
    """a b + c in float32, rounded down (rm), up (rp) or towards zero (rz).

    The product has 48 digits, which float64 holds, and what its sum with c loses is known (D. E. Knuth, The Art of
    Computer Programming 2, 4.2.2, theorem B); so is on which side of the nearest float32 number the exact one lies.
    """
    product, addend = np.asarray(a, np.float64) * np.asarray(b, np.float64), np.asarray(c, np.float64)
    total = product + addend
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    nearest = np.asarray(fma(a, b, c))
    side = (total - nearest.astype(np.float64)) + lost
    down, up = np.nextafter(nearest, np.float32(-np.inf)), np.nextafter(nearest, np.float32(np.inf))
    if how == "rm":  # a sum of zero is negative, unless both are positive zeros
        zero = (nearest == 0) & (side == 0) & (np.signbit(product) | np.signbit(addend))
        return np.where(side < 0, down, np.where(zero, np.float32(-0.0), nearest))
    if how == "rp":
        return np.where(side > 0, up, nearest)
    return np.where((side < 0) & (nearest > 0), down, np.where((side > 0) & (nearest < 0), up, nearest))


def _quotient(instruction: Instruction) -> Operation:
    kind = instruction.kind
    if instruction.modifiers[0] in ("full", "approx"):
        return _of(2, _approximate_quotient)(instruction)
    return _of(2, (lambda a, b: a / b) if kind[0] == "f" else _whole_quotient)(instruction)


def _approximate_quotient(a: Lanes, b: Lanes) -> Lanes:
    exact = np.asarray(a.astype(np.float64) / b.astype(np.float64))
    return approximate("div", exact, exact, is_power_of_two(b))


def _whole_quotient(a: Lanes, b: Lanes) -> Lanes:
    """Towards zero; all bits where the divisor is zero, which the ISA leaves open and hardware gives."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    down = a // safe
    inexact = (down * safe != a) & ((a < 0) != (safe < 0))
    ones = a.dtype.type(-1) if a.dtype.kind == "i" else np.iinfo(a.dtype).max
    return np.where(b == 0, ones, down + inexact.astype(a.dtype)).astype(a.dtype)


def _remainder(a: Lanes, b: Lanes) -> Lanes:
    return (a - _whole_quotient(a, b) * b).astype(a.dtype)


def _extreme(larger: bool) -> Callable[[Instruction], Operation]:
    return lambda instruction: Operation(*extreme(larger, instruction))


def _sign(negates: bool) -> Callable[[Instruction], Operation]:
    """abs or neg; of a NaN the payload stays."""

    def make(instruction: Instruction) -> Operation:
        kind = instruction.kind
        if kind.startswith(("f16", "bf16")):
            bits = BITS[WIDTHS[kind]]
            sign = bits(0x80008000 & ((1 << 8 * WIDTHS[kind]) - 1))
            return Operation(lambda a: a ^ sign if negates else a & ~sign, (f"b{8 * WIDTHS[kind]}",))
        function: Compute = np.negative if negates else np.abs
        return Operation((lambda a: function(flush(a))) if "ftz" in instruction.modifiers else function, (kind,))

    return make


def _root(name: str, exact: Compute) -> Callable[[Instruction], Operation]:
    """A function of one number, rounded (.rn) or approximated."""

    def approximated(x: Lanes) -> Lanes:
        return approximate(name, x, np.asarray(exact(np.asarray(x, np.float64))))

    def make(instruction: Instruction) -> Operation:
        if "approx" not in instruction.modifiers:
            return _of(1, exact)(instruction)
        if instruction.kind == "f64":
            return Operation(_gross_reciprocal, ("f64",))
        return _of(1, approximated)(instruction)

    return make


def _gross_reciprocal(x: Lanes) -> Lanes:
    """rcp.approx.ftz.f64: of the upper words alone, subnormal numbers as zeros."""
    top = (np.asarray(x).view(np.uint64) & np.uint64(0xFFFFFFFF_00000000)).view(np.float64)
    tiny = np.finfo(np.float64).tiny
    top = np.where(np.abs(top) < tiny, np.copysign(0.0, top), top)
    exact = np.asarray(1.0 / top)
    return upper_word(x, np.where(np.abs(exact) < tiny, np.copysign(0.0, exact), exact))


def _shift(left: bool) -> Callable[[Instruction], Operation]:
    def make(instruction: Instruction) -> Operation:
        kind = instruction.kind
        bits = 8 * WIDTHS[kind]

        def compute(a: Lanes, by: Lanes) -> Lanes:
            """Amounts beyond the width count as the width (9.7.8.7)."""
            amount = np.minimum(by, bits - 1).astype(a.dtype)
            if a.dtype.kind == "i":
                return np.asarray(a >> amount)
            shifted = a << amount if left else a >> amount
            return np.where(by >= bits, a.dtype.type(0), shifted)

        return Operation(compute, (kind, "u32"))

    return make


def _field(instruction: Instruction) -> Operation:
    """bfe: bits of a field, of signed types with its sign before them."""
    bits, signed = 8 * WIDTHS[instruction.kind], instruction.kind[0] == "s"

    def compute(a: Lanes, position: Lanes, length: Lanes) -> Lanes:
        start, size = (position & 255).astype(np.int64), (length & 255).astype(np.int64)
        if signed:
            # A field that ends beyond the last bit is filled with the sign; one that lies beyond it is the sign.
            size = np.where(size == 0, 0, np.minimum(size, np.maximum(bits - start, 1)))
            wide = a.astype(np.int64) << np.clip(64 - size - start, 0, 63)
            return np.where(size == 0, 0, wide >> np.clip(64 - size, 0, 63)).astype(a.dtype)
        value = np.where(start >= bits, np.uint64(0), a.astype(np.uint64) >> np.minimum(start, 63).astype(np.uint64))
        rest = np.uint64(0xFFFFFFFF_FFFFFFFF) << np.minimum(size, 63).astype(np.uint64)
        return np.where(size >= 64, value, value & ~rest).astype(a.dtype)

    return Operation(compute, (instruction.kind, "u32", "u32"))


def _permute(a: Lanes, b: Lanes, selector: Lanes) -> Lanes:
    """prmt: four bytes of eight, each chosen by a digit of the selector, whose highest bit asks for its sign alone."""
    both = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    result: Lanes = np.uint32(0)
    for number in range(4):
        digit = (selector >> np.uint32(4 * number)) & np.uint32(15)
        byte = (both >> (np.uint64(8) * (digit & np.uint32(7)).astype(np.uint64))).astype(np.uint32) & np.uint32(255)
        sign = np.where(byte & np.uint32(128), np.uint32(255), np.uint32(0))
        result = result | (np.where(digit & np.uint32(8), sign, byte) << np.uint32(8 * number))
    return np.asarray(result)


def _window(instruction: Instruction) -> Operation:
    """cvta: an address of a state space as a generic one, or back."""
    words = {name.partition("::")[0] for name in instruction.modifiers}
    space = next((name for name in ("shared", "local") if name in words), "")
    start = NUMBERS[instruction.kind](formats.WINDOWS[space] if space else 0)
    back = "to" in instruction.modifiers
    return Operation(lambda a: a - start if back else a + start, (instruction.kind,))


def _select(instruction: Instruction) -> Operation:
    return Operation(lambda a, b, truth: np.where(truth, a, b), (instruction.kind, instruction.kind, "pred"))


#: Those whose types ending in x2 are two numbers side by side.
_PACKED = frozenset({"add", "sub", "mul", "fma", "max", "min", "set"})
_MAKERS: dict[str, Callable[[Instruction], Operation]] = {
    "add": _sum(lambda a, b: a + b), "sub": _sum(lambda a, b: a - b), "mul": _product, "mad": _product_and_sum,
    "fma": _product_and_sum, "div": _quotient, "rem": _of(2, _remainder), "max": _extreme(True), "min": _extreme(False),
    "abs": _sign(False), "neg": _sign(True), "and": _of(2, lambda a, b: a & b),
    "or": _of(2, lambda a, b: a | b), "xor": _of(2, lambda a, b: a ^ b), "not": _of(1, lambda a: ~a),
    "shl": _shift(True), "shr": _shift(False), "bfe": _field, "prmt": _of(3, _permute), "selp": _select,
    "ex2": _root("ex2", np.exp2), "lg2": _root("lg2", np.log2), "rcp": _root("rcp", lambda x: 1 / x),
    "rsqrt": _root("rsqrt", lambda x: 1 / np.sqrt(x)), "sqrt": _root("sqrt", np.sqrt), "sin": _root("sin", np.sin),
    "cos": _root("cos", np.cos), "tanh": _root("tanh", np.tanh), "cvta": _window,
    "set": _set, "setp": lambda instruction: Operation(*comparison(instruction)),
    "cvt": lambda instruction: Operation(*conversion(instruction)),
}  # fmt: skip
