"""The nodes of a syntax tree, listed once: to walk a tree takes longer than what is asked of its nodes."""

from __future__ import annotations

import ast
import functools


@functools.cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree, as `ast.walk` has them."""
    return tuple(ast.walk(tree))
