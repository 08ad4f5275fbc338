"""Steps that compute registers of registers: arithmetic, and mov with its vectors."""

from __future__ import annotations

import numpy as np

from .arithmetic import Compute, operation
from .chunk import Chunk
from .formats import BITS, WIDTHS
from .grammar import unknown
from .listing import Instruction, Listing, Operand
from .operands import Step, active, destination, elements, reader


def compute(instruction: Instruction, entry: Listing) -> Step:
    """A step of an instruction of `arithmetic`."""
    operate = operation(instruction)
    target, *sources = instruction.operands
    if operate is None or len(sources) != len(operate.kinds):
        raise unknown(instruction, f"{len(sources)} sources")
    return _assign(instruction, entry, operate.compute, list(zip(sources, operate.kinds, strict=True)), target)


def _assign(
    instruction: Instruction, entry: Listing, function: Compute, sources: list[tuple[Operand, str]], target: Operand
) -> Step:
    readers = [reader(instruction, source, kind, entry) for source, kind in sources]
    name, where = destination(instruction, target, entry), active(instruction)
    if len(readers) == 1:
        only = readers[0]
        return lambda chunk: chunk.write(name, np.asarray(function(only(chunk))), where(chunk))
    if len(readers) == 2:
        first, second = readers
        return lambda chunk: chunk.write(name, np.asarray(function(first(chunk), second(chunk))), where(chunk))
    return lambda chunk: chunk.write(name, np.asarray(function(*[reader(chunk) for reader in readers])), where(chunk))


def move(instruction: Instruction, entry: Listing) -> Step:
    """mov: a register, a vector taken apart, or a vector put together."""
    target, source = instruction.operands
    kind = instruction.kind
    if isinstance(target, tuple):
        return _take_apart(instruction, entry, target, source)
    if not isinstance(source, tuple):
        return _assign(instruction, entry, lambda a: a, [(source, kind)], target)
    width = WIDTHS[kind] // len(source)
    wide, shift = BITS[WIDTHS[kind]], 8 * width

    def put_together(*parts: np.ndarray) -> np.ndarray:
        whole = parts[0].astype(wide)
        for number, part in enumerate(parts[1:], 1):
            whole = whole | (part.astype(wide) << wide(shift * number))
        return whole

    return _assign(instruction, entry, put_together, [(part, f"b{shift}") for part in source], target)


def _take_apart(instruction: Instruction, entry: Listing, targets: tuple[str, ...], source: Operand) -> Step:
    kind = instruction.kind
    width, whole = WIDTHS[kind] // len(targets), reader(instruction, source, kind, entry)
    names = [name if name == "_" else destination(instruction, name, entry) for name in elements(targets)]
    where = active(instruction)

    def step(chunk: Chunk) -> None:
        value, threads = whole(chunk), where(chunk)
        for number, name in enumerate(names):
            if name != "_":
                part = np.asarray(value >> value.dtype.type(8 * width * number))
                chunk.write(name, part.astype(BITS[width]), threads)

    return step


def create_policy(instruction: Instruction, entry: Listing) -> Step:
    """createpolicy: how long a cache is to keep what an instruction names it for, which no value depends on."""
    name, where = destination(instruction, instruction.operands[0], entry), active(instruction)
    return lambda chunk: chunk.write(name, np.uint64(0), where(chunk))
