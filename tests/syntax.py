"""Syntax trees of files and the nodes of a tree, made once: that takes longer than what is asked of them."""

from __future__ import annotations

import ast
import functools
import gc
from pathlib import Path


@functools.cache
def parse_text(text: str, name: str) -> ast.Module:
    """The syntax tree of the text of a file, made once."""
    # Trees are many objects that stay. The collector of garbage would look at all of them at every file, which takes
    # twice as long as to read them.
    gc.disable()
    try:
        return ast.parse(text, name)
    finally:
        gc.freeze()
        gc.enable()


def parse(path: Path) -> ast.Module:
    """The syntax tree of a file as it is now."""
    return parse_text(path.read_text("utf-8"), str(path))


@functools.cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree, as `ast.walk` has them."""
    results = [tree]
    for node in results:  # it grows
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, ast.AST):
                results.append(value)
            elif isinstance(value, list):
                results += [each for each in value if isinstance(each, ast.AST)]
    return tuple(results)
