"""Steps that touch memory: loads, stores, parameters, asynchronous copies.

Source: NVIDIA, PTX ISA 9.1, sections 9.7.9.8 (ld), 9.7.9.11 (st), 9.7.9.25.3 (cp.async).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ...verdicts.violation import Code, Violation
from .chunk import Chunk
from .formats import BITS, NUMBERS, WIDTHS, WINDOWS, Lanes
from .grammar import unknown
from .listing import Instruction, Listing, Operand
from .ongoing import WorkGroups
from .operands import Step, active, address, destination, elements, offset, reader
from .space import Access, Space

#: What has other blocks see what a thread did before it.
_RELEASING = frozenset({"release", "acq_rel"})
#: What orders a load or a store with atomic operations.
_STRONG = frozenset({"volatile", "relaxed", "acquire", "release", "mmio"})


Placing = Callable[[Chunk, Lanes, tuple[int, int], str], list[tuple[Space, Access, Any]]]


def places(instruction: Instruction, operand: Operand, entry: Listing) -> Placing:
    """A function that gives what threads touch: for each state space the access, and which of the threads make it.

    Its arguments are the running threads; the numbers of those that touch; bytes of an element, and how many of them
    there are in a row; and the instruction in words. Where the instruction names no space, the address says which.
    """
    space = next((name for name in instruction.modifiers if name in _SPACES), "")
    space = _SPACES.get(space, "generic")
    where = address(instruction, operand, entry, space)

    def place(chunk: Chunk, lanes: Lanes, shape: tuple[int, int], label: str) -> list[tuple[Space, Access, Any]]:
        at = chunk.pick(where(chunk), lanes)
        if space != "generic":
            return [_access(chunk, space, at, lanes, shape, label, slice(None))]
        if ((at >= WINDOWS["param"]) & (at < WINDOWS["global"])).any():
            raise unknown(instruction, "an address of a parameter")
        of_shared, of_local, of_global = (at >= WINDOWS[name] for name in ("shared", "local", "global"))
        # What is in no window is outside of global memory, too.
        parts = {"cluster": of_shared & ~of_local, "local": of_local & ~of_global, "global": of_global | ~of_shared}
        return [
            _access(chunk, name, at[part] - WINDOWS[name], lanes[part], shape, label, np.flatnonzero(part))
            for name, part in parts.items()
            if part.any()
        ]

    return place


#: The state spaces that an instruction may name, and whose they are.
_SPACES = {"global": "global", "const": "global", "shared": "shared", "shared::cta": "shared", "local": "local",
           "shared::cluster": "cluster"}  # fmt: skip


def _access(
    chunk: Chunk, space: str, at: Lanes, lanes: Lanes, shape: tuple[int, int], label: str, own: Any
) -> tuple[Space, Access, Any]:
    if space == "shared":
        return chunk.shared, Access(at + chunk.block[lanes] * chunk.context.shared, lanes, *shape, label), own
    if space == "cluster":
        homes, at = chunk.find_home(at, lanes, label)
        base = (chunk.block[lanes] if homes is None else homes) * chunk.context.shared
        return chunk.shared, Access(at + base, lanes, *shape, label, homes), own
    if space == "local":
        part = chunk.local.part
        return chunk.local, Access(at + lanes * part, lanes, *shape, label), own
    return chunk.context.memory, Access(at, chunk.pick(chunk.numbers, lanes), *shape, label), own


def touch(
    chunk: Chunk, space: str, at: Lanes, lanes: Lanes, shape: tuple[int, int], where: str,
    values: list[Lanes] | None = None,
) -> list[Lanes]:  # fmt: skip
    """Load, or store `values`.

    Args:
        chunk: whose threads they are. space: "global" or "shared".
        at, lanes: the address of each thread, and which threads they are.
        shape: bytes of an element, and how many of them there are in a row. where: the instruction in words.
    """
    memory, access, _ = _access(chunk, space, at, lanes, shape, where, lanes)
    if values is None:
        return memory.load(access)
    memory.store(access, values)
    return []


def spread_over(chunk: Chunk, lanes: Lanes, value: Lanes, threads: Lanes | None) -> Lanes:
    """Values of the chosen threads as those of all threads; `threads` is None where all are chosen."""
    if threads is None:
        return value
    whole = np.zeros(chunk.size, value.dtype)
    whole[lanes] = value
    return whole


def is_strong(instruction: Instruction) -> bool:
    """Whether a load or a store is ordered with atomic operations."""
    return not _STRONG.isdisjoint(instruction.modifiers)


def is_releasing(instruction: Instruction) -> bool:
    """Whether other blocks see what was done before an operation when they see the operation."""
    words = {*instruction.modifiers}
    return not _RELEASING.isdisjoint(words) and words.isdisjoint(("cta", "cluster"))


def load(instruction: Instruction, entry: Listing) -> Step:
    """ld, of a vector too."""
    if instruction.modifiers[0] == "param":
        return _load_parameter(instruction, entry)
    target, source = instruction.operands
    names = [name if name == "_" else destination(instruction, name, entry) for name in elements(target)]
    kind, label, strong = instruction.kind, str(instruction), is_strong(instruction)
    shape = WIDTHS[kind], len(names)
    used = [number for number, name in enumerate(names) if name != "_"]
    _require_count(instruction, len(names))
    place, where = places(instruction, source, entry), active(instruction)

    def step(chunk: Chunk) -> None:
        threads = where(chunk)
        lanes = chunk.select_lanes(threads)
        if not lanes.size:
            return
        loaded = [np.empty(lanes.size, BITS[shape[0]]) for _ in names]
        for memory, access, own in place(chunk, lanes, shape, label):
            for number, part in zip(used, _read(memory, access, used, strong), strict=True):
                loaded[number][own] = part
        for number in used:
            # The sign of a signed type goes on into a wider register.
            value = loaded[number].view(NUMBERS[kind])
            chunk.write(names[number], spread_over(chunk, lanes, value, threads), threads)

    return step


def _read(memory: Space, access: Access, used: list[int], strong: bool) -> list[Lanes]:
    """The elements of rows that are used; the others may be written meanwhile, but the row's place is that of all."""
    if len(used) == access.count:
        return memory.load(access, strong)
    if (access.addresses % access.whole).any():
        raise Violation(Code.MISALIGNED, f"{access.where}: an address is no multiple of {access.whole}")
    return [part for number in used for part in memory.load(access.element(number), strong)]


