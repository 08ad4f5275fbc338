"""Which sum or product of 32 bits did not hold its value and went on into an address.

What is hard here: a wrapped number is no fault by itself. So each instruction that may wrap notes the threads in which
it does, and each access asks whether its address, followed back through the registers, comes of one of these.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .chunk import Chunk
from .formats import Lanes
from .listing import Instruction, Listing
from .operands import Step, active, elements, offset, reader

#: The exact value of an instruction on numbers of 64 bits, by its name.
_EXACT: dict[str, Callable[..., Lanes]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "mad": lambda a, b, c: a * b + c, "shl": lambda a, b: a << np.minimum(b & 0xFFFFFFFF, 31),
}  # fmt: skip
_WORDS = {"add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "mad": "{} * {} + {}", "shl": "{} << {}"}
_KINDS = frozenset({"s32", "u32", "b32"})
#: Instructions that touch memory, and where their operands have the address.
_ADDRESS = {"ld": 1, "st": 0, "atom": 1, "red": 0, "cp": 1}


@dataclass
class Wraps:
    """The wrapped numbers of a launch.

    Attributes:
        entry: the program. threads: of each instruction that wrapped, those in which it did. words: about the last one.
        lines: by access, which of them its address comes of.
    """

    entry: Listing
    threads: dict[Instruction, Lanes] = field(default_factory=dict)
    words: dict[Instruction, str] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)

    def note(self, instruction: Instruction, threads: Lanes, values: list[int], exact: int) -> None:
        """An instruction wrapped."""
        whole = _WORDS[instruction.name].format(*values)
        self.threads[instruction] = threads
        self.words[instruction] = f"{instruction}: {whole} = {exact} does not fit into 32 bits"

    def ask(self, access: Instruction, threads: Lanes) -> None:
        """Some threads touch memory."""
        for each in self._sources(access) if self.threads else ():
            if each in self.threads and np.isin(threads, self.threads[each]).any():
                self.lines.setdefault(str(access), self.words[each])
                return

    @functools.cached_property
    def _writers(self) -> dict[str, list[Instruction]]:
        writers: dict[str, list[Instruction]] = {}
        for each in (instruction for block in self.entry.blocks for instruction in block):
            for name in elements(each.operands[0]) if each.operands and each.name not in ("st", "red") else ():
                writers.setdefault(name, []).append(each)
        return writers

    def _sources(self, access: Instruction) -> list[Instruction]:
        """What an address is computed by, in the order of the text."""
        name, _ = offset(access, access.operands[_ADDRESS[access.name]])
        registers, instructions = [name], dict[Instruction, None]()
        while registers:
            for each in self._writers.get(registers.pop(), ()):
                if each not in instructions and each.name != "ld":
                    instructions[each] = None
                    registers += [name for operand in each.operands[1:] for name in elements(operand)]
        return sorted(instructions, key=lambda each: each.line)


def watch(instruction: Instruction, step: Step, wraps: Wraps) -> Step:
    """The step of an instruction, which notes what wraps and which addresses come of that."""
    entry = wraps.entry
    if instruction.name in _ADDRESS and not {"param", "shared", "local"} & {*instruction.modifiers[:2]}:
        if instruction.name == "cp" and instruction.modifiers[1:2] not in (("ca",), ("cg",)):
            return step
        return _with_question(instruction, step, wraps)
    low = instruction.name in ("add", "sub", "shl") or instruction.modifiers[:1] == ("lo",)
    if instruction.name not in _EXACT or not low or instruction.kind not in _KINDS or "cc" in instruction.modifiers:
        return step
    readers = [reader(instruction, each, "s32", entry) for each in instruction.operands[1:]]
    where, compute = active(instruction), _EXACT[instruction.name]

    def note(chunk: Chunk) -> None:
        values: list[Any] = [np.asarray(read(chunk)).astype(np.int64) for read in readers]
        exact = compute(*values)
        over = exact != exact.astype(np.int32)
        if over.any():
            mask = where(chunk)
            lanes = np.flatnonzero(chunk.spread(over) if mask is None else chunk.spread(over) & mask)
            if lanes.size:
                first = [int(chunk.spread(value)[lanes[0]]) for value in (*values, exact)]
                wraps.note(instruction, chunk.numbers[lanes], first[:-1], first[-1])
        step(chunk)

    return note


def _with_question(instruction: Instruction, step: Step, wraps: Wraps) -> Step:
    where = active(instruction)

    def ask(chunk: Chunk) -> None:
        if wraps.threads:
            wraps.ask(instruction, chunk.numbers[chunk.select_lanes(where(chunk))])
        step(chunk)

    return ask
