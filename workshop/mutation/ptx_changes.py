"""The mutants of PTX: one instruction of one compiled kernel changed."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Set
from dataclasses import asdict, dataclass, replace
from typing import Any

from opassay.oracles.machine.ptx.formats import WIDTHS
from opassay.oracles.machine.ptx.grammar import require_known
from opassay.oracles.machine.ptx.listing import Instruction, Listing, Operand
from opassay.oracles.verdicts.violation import Unsupported

#: What a comparison becomes that takes one number more or one less.
_OFF_BY_ONE = {a + u: b + u for a, b in (("lt", "le"), ("le", "lt"), ("gt", "ge"), ("ge", "gt")) for u in ("", "u")}
#: The sources that change places: none of an operation that commutes, for those of its mutants would be the same.
_SWAPPED = {"sub": (1, 2), "div": (1, 2), "fma": (2, 3), "mad": (2, 3), "selp": (1, 2), "prmt": (1, 2)}
#: Their numbers are no values that a kernel computes with: masks of lanes, and places among parameters.
_WITHOUT_CONSTANTS = frozenset({"shfl", "bar", "barrier", "vote", "redux", "ld", "st", "bra", "cp", "prmt"})
_WITHOUT_TARGET = frozenset({"st", "red", "cp", "bar", "barrier"})
_INTEGER = re.compile(r"-?(0x[0-9a-fA-F]+|\d+)")
_SINGLE = re.compile(r"0f[0-9A-Fa-f]{8}")
#: A bit of the fraction of float32 that changes a number by a sixteenth to an eighth.
_SIXTEENTH, _ONE = 0x00100000, 0x3F800000
#: Bits that no kernel has a use for.
_NOISE = 0x5A5B_3C1D_2E4F_6975


@dataclass(frozen=True)
class PtxMutant:
    """One changed instruction of one program.

    Attributes:
        family: of the ops. kernel, program: the name of the entry, and the digest of its text.
        kind: what kind of mistake it is. line: of the text, from 1. old, new: the instruction, and what replaces it.
    """

    family: str
    kernel: str
    program: str
    kind: str
    line: int
    old: str
    new: str

    @property
    def key(self) -> str:
        """A name of ten characters; it stays the same as long as the compiler writes the same text."""
        text = "\0".join(map(str, asdict(self).values()))
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    def text_of(self, text: str) -> str:
        """The text of the program with the change in it."""
        lines = text.splitlines()
        lines[self.line - 1] = self.new
        return "\n".join(lines)


def mutants_of(family: str, program: str, text: str, entry: Listing, blocks: set[int]) -> list[PtxMutant]:
    """Every mutant of a program.

    Args:
        family, program: as of `PtxMutant`. text, entry: the program, and as it was read.
        blocks: the numbers of those of its basic blocks that were executed; the others have no mutants here.
    """
    lines = text.splitlines()
    mutants: list[PtxMutant] = []
    kinds = KINDS | {"constant": functools.partial(_change_constant, floats=_float_registers(entry))}
    for number in sorted(blocks):
        for instruction in entry.blocks[number]:
            line = lines[instruction.line - 1].strip()
            if line.count(";") != 1 or "@" in "".join(map(str, instruction.operands)):
                continue  # several statements, or registers of an inner scope
            for kind, change in kinds.items():
                mutants += [
                    PtxMutant(family, entry.name, program, kind, instruction.line, line, new)
                    for new in change(instruction)
                ]
    return mutants


def disturb(mutant: PtxMutant, entry: Listing) -> PtxMutant | None:
    """Another mutant of the same instruction, whose result has other bits: it shows whether any output depends on it.

    A store is left out. None for a barrier, on which no output depends where nothing races.

    Args:
        mutant: of a program. entry: the program, as it was read.
    """
    number, place = place_of(entry, mutant.line)
    instruction = entry.blocks[number][place]
    if instruction.name in ("bar", "barrier"):
        return None
    if instruction.name in _WITHOUT_TARGET:
        return replace(mutant, kind="disturbed", new="")
    guard = f"@{'!' * instruction.negated}{instruction.predicate} " if instruction.predicate else ""
    lines = [mutant.old]
    for name in targets_of(instruction, entry):
        bits = 8 * entry.registers[name]
        change = (
            f"not.pred {name}, {name};" if bits == 8 else f"xor.b{bits} {name}, {name}, {_NOISE % (1 << bits - 1)};"
        )
        lines.append(guard + change)
    return replace(mutant, kind="disturbed", new="\n".join(lines))


def place_of(entry: Listing, line: int) -> tuple[int, int]:
    """The basic block of the instruction on a line, and its place there."""
    return next(
        (number, place)
        for number, block in enumerate(entry.blocks)
        for place, each in enumerate(block)
        if each.line == line
    )


def targets_of(instruction: Instruction, entry: Listing) -> list[str]:
    """The registers that an instruction writes."""
    if instruction.name in _WITHOUT_TARGET:
        return []
    target = instruction.operands[0]
    return [name for name in (target.split("|") if isinstance(target, str) else target) if name in entry.registers]


def _text_of(instruction: Instruction) -> str:
    """The text of an instruction."""
    guard = f"@{'!' * instruction.negated}{instruction.predicate} " if instruction.predicate else ""
    operands = ", ".join(_operand(each) for each in instruction.operands)
    return f"{guard}{instruction.opcode} {operands};"


def _operand(operand: Operand) -> str:
    return operand if isinstance(operand, str) else "{ " + ", ".join(operand) + " }"


def _known(instruction: Instruction, **changes: Any) -> Iterator[str]:
    """The text of a changed instruction, if the machine can execute it."""
    changed = replace(instruction, **changes)
    try:
        require_known(changed)
    except Unsupported:
        return
    yield _text_of(changed)


def _drop_barrier(instruction: Instruction) -> Iterator[str]:
    if instruction.name in ("bar", "barrier"):
        yield ""


def _drop_predicate(instruction: Instruction) -> Iterator[str]:
    # A branch without its predicate is a loop without an end, or code that is never reached.
    if instruction.predicate and instruction.name != "bra":
        yield from _known(instruction, predicate="", negated=False)


def _compare_off_by_one(instruction: Instruction) -> Iterator[str]:
    if instruction.name == "setp" and instruction.modifiers[0] in _OFF_BY_ONE:
        relation, *others = instruction.modifiers
        yield from _known(instruction, modifiers=(_OFF_BY_ONE[relation], *others))


def _flush(instruction: Instruction) -> Iterator[str]:
    """Add `.ftz`, or drop it."""
    modifiers = instruction.modifiers
    if "ftz" in modifiers:
        yield from _known(instruction, modifiers=tuple(each for each in modifiers if each != "ftz"))
    elif instruction.kind == "f32":
        yield from _known(instruction, modifiers=(*modifiers[:-1], "ftz", "f32"))


def _swap(instruction: Instruction) -> Iterator[str]:
    """Two sources that change places, or the two parts of what is put together of two."""
    operands = list(instruction.operands)
    places = (1, 2) if instruction.name == "setp" and instruction.modifiers[0][:2] in ("lt", "le", "gt", "ge") else None
    places = places or _SWAPPED.get(instruction.name)
    if instruction.name == "cvt" and len(operands) == 3:
        places = 1, 2
    if instruction.name == "mov" and isinstance(operands[-1], tuple):
        operands[-1] = operands[-1][::-1]
    elif places is not None:
        first, second = places
        operands[first], operands[second] = operands[second], operands[first]
    if tuple(operands) != instruction.operands:
        yield from _known(instruction, operands=tuple(operands))


def _round_to_zero(instruction: Instruction) -> Iterator[str]:
    """Towards zero what is rounded to nearest."""
    nearest = {"rn": "rz", "rni": "rzi"}
    first, *others = instruction.modifiers or ("",)
    if first in nearest:
        yield from _known(instruction, modifiers=(nearest[first], *others))


def _shuffle_elsewhere(instruction: Instruction) -> Iterator[str]:
    if instruction.name == "shfl" and isinstance(instruction.operands[2], str) and instruction.operands[2].isdigit():
        distance = int(instruction.operands[2])
        operands = [*instruction.operands]
        operands[2] = str(distance // 2 or 2)
        yield from _known(instruction, operands=tuple(operands))


def _move_address(instruction: Instruction) -> Iterator[str]:
    """The address of the neighbour."""
    if instruction.name not in ("ld", "st") or "param" in instruction.modifiers:
        return
    place = 1 if instruction.name == "ld" else 0
    address, vector = str(instruction.operands[place]), instruction.operands[1 - place]
    width = WIDTHS[instruction.kind] * (1 if isinstance(vector, str) else len(vector))
    name, _, offset = address.strip("[] ").partition("+")
    operands = [*instruction.operands]
    operands[place] = f"[{name.strip()}+{int(offset or '0', 0) + width}]"
    yield from _known(instruction, operands=tuple(operands))


def _float_registers(entry: Listing) -> frozenset[str]:
    """The registers that some instruction computes with as float32, and those that such ones are copies of."""
    every = [each for block in entry.blocks for each in block]
    computing = (each for each in every if each.kind == "f32" and each.name != "cvt")
    floats = {name for each in computing for name in each.operands if isinstance(name, str)}
    copies = [each.operands for each in every if each.name in ("mov", "selp")]
    while more := {name for to, *of in copies if to in floats for name in of if isinstance(name, str)} - floats:
        floats |= more
    return frozenset(floats)


def _change_constant(instruction: Instruction, floats: Set[str] = frozenset()) -> Iterator[str]:
    """An integer that is one more, a number of float32 that is another one.

    Args:
        floats: registers of float32. Where one of them is written, an integer stands for the bits of such a number, of
            which one more is an error in the last digit, which every bound allows.
    """
    if instruction.name in _WITHOUT_CONSTANTS or instruction.kind == "pred":
        return
    for place, operand in enumerate(instruction.operands[1:], 1):
        if not isinstance(operand, str):
            continue
        new = ""
        if _SINGLE.fullmatch(operand):
            new = f"0f{_another_single(int(operand[2:], 16)):08X}"
        elif _INTEGER.fullmatch(operand):
            number, of_float = int(operand, 0), instruction.operands[0] in floats
            new = str(_another_single(number) if of_float and _is_single(number) else number + 1)
        if new:
            yield from _known(
                instruction, operands=(*instruction.operands[:place], new, *instruction.operands[place + 1 :])
            )


def _another_single(bits: int) -> int:
    """The bits of another number of float32: a sixteenth to an eighth larger or smaller; of one for a zero."""
    return bits ^ _SIXTEENTH if bits & 0x7FFFFFFF else _ONE


def _is_single(bits: int) -> bool:
    """Whether an integer may stand for a number of float32: a zero, or one that is not subnormal."""
    return bits == 0 or 0x00800000 <= bits & 0x7FFFFFFF < 0x7F800000


#: By kind, what it makes of an instruction: the texts that may replace it.
KINDS: dict[str, Callable[[Instruction], Iterator[str]]] = {
    "barrier dropped": _drop_barrier, "predicate dropped": _drop_predicate,
    "comparison off by one": _compare_off_by_one, "ftz": _flush, "operands swapped": _swap,
    "rounding": _round_to_zero, "shuffle distance": _shuffle_elsewhere,
    "address": _move_address, "constant": _change_constant,
}  # fmt: skip
