"""The table of rules: what an aten operation means, by the operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Rule = Callable[..., Any]

#: The modules beside this one enter their rules here.
RULES: dict[Any, Rule] = {}


def enter(rule: Rule, *operations: Any) -> None:
    """One rule for several operations."""
    RULES.update(dict.fromkeys(operations, rule))


def axes_of(dim: Any) -> Any:
    """torch's `dim`, of which an empty list means all, as NumPy's `axis`."""
    return tuple(dim) if isinstance(dim, Sequence) and dim else dim if isinstance(dim, int) else None
