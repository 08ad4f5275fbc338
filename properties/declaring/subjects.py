"""Whose implementations an op of the catalog is asked of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decompositions

from ... import impl
from .modules import Module


def ours(
    formula: Callable[..., Any], module: Module | None = None, **others: Callable[..., Any]
) -> dict[str, Callable[..., Any]]:
    """The production op, which has the name of its formula, others by the name of their subject, and its modules."""
    production = {"opassay": getattr(impl, formula.__name__)}
    return {**production, **others, **({} if module is None else module.subjects())}


def with_aten(formula: Callable[..., Any], name: str = "") -> dict[str, Callable[..., Any]]:
    """The production op, aten's op of that name (the formula's by default), and what torch decomposes it into."""
    name = name or formula.__name__
    return ours(formula, torch=getattr(torch.ops.aten, name).default, decomposition=getattr(decompositions, name))
