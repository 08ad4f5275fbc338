"""Syntax trees of files and the nodes of a tree, made once: that takes longer than what is asked of them."""

from __future__ import annotations

import ast
import functools
from pathlib import Path


@functools.cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text("utf-8"), str(path))


@functools.cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree, as `ast.walk` has them."""
    return tuple(ast.walk(tree))
