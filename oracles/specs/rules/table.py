"""The table of rules: what an aten operation means, by the operation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ....reference.array import Array, constant, store
from ....reference.derivative import format_of_steps
from ....reference.formats import FORMATS, round_array

Rule = Callable[..., Any]

#: The modules beside this one enter their rules here.
RULES: dict[Any, Rule] = {}

#: Operations that only move elements: what they return is stored already as it is.
MOVES: set[Any] = set()

#: Moves that may give an element several times, so that the derivatives of its copies add up.
REPEATING: set[Any] = set()

#: Operations that are traced as others, in place of torch's decomposition or where it has none.
DECOMPOSED: dict[Any, Rule] = {}

#: Operations of our own that are traced where torch's cannot be.
LIBRARY = torch.library.Library("opassay_specs", "FRAGMENT")


#: Operations that not every supported torch has: where one lacks them they have no rule, because no spec calls them.
_NOT_EVERYWHERE = frozenset({"_upsample_lanczos2d_aa", "cholesky"})


def overloads(names: str) -> list[Any]:
    """The aten operations of these names; a name without an overload means the one that is called "default"."""
    operations = []
    for name in names.split():
        packet, _, overload = name.partition(".")
        if packet in _NOT_EVERYWHERE and not hasattr(torch.ops.aten, packet):
            continue
        operations.append(getattr(getattr(torch.ops.aten, packet), overload or "default"))
    return operations


def enter(rules: Mapping[str, Rule], table: dict[Any, Rule] = RULES) -> None:
    """Enter rules by the names of their aten operations (`overloads`)."""
    for names, rule in rules.items():
        table.update(dict.fromkeys(overloads(names), rule))


def enter_moves(rules: Mapping[str, Rule]) -> None:
    """Enter rules of operations that only move elements."""
    enter(rules)
    MOVES.update(overloads(" ".join(rules)))


def may_store(x: Any) -> Any:
    """A step that an operation on half types may store, as torch does where it is an operation of its own."""
    return store(x, always=False)


def with_numbers(f: Rule) -> Rule:
    """An operation whose second operand may be a number, which torch may round to the half type of the first one."""

    @functools.wraps(f)
    def rule(a: Any, b: Any) -> Any:
        dtype = format_of_steps()
        rounded = dtype and isinstance(b, float) and round_array(FORMATS[dtype], b) != b
        return f(a, store(constant(a).lift(b), dtype, always=False) if rounded and isinstance(a, Array) else b)

    return rule


def axes_of(dim: Any) -> Any:
    """torch's `dim`, of which an empty list means all, as NumPy's `axis`."""
    return tuple(dim) if isinstance(dim, Sequence) and dim else dim if isinstance(dim, int) else None
