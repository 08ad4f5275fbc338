"""Steps that change memory by one operation that nothing comes between: atom, and red, which gives nothing back.

Source: NVIDIA, PTX ISA 9.1, sections 9.7.13.5 (atom), 9.7.13.6 (red) and 9.7.9.25.4.2 (cp.reduce.async.bulk).

What is hard here: in which order threads come to one element is not decided. Here they come in the order of their
numbers, or warp by warp from the last one, as the hardware's order says; an execution of each shows a result that hangs
on it, as rounded sums do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from .accesses import is_releasing, places, spread_over
from .arithmetic import operation
from .books import Access
from .chunk import Chunk
from .formats import BITS, NUMBERS, WIDTHS, Lanes
from .grammar import unknown
from .listing import Instruction, Listing
from .operands import Step, active, destination, elements, reader

_FLOATS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")


def update(instruction: Instruction, entry: Listing) -> Step:
    """atom and red."""
    place = places(instruction, instruction.operands[1 if instruction.name == "atom" else 0], entry)
    target, sources = None, instruction.operands[1:]
    if instruction.name == "atom":
        target, sources = instruction.operands[0], instruction.operands[2:]
    verb, kind = _verb(instruction), instruction.kind
    names = [] if target is None else [n if n == "_" else destination(instruction, n, entry) for n in elements(target)]
    readers = [[reader(instruction, each, f"b{8 * WIDTHS[kind]}", entry) for each in elements(s)] for s in sources]
    count = len(readers[0])
    if any(len(each) != count for each in readers) or len(readers) != (2 if verb == "cas" else 1):
        raise unknown(instruction, f"the operands {instruction.operands}")
    change, where, label = _change(instruction), active(instruction), str(instruction)
    sums, releases = _sums(instruction), is_releasing(instruction)

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        lanes = chunk.select_lanes(threads)
        if not lanes.size:
            return
        values = [[chunk.spread(reader(chunk))[lanes] for reader in each] for each in readers]

        def result(old: Lanes, which: Lanes, number: int) -> Lanes:
            return change(old, *[each[number][which] for each in values])

        old_values = [np.zeros(lanes.size, BITS[WIDTHS[kind]]) for _ in range(count)]
        for memory, access, own in place(chunk, lanes, (WIDTHS[kind], count), label):

            def of_own(old: Lanes, which: Lanes, number: int, own: Any = own) -> Lanes:
                return result(old, chunk.lanes[: lanes.size][own][which], number)

            for whole, part in zip(old_values, memory.update(access, of_own, releases), strict=True):
                whole[own] = part
            chunk.context.unordered |= sums and memory.shared_updates
        for name, value in zip(names, old_values, strict=False):
            if name != "_":
                chunk.write(name, spread_over(chunk, lanes, value, threads), threads)

    return step


def change_global(chunk: Chunk, instruction: Instruction, access: Access, values: Lanes) -> None:
    """Change elements of global memory by bits, one for each thread of an access; of asynchronous reductions."""
    memory, change = chunk.context.memory, _change(instruction)
    memory.update(access, lambda old, which, _: change(old, values[which]), False)
    chunk.context.unordered |= _sums(instruction) and memory.shared_updates


def _sums(instruction: Instruction) -> bool:
    """Whether it adds numbers whose sum hangs on their order."""
    return _verb(instruction) == "add" and instruction.kind in _FLOATS


def _verb(instruction: Instruction) -> str:
    """What an atomic operation does."""
    return next(m for m in instruction.modifiers if re.fullmatch("add|min|max|and|or|xor|exch|cas|inc|dec", m))


def _change(instruction: Instruction) -> Callable[..., Lanes]:
    """A function of the bits that are there and of the sources, which gives those that are to be."""
    verb, kind = _verb(instruction), instruction.kind
    number, bits = NUMBERS[kind], BITS[WIDTHS[kind]]
    if verb == "exch":
        return lambda old, new: new
    if verb == "cas":
        return lambda old, compared, new: np.where(old == compared, new, old)
    if verb == "inc":
        return lambda old, limit: np.where(old >= limit, bits(0), old + bits(1))
    if verb == "dec":
        return lambda old, limit: np.where((old == 0) | (old > limit), limit, old - bits(1))
    # Sums of float32 in global memory take subnormal numbers for what they are only since sm_20; nothing older is here.
    # Those of whole rows do not: "the current implementation [...] flushes subnormal inputs and results".
    rounding = ("rn",) if _sums(instruction) else ()
    flushed = ("ftz",) if instruction.name == "cp" and (verb, kind) == ("add", "f32") else ()
    computation = operation(Instruction(verb, (*rounding, *flushed, kind), ()))
    if computation is None:
        raise unknown(instruction)

    def compute(old: Lanes, value: Lanes) -> Lanes:
        operands: Any = [each.view(NUMBERS[of]) for each, of in zip((old, value), computation.kinds, strict=True)]
        result = np.asarray(computation.compute(*operands))
        # Those of half types are bits already.
        return result if result.dtype == bits else result.astype(number, copy=False).view(bits)

    return compute
