"""The subjects of the ops of the catalog: implementations, by name."""

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
    """The production op, which has the name of its formula; other subjects by name; and the modules of the op."""
    production = {"opassay": getattr(impl, formula.__name__)}
    return {**production, **others, **({} if module is None else module.subjects())}


def with_aten(formula: Callable[..., Any], name: str = "") -> dict[str, Callable[..., Any]]:
    """The production op, aten's op of that name (by default the formula's), and torch's decomposition of the latter."""
    name = name or formula.__name__
    return ours(formula, torch=getattr(torch.ops.aten, name).default, decomposition=getattr(decompositions, name))