def _require_count(instruction: Instruction, count: int) -> None:
    """Require as many operands as the instruction's ".v2" or ".v4" says."""
    vector = next((int(name[1:]) for name in instruction.modifiers if re.fullmatch(r"v\d", name)), 1)
    if vector != count:
        raise unknown(instruction, f"{count} operands of a vector of {vector}")


def _load_parameter(instruction: Instruction, entry: Listing) -> Step:
    kind, where = instruction.kind, active(instruction)
    target, source = instruction.operands
    registers, (name, start) = (
        [destination(instruction, x, entry) for x in elements(target)],
        offset(instruction, source),
    )
    if name in entry.registers:
        return _load_chosen_parameter(instruction, registers, entry)
    if name not in entry.parameters:
        raise unknown(instruction, f"the parameter {name}")

    def step(chunk: Chunk) -> None:
        raw = chunk.context.parameters[name][start : start + WIDTHS[kind] * len(registers)]
        for register, value in zip(registers, np.frombuffer(raw, NUMBERS[kind]), strict=True):
            chunk.write(register, value, where(chunk))

    return step


def _load_chosen_parameter(instruction: Instruction, registers: list[str], entry: Listing) -> Step:
    """Of parameters whose address is in a register: compilers choose there between two pointers of one use."""
    kind, where = instruction.kind, active(instruction)
    place = address(instruction, instruction.operands[1], entry, "generic")

    def step(chunk: Chunk) -> None:
        threads, at = where(chunk), place(chunk) - WINDOWS["param"]
        values = np.zeros((len(registers), at.size), NUMBERS[kind])
        for start in np.unique(at[chunk.select_lanes(threads)]):
            raw = chunk.context.parameter_bytes(int(start), WIDTHS[kind] * len(registers))
            values[:, at == start] = np.frombuffer(raw, NUMBERS[kind])[:, None]
        for register, value in zip(registers, values, strict=True):
            chunk.write(register, value, threads)

    return step


