"""Imports over the walls between the distributions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from opassay.reference.distributions import PARTS, part_of
from tests.import_graph import edges, modules
from tests.syntax import nodes, parse

#: Modules of `opassay` that reach over the wall, each when a user asks for what is there, and no other one.
DOORS = (
    "api", "properties.candidates.host.program", "properties.catalog.loading", "properties.places.executing",
    "reports.cli.commands", "reports.cli.replay", "reports.pytest_plugin",
)  # fmt: skip


def unknown_names(root: Path) -> set[str]:
    """Names of the table that no module has."""
    known = {_installed(name) for name in modules(root)}
    rows = [row for part in PARTS.values() for row in part.table.items()]
    names = {f"{home}.{word}".removeprefix(".") for home, words in rows for word in words.split()}
    return {name for name in names if not any(f"{each}.".startswith(f"{name}.") for each in known)}


def breaches(root: Path) -> list[str]:
    """Imports of a part from outside of it, but those that a door makes when it is asked."""
    known = modules(root)
    texts = []
    for edge in edges(root):
        own = part_of(_installed(edge.importer))
        if not edge.ours or part_of(_installed(edge.imported)) in ("", own, *(PARTS[own].needs if own else ())):
            continue
        if edge.importer not in DOORS or edge.line in _lines_at_import(known[edge.importer]):
            texts.append(str(edge))
    return texts


def _installed(name: str) -> str:
    """A module by its name in the package: that of the folder api is the package's own."""
    return name.removeprefix("api.")


def _lines_at_import(path: Path) -> set[int]:
    """Lines whose imports run when the module is imported."""
    return {node.lineno for node in _at_import(parse(path)) if isinstance(node, ast.Import | ast.ImportFrom)}


def _at_import(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        typed = isinstance(node, ast.If) and "TYPE_CHECKING" in {getattr(n, "id", "") for n in nodes(node.test)}
        if not lazy and not typed:
            yield node
            yield from _at_import(node)
