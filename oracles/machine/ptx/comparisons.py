"""setp: comparisons, which are ordered (false of a NaN) or not (true of one), and may be combined with a predicate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .chunk import Chunk
from .conversions import FROM_HALF
from .formats import Lanes, flush, from_bfloat16
from .listing import Instruction, Listing
from .operands import Step, active, destination, reader

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
