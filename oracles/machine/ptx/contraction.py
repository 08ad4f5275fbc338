"""Products and sums that PTX leaves to be rounded once, as NVIDIA's assembler does it.

Source: NVIDIA, PTX ISA 9.1, 9.7.3: of `mul`, `add` and `sub` without a rounding modifier, "mul/add sequences may be
optimized to use fused-multiply-add"; ptxas does it by default. Rounded twice, exp2(x * log2(e) - m * log2(e)) loses
digits that no GPU loses. Contracted is what it surely contracts: a product that one sum has, and nothing else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from .listing import Instruction

_REGISTER = re.compile(r"%[\w$]+")
#: Modifiers that leave the rounding to the assembler.
_LOOSE = (("f32",), ("ftz", "f32"), ("f64",))


def contract(blocks: list[list[Instruction]]) -> list[list[Instruction]]:
    """The blocks of an entry with `fma` in the place of a product and the sum that has it.

    A minus before a register is an operand that PTX has not: it is read negated.
    """
    counts = Counter(name for block in blocks for each in block for name in _registers(each))
    return [_contract_block(block, counts) for block in blocks]


def _contract_block(block: list[Instruction], counts: Counter[str]) -> list[Instruction]:
    products: dict[str, Instruction] = {}
    inside = set[int]()
    new = list(block)
    for place, each in enumerate(block):
        operands = [str(operand) for operand in each.operands]
        if each.name in ("add", "sub") and each.modifiers in _LOOSE:
            term = next((k for k in (1, 2) if _can_join(products.get(operands[k]), each)), 0)
            if term:
                product = products.pop(operands[term])
                inside.add(id(product))
                new[place] = _join(product, each, term)
        changed = set(_REGISTER.findall(operands[0])) if operands else set()
        products = {name: one for name, one in products.items() if changed.isdisjoint(_registers(one))}
        if each.name == "mul" and each.modifiers in _LOOSE and counts[operands[0]] == 2:
            products[operands[0]] = each
    return [each for each in new if id(each) not in inside]


def _registers(instruction: Instruction) -> Iterator[str]:
    for operand in (instruction.predicate, *instruction.operands):
        yield from _REGISTER.findall(str(operand))


def _can_join(product: Instruction | None, sum_of: Instruction) -> bool:
    return product is not None and (product.modifiers, product.predicate, product.negated) == (
        sum_of.modifiers, sum_of.predicate, sum_of.negated,
    )  # fmt: skip


def _join(product: Instruction, sum_of: Instruction, term: int) -> Instruction:
    """One instruction of two; `term` says which operand of the sum the product is."""
    target, *terms = map(str, sum_of.operands)
    _, first, second = map(str, product.operands)
    other = terms[2 - term]
    if sum_of.name == "sub" and term == 1:
        other = f"-{other}"
    elif sum_of.name == "sub":
        first = f"-{first}"
    return replace(sum_of, name="fma", modifiers=("rn", *sum_of.modifiers), operands=(target, first, second, other))
