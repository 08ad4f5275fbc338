"""Operands of an instruction as functions of the running threads: values, addresses, and who is active."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from .chunk import Chunk
from .formats import BASE, NUMBERS, WINDOWS, Lanes, as_type, read_number
from .grammar import unknown
from .listing import Instruction, Listing, Operand

Reader: TypeAlias = Callable[[Chunk], Lanes]
Step: TypeAlias = Callable[[Chunk], None]

_ADDRESS = re.compile(r"\[\s*([%\w$.@]+)\s*(?:\+\s*(-?\w+))?\s*\]")
_CLOCKS = frozenset({"%clock", "%clock64", "%globaltimer"})
_SPECIAL = frozenset({
    "%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid", "%nwarpid", "%clusterid", "%nclusterid",
    "%cluster_ctaid", "%cluster_nctaid", "%cluster_ctarank", "%cluster_nctarank", "%dynamic_smem_size",
})  # fmt: skip


def reader(instruction: Instruction, operand: Operand, kind: str, entry: Listing) -> Reader:
    """A function that gives an operand in a type.

    Raises:
        Unsupported: the operand is of a form that is not known.
    """
    dtype = NUMBERS[kind]
    if not isinstance(operand, str):
        raise unknown(instruction, f"a vector of operands, {operand}")
    if operand.startswith("!"):
        inner = reader(instruction, operand[1:], kind, entry)
        return lambda chunk: np.logical_not(inner(chunk))
    if operand.startswith("-") and kind in ("f32", "f64"):  # of `contraction`
        inner = reader(instruction, operand[1:], kind, entry)
        return lambda chunk: np.negative(inner(chunk))
    if operand in entry.registers:
        name = operand
        return (lambda chunk: chunk.read(name)) if kind == "pred" else (lambda chunk: as_type(chunk.read(name), dtype))
    if operand.partition(".")[0] in _SPECIAL or operand.startswith("%lanemask_"):
        return lambda chunk: as_type(chunk.special[operand], dtype)
    if operand in _CLOCKS:
        return lambda chunk: dtype(chunk.read_clock())
    try:
        constant: Lanes
        if kind == "pred":
            constant = np.bool_(int(operand, 0))
        elif operand in entry.constants:
            return lambda chunk: dtype(chunk.context.symbols[operand])
        elif operand in entry.parameters:
            constant = dtype(WINDOWS["param"] + entry.parameter_place(operand))
        elif operand in entry.places:
            constant = dtype(entry.places[operand])
        else:
            constant = read_number(operand, kind)
    except ValueError:
        raise unknown(instruction, f"the operand {operand}") from None
    return lambda chunk: constant


def destination(instruction: Instruction, operand: Operand, entry: Listing) -> str:
    """The register that an instruction writes."""
    if not isinstance(operand, str) or operand not in entry.registers:
        raise unknown(instruction, f"the destination {operand}")
    return operand


def elements(operand: Operand) -> tuple[str, ...]:
    """The operands of a vector, or one alone."""
    return (operand,) if isinstance(operand, str) else operand


def active(instruction: Instruction) -> Callable[[Chunk], Lanes | None]:
    """A function that gives the threads in which an instruction counts; None for all."""
    if not instruction.predicate:
        return lambda chunk: chunk.mask
    name, negated = instruction.predicate, instruction.negated

    def count(chunk: Chunk) -> Lanes | None:
        truth = chunk.read(name)
        truth = np.logical_not(truth) if negated else truth
        if chunk.mask is not None:
            return chunk.mask & truth
        if truth.all():
            return None
        return chunk.spread(truth)

    return count


def offset(instruction: Instruction, operand: Operand) -> tuple[str, int]:
    """The name and the number in "[name + number]"."""
    match = _ADDRESS.fullmatch(operand) if isinstance(operand, str) else None
    if match is None:
        raise unknown(instruction, f"the address {operand}")
    return match[1], int(match[2] or "0", 0)


def address(instruction: Instruction, operand: Operand, entry: Listing, space: str) -> Reader:
    """A function that gives addresses for all threads: bytes from the start of a space, of shared memory of its block.

    Args:
        instruction, operand, entry: as for `reader`. space: of `WINDOWS`, or "generic".
    """
    name, number = offset(instruction, operand)
    base = reader(instruction, name, "b32" if entry.registers.get(name) == 4 else "b64", entry)
    number -= BASE if space == "global" else 0
    if entry.registers.get(name) == 4:  # A sum of 32 bits wraps around: compilers begin loops before a variable.
        return lambda chunk: (chunk.spread(base(chunk)).astype(np.int64) + number).astype(np.int32).astype(np.int64)
    return lambda chunk: chunk.spread(base(chunk)).astype(np.int64) + number
