"""Memory that nothing has written: a result that depends on its contents has no right value.

A spec may take such memory and write all of it, as `out=` and filling by rows do. So the spec is read twice, with other
numbers in that memory, which shows whether a result depends on its contents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ...reference.array import Array, constant
from .lines import line_of
from .node_facts import RESIZING


def read_memory(node: torch.fx.Node, args: Sequence[Any], marked: bool, lift: Callable[[Any], Any]) -> Any:
    """The value of a node that takes memory.

    Args:
        node, args: the node, and its operands.
        marked: whether elements that nobody has written are NaN, or 1 where they are integers; else they are 0.
        lift: what makes floating numbers an array of the reading.
    """
    value = node.meta["val"]
    floating = value.dtype.is_floating_point
    there = np.full(value.numel(), (np.nan if floating else 1) if marked else 0)
    dtype = np.dtype(np.float64) if floating else torch.empty(0, dtype=value.dtype).numpy().dtype
    elements = lift(there.astype(dtype)) if floating else there.astype(dtype)
    if node.target in RESIZING and np.size(args[0]):
        old = np.reshape(args[0], (-1,))[: np.size(elements)]
        elements = np.concatenate([old, elements[np.size(old) :]]) if np.size(old) < np.size(elements) else old
    return np.reshape(elements, tuple(value.shape))


def describe(nodes: Sequence[torch.fx.Node]) -> str:
    """What is wrong with results that depend on the memory that these nodes take."""
    places = ", ".join(dict.fromkeys(f"{node.target}{line_of(node)}" for node in nodes))
    return f"it gives memory that nothing has written ({places}): write all of it, or begin with torch.zeros"


def differ(results: Any, others: Any) -> bool:
    """Whether two readings of a spec differ in any number."""
    return any(_differs(x, y) for x, y in zip(results, others, strict=True))


def _differs(x: Any, y: Any) -> bool:
    x, y = (t.comparable() if isinstance(t, Array) else t for t in map(constant, (x, y)))
    if not (isinstance(x, np.ndarray) and isinstance(y, np.ndarray)):
        return False
    x, y = x.view(np.ndarray), y.view(np.ndarray)
    return bool(np.any((x != y) & ~((x != x) & (y != y))))
