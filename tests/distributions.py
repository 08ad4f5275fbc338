"""Which files each of the two distributions has, and imports over the wall between them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from opassay.reference.distributions import OPS, OPS_NAME, PACKAGE, is_of_ops
from tests.import_graph import FOLDERS, edges, modules
from tests.syntax import nodes, parse

#: Modules of `opassay` that reach over the wall, each when a user asks for what is there, and no other one.
DOORS = ("api", "properties.catalog.loading", "reports.cli.commands", "reports.cli.replay", "reports.pytest_plugin")


def distribution_of(path: Path) -> str:
    """The distribution of a file, by its path in the repository."""
    name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    return OPS_NAME if is_of_ops(_installed(name)) else PACKAGE


def files_of(root: Path, distribution: str) -> dict[str, Path]:
    """The files of a distribution: their paths as installed -> where they stand."""
    paths = (path for folder in FOLDERS for path in sorted((root / folder).rglob("*")))
    files = [path for path in paths if path.is_file() and "__pycache__" not in path.parts]
    own = [path.relative_to(root) for path in files if distribution_of(path.relative_to(root)) == distribution]
    return {str(Path(PACKAGE, *path.parts[path.parts[0] == "api" :])): root / path for path in own}


def unknown_names(root: Path) -> set[str]:
    """Names of the table that no module has."""
    known = {_installed(name) for name in modules(root)}
    names = {f"{home}.{word}".removeprefix(".") for home, words in OPS.items() for word in words.split()}
    return names - known


def breaches(root: Path) -> list[str]:
    """Imports from `opassay` into opassay-ops, but those that a door makes when it is asked."""
    known = modules(root)
    texts = []
    for edge in edges(root):
        if not edge.ours or is_of_ops(_installed(edge.importer)) or not is_of_ops(_installed(edge.imported)):
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
