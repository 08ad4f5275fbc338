"""cvt: one type to another. Source: NVIDIA, PTX ISA 9.1, section 9.7.9.21."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .formats import (
    NUMBERS,
    Lanes,
    canonical,
    cut_to_bfloat16,
    cut_to_float16,
    flush,
    from_bfloat16,
    from_float16,
    to_bfloat16,
    to_float16,
)
from .listing import Instruction

TO_HALF = {"bf16": to_bfloat16, "f16": to_float16}
_CUT_TO_HALF = {"bf16": cut_to_bfloat16, "f16": cut_to_float16}
FROM_HALF = {"bf16": from_bfloat16, "f16": from_float16}
_TO_WHOLE: dict[str, Any] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def conversion(instruction: Instruction) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """The function of a cvt, and the types of its sources: two for a pair of halves, else one."""
    *modifiers, to, source = instruction.modifiers
    half = (_CUT_TO_HALF if "rz" in modifiers else TO_HALF).get(to.removesuffix("x2"))
    if half is not None:
        return (half, ("f32",)) if to in TO_HALF else (lambda high, low: _pair(half(high), half(low)), ("f32", "f32"))
    if source in FROM_HALF:
        return FROM_HALF[source], ("b16",)
    whole = next((_TO_WHOLE[name] for name in modifiers if name in _TO_WHOLE), None)
    before: Callable[[Lanes], Lanes] = flush if "ftz" in modifiers and source == "f32" else np.asarray
    if "sat" in modifiers:
        return lambda x: np.where(x > 0, np.minimum(x, np.float32(1)), np.float32(0)), (source,)
    if to == "tf32":
        return _to_tf32, ("b32",)
    target = NUMBERS[to]
    if to[0] != "f":
        return (lambda x: _integer(whole(before(x)), target, source)) if whole else (lambda x: x.astype(target)), (
            source,
        )
    if whole is not None:
        return lambda x: whole(before(x)), (source,)
    if to == "f32":
        after: Callable[[Lanes], Lanes] = flush if "ftz" in modifiers else np.asarray
        return lambda x: canonical(after(x.astype(target))), (source,)
    return lambda x: x.astype(target), (source,)


def _to_tf32(bits: Lanes) -> Lanes:
    """Bits of the nearest number with 10 digits behind the leading one, of two the larger, as rna says."""
    finite = (bits & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
    return np.where(finite, (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000), bits)


def _pair(high: Lanes, low: Lanes) -> Lanes:
    return (np.asarray(high).astype(np.uint32) << np.uint32(16)) | np.asarray(low).astype(np.uint32)


def _integer(whole: Lanes, target: Any, source: str) -> Lanes:
    """Whole numbers as integers: the nearest one where they are out of range. A NaN is 0, but where source or target
    has 64 bits: there it is the integer whose highest bit alone is set.
    """
    limits, value = np.iinfo(target), np.asarray(whole, np.float64)
    nan = 0 if limits.bits < 64 and source != "f64" else limits.min or 1 << (limits.bits - 1)
    inside = (value > limits.min) & (value < float(limits.max))
    ends = np.where(value >= float(limits.max), limits.max, np.where(value <= limits.min, limits.min, 0)).astype(target)
    ends = np.where(np.isnan(value), target(nan), ends)
    return np.where(inside, np.where(inside, value, 0.0).astype(target), ends).astype(target)
