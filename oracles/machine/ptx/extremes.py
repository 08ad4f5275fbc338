"""max and min, of two numbers or of three.

Source: NVIDIA, PTX ISA 9.1, sections 9.7.1.13 and 9.7.1.14 (integers), 9.7.3.11 and 9.7.3.12 (float32), 9.7.4.7 and
9.7.4.8 (halves): "If one of the inputs is NaN, then the result is the other input [...] If .NaN modifier is specified,
then the result is canonical NaN if any of the inputs is NaN"; "+0.0 > -0.0"; "If the modifiers .abs and .xorsign are
both specified, magnitude of destination operand is the maximum of absolute values of both the inputs and sign bit of
destination operand is the XOR of the sign bits of both the inputs". Of three inputs the second of two follows on the
first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .conversions import FROM_HALF, TO_HALF
from .formats import NUMBERS, Lanes, canonical, flush
from .listing import Instruction

Function = Callable[..., Any]


def extreme(larger: bool, instruction: Instruction) -> tuple[Function, tuple[str, ...]]:
    """The function of a max or min, and the types of its sources."""
    kind, modifiers = instruction.kind, instruction.modifiers
    count = max(len(instruction.operands) - 1, 2)  # none are named of an atomic operation
    if kind[0] in "su":
        choose, least = (np.maximum if larger else np.minimum), np.iinfo(NUMBERS[kind]).min
        least = 0 if "relu" in modifiers else least
        return lambda *a: np.maximum(functools.reduce(choose, a), a[0].dtype.type(least)), (kind,) * count
    before: Callable[[Lanes], Lanes] = flush if "ftz" in modifiers else np.asarray
    absolute, signed, strict = "abs" in modifiers, "xorsign" in modifiers, "NaN" in modifiers

    def compute(*operands: Lanes) -> Lanes:
        numbers = [before(each) for each in operands]
        sizes = [np.abs(each) for each in numbers] if absolute else numbers
        result = functools.reduce(functools.partial(_of_two, larger, strict), sizes)
        if signed:
            negative = functools.reduce(np.logical_xor, map(np.signbit, numbers))
            result = np.where(negative, -result, result)
        return canonical(result) if kind != "f64" else result

    if kind not in TO_HALF:
        return compute, (kind,) * count
    wide, narrow = FROM_HALF[kind], TO_HALF[kind]
    return lambda *operands: narrow(compute(*map(wide, operands))), ("b16",) * count


def _of_two(larger: bool, strict: bool, a: Lanes, b: Lanes) -> Lanes:
    """The larger or smaller of two numbers: of a number and a NaN the number, or where that is strict the NaN."""
    function = (np.maximum if strict else np.fmax) if larger else (np.minimum if strict else np.fmin)
    result = np.asarray(function(a, b))
    zeros = (a == 0) & (b == 0)
    if not np.any(zeros):
        return result
    negative = np.signbit(a) & np.signbit(b) if larger else np.signbit(a) | np.signbit(b)
    return np.where(zeros, np.where(negative, -np.abs(result), np.abs(result)), result)
