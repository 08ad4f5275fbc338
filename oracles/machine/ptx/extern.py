"""Calls of what a module does not have: printf writes nothing, an assertion that fails is a fault.

Source: NVIDIA, CUDA C++ Programming Guide, sections "Formatted Output" and "Assertion", and PTX ISA 9.1, sections
9.7.12.5 (call) and 9.7.19.4 (trap).
"""

from __future__ import annotations

import numpy as np

from ...verdicts.violation import Code, Violation
from .accesses import touch
from .chunk import Chunk
from .grammar import unknown
from .listing import Instruction, Listing
from .operands import Step, active

#: What an assertion gets: the condition, the file, the line, the function, and the bytes of a letter.
_PARTS = 5


def call_outside(instruction: Instruction, entry: Listing) -> Step:
    """A call of a function without a body.

    Raises:
        Unsupported: the machine does not know it, or it calls itself.
    """
    name, *places = map(str, instruction.operands)
    where, label = active(instruction), str(instruction)
    if name not in ("vprintf", "__assertfail") or any(place not in entry.places for place in places):
        raise unknown(instruction, f"the function {name}, which has no body here or calls itself")

    def step(chunk: Chunk) -> None:
        lanes = chunk.select_lanes(where(chunk))
        if not lanes.size:
            return
        if name == "__assertfail":
            raise _failure(chunk, int(lanes[0]), [entry.places[place] for place in places], label)
        at = np.full(lanes.size, entry.places[places[0]])
        touch(chunk, "local", at, lanes, (4, 1), label, [np.zeros(lanes.size, np.uint32)])

    return step


def _failure(chunk: Chunk, lane: int, places: list[int], label: str) -> Violation:
    """The fault of a thread whose assertion fails, with the assertion's own words."""
    values = [_word(chunk, place, lane, 4 if number == 2 else 8) for number, place in enumerate(places[:_PARTS])]
    condition, file, line, function = (
        value if number == 2 else _text(chunk, value) for number, value in enumerate(values[:4])
    )
    who = f"thread {int(chunk.within[lane])} of block {int(chunk.blocks[chunk.block[lane]])}"
    title = f"{label}: an assertion fails in {who}: {condition}"
    return Violation(Code.RAISED, title, [f"{file}:{line}: {function}"])


def _word(chunk: Chunk, place: int, lane: int, width: int) -> int:
    (value,) = touch(chunk, "local", np.array([place]), np.array([lane]), (width, 1), "call")
    return int(value[0])


def _text(chunk: Chunk, address: int) -> str:
    """The text of a variable of the module, up to its zero; "?" where none is there."""
    for name, start in chunk.context.symbols.items():
        content = chunk.context.entry.constants[name]
        if start <= address < start + len(content):
            return content[address - start :].partition(b"\0")[0].decode(errors="replace")
    return "?"


def trap(instruction: Instruction, entry: Listing) -> Step:
    """trap: the launch ends with an error."""
    where = active(instruction)

    def step(chunk: Chunk) -> None:
        lanes = chunk.select_lanes(where(chunk))
        if lanes.size:
            who = f"thread {int(chunk.within[lanes[0]])} of block {int(chunk.blocks[chunk.block[lanes[0]]])}"
            raise Violation(Code.RAISED, f"{instruction}: {who} ends the launch with an error", [])

    return step