def store(instruction: Instruction, entry: Listing) -> Step:
    """st, of a vector too."""
    target, source = instruction.operands
    width, label = WIDTHS[instruction.kind], str(instruction)
    strong, releases = is_strong(instruction), is_releasing(instruction)
    readers = [reader(instruction, each, f"b{8 * width}", entry) for each in elements(source)]
    _require_count(instruction, len(readers))
    place, where = places(instruction, target, entry), active(instruction)

    def step(chunk: Chunk) -> None:
        lanes = chunk.select_lanes(where(chunk))
        if not lanes.size:
            return
        values = [chunk.pick(chunk.spread(reader(chunk)), lanes) for reader in readers]
        for memory, access, own in place(chunk, lanes, (width, len(values)), label):
            memory.store(access, [value[own] for value in values], strong, releases)

    return step


def copy(instruction: Instruction, entry: Listing) -> Step:
    """cp.async: what is copied is there once the thread has waited for its group, and not before."""
    return group_work(instruction, lambda chunk: chunk.begun.copies) or _begin_copy(instruction, entry)


def group_work(instruction: Instruction, groups: Callable[[Chunk], WorkGroups]) -> Step | None:
    """The step that closes a group of work, or waits for groups; None for an instruction that does neither.

    Args:
        groups: those of a chunk that the instruction is about.
    """
    words, where = {*instruction.modifiers}, active(instruction)
    if "commit_group" in words:
        return lambda chunk: groups(chunk).close(chunk.select_lanes(where(chunk)))
    if not words & {"wait_group", "wait_all"}:
        return None
    but = read_count(instruction) if "wait_group" in words else None
    return lambda chunk: complete(chunk, groups(chunk), where(chunk), but)


def read_count(instruction: Instruction) -> int:
    """The number that is an instruction's only operand."""
    (count,) = instruction.operands
    if not isinstance(count, str) or not count.isdecimal():
        raise unknown(instruction, f"the number {count}")
    return int(count)


def _begin_copy(instruction: Instruction, entry: Listing) -> Step:
    target, source, size, *rest = instruction.operands
    if not isinstance(size, str) or len(rest) > 1:
        raise unknown(instruction, f"the operands {instruction.operands}")
    to, start = address(instruction, target, entry, "shared"), address(instruction, source, entry, "global")
    amount = reader(instruction, rest[0] if rest else size, "b32", entry)
    whole = int(size, 0)
    width, label, where = min(whole, 8), str(instruction), active(instruction)

    def step(chunk: Chunk) -> None:
        lanes = chunk.select_lanes(where(chunk))
        if not lanes.size:
            return
        amounts = chunk.spread(amount(chunk))[lanes]
        full = amounts == whole
        if (~full & (amounts != 0)).any():
            raise unknown(instruction, "a copy of some of its bytes")
        # What is not copied becomes zeros.
        words = [np.zeros(lanes.size, BITS[width]) for _ in range(whole // width)]
        if full.any():
            loaded = touch(chunk, "global", start(chunk)[lanes][full], lanes[full], (width, len(words)), label)
            for word, value in zip(words, loaded, strict=True):
                word[full] = value
        at = to(chunk)[lanes] + chunk.block[lanes] * chunk.context.shared
        access = Access(at, lanes, width, len(words), label)
        chunk.shared.begin(access, words)
        chunk.begun.copies.begin(access, words)

    return step


def complete(chunk: Chunk, groups: WorkGroups, threads: Lanes | None, but: int | None) -> None:
    """End work of threads that wait for all of their groups but so many; None: for all that they began."""
    for each in groups.wait(chunk.select_lanes(threads), but):
        chunk.shared.end(each.access, each.words)
