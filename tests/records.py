"""Classes that hold too much: fields of their body, and attributes that `__init__` sets."""

from __future__ import annotations

import ast
from collections.abc import Iterator

MANY_FIELDS = 12
#: Classes that have more, and how many; a number may only fall.
MANY_FIELDS_OF = {
    "Ball": 18, "Board": 13, "CandidateApart": 14, "CandidateHost": 16, "Chunk": 18, "Judge": 13, "Process": 13,
    "Shortcut": 16, "Space": 18, "Tally": 35,
}  # fmt: skip


def large_records(tree: ast.Module) -> Iterator[str]:
    """Classes of more than `MANY_FIELDS` fields, or than those of `MANY_FIELDS_OF`, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            count = len(set(_fields(node)))
            if count > MANY_FIELDS_OF.get(node.name, MANY_FIELDS):
                yield f"{node.lineno}: {node.name}, {count} fields"


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """Names that a class declares in its body, and attributes that its `__init__` sets."""
    for item in node.body:
        if isinstance(item, ast.AnnAssign):
            yield ast.unparse(item.target)
        elif isinstance(item, ast.FunctionDef) and item.name == "__init__":
            attributes = (each for each in ast.walk(item) if isinstance(each, ast.Attribute))
            stored = (each for each in attributes if isinstance(each.ctx, ast.Store))
            yield from (each.attr for each in stored if ast.unparse(each.value) == "self")
