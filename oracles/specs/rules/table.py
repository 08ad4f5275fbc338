"""The table of rules: what an aten operation means, by the operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Rule = Callable[..., Any]

#: The modules beside this one enter their rules here.
RULES: dict[Any, Rule] = {}


#: Operations that only move elements: what they return is stored already as it is.
MOVES: set[Any] = set()

#: Operations without a rule that torch decomposes, beyond those that it always does.
DECOMPOSED: list[Any] = []


def enter(rule: Rule, *operations: Any) -> None:
    """One rule for several operations."""
    RULES.update(dict.fromkeys(operations, rule))


def enter_move(rule: Rule, *operations: Any) -> None:
    """One rule for several operations that only move elements."""
    enter(rule, *operations)
    MOVES.update(operations)


def axes_of(dim: Any) -> Any:
    """torch's `dim`, of which an empty list means all, as NumPy's `axis`."""
    return tuple(dim) if isinstance(dim, Sequence) and dim else dim if isinstance(dim, int) else None
