"""The graph of imports, read from the source: which module needs which other one, and where the graph has a cycle.

A module that is named in a string is an edge like an import: `import_module("opassay.x")`, `__import__`, a table of
module names, the program of `python -m opassay.x`. A string hides an import from a reader and from a search, and two
modules that need each other by name need each other all the same.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.syntax import nodes, parse

PACKAGE = "opassay"
FOLDERS = ("reference", "impl", "oracles", "properties", "reports", "api")

#: A module, or something in it, as "opassay.x.y", "opassay.x.y:name" or "opassay.x.y.name".
_BY_NAME = re.compile(rf"{PACKAGE}(\.\w+)+(:[\w.]+)?")
#: A module beside the one that names it, as ".x" or "..x.y".
_RELATIVE = re.compile(r"\.+\w+(\.\w+)*")
#: The program of a process, in the text of a command.
_PROGRAM = re.compile(rf"-m\s+({PACKAGE}(?:\.\w+)*)(?![\w.])")


@dataclass(frozen=True)
class Edge:
    """One import, from a module of ours to a module of ours (dotted, without the package) or of others."""

    importer: str
    imported: str
    ours: bool
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def modules(root: Path) -> dict[str, Path]:
    """Every module of the six folders below a root, as `reference.exact`; a package is named as its folder."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for folder in FOLDERS
        for path in sorted((root / folder).rglob("*.py"))
    }


def edges(root: Path) -> list[Edge]:
    known = modules(root)
    return [edge for name, path in known.items() for edge in _edges_of(name, path, known)]


def _edges_of(name: str, path: Path, known: dict[str, Path]) -> Iterator[Edge]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    # The folder api is the package itself: what it imports by one dot stands beside it.
    full = PACKAGE if package == "api" else f"{PACKAGE}.{package}"
    tree = parse(path)
    imports = (node for node in nodes(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    for node in imports:
        for target in _targets(node, full):
            resolved = _resolve(target, known)
            yield Edge(name, resolved or target.partition(".")[0], resolved is not None, node.lineno)
    for target, line in _names_in(tree, full, f"{PACKAGE}.{name}", known):
        yield Edge(name, target, True, line)


def _names_in(tree: ast.AST, package: str, own: str, known: dict[str, Path]) -> Iterator[tuple[str, int]]:
    """Modules of ours that strings name, with the line; documentation is no string of a program.

    Args:
        package, own: the package that the module is in, and its own name.
    """
    documentation = {id(node.value) for node in nodes(tree) if isinstance(node, ast.Expr)}
    calls = [node for node in nodes(tree) if isinstance(node, ast.Call) and _is_import(node)]
    # Where a module is imported by a name that a table holds, the names of the table are relative to the importer.
    relative = any(len(call.args) > 1 and not isinstance(call.args[0], ast.Constant) for call in calls)
    for node in nodes(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield from ((target, node.lineno) for target in _in_text(node.value, package, known, relative))
        elif isinstance(node, ast.List | ast.Tuple):
            yield from ((target, node.lineno) for target in _programs(node, known))
    for call in calls:
        # `import_module("..x", __name__)` takes the module for a package: one dot more than from `__package__`.
        start = own if len(call.args) > 1 and ast.unparse(call.args[1]) == "__name__" else package
        yield from ((target, call.lineno) for target in _imported_by(call, start, known))


def _is_import(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in {"import_module", "__import__", "find_spec", "run_module"}


def _in_text(text: str, package: str, known: dict[str, Path], relative: bool) -> Iterator[str]:
    """Modules that a string names by itself or as the program of a command."""
    names = [result[1] for result in _PROGRAM.finditer(text)]
    if _BY_NAME.fullmatch(text):
        names.append(text.replace(":", "."))
    if relative and _RELATIVE.fullmatch(text):
        names.append(_absolute(text, package))
    for target in names:
        resolved = _resolve(_main(target), known)
        if resolved is not None and resolved != "api":
            yield resolved


def _programs(words: ast.List | ast.Tuple, known: dict[str, Path]) -> Iterator[str]:
    """The program of a command given as words; `_in_text` finds all but the package itself."""
    texts = [word.value if isinstance(word, ast.Constant) else None for word in words.elts]
    if PACKAGE in texts and "-m" in texts[: texts.index(PACKAGE)] and "api.__main__" in known:
        yield "api.__main__"


def _main(target: str) -> str:
    """What `python -m` runs."""
    return f"{PACKAGE}.__main__" if target == PACKAGE else target


def _imported_by(call: ast.Call, package: str, known: dict[str, Path]) -> Iterator[str]:
    """Modules that a call imports by a relative name, or by a name of which only the beginning is written down."""
    if not call.args:
        return
    first = call.args[0]
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        level = call.args[4].value if len(call.args) > 4 and isinstance(call.args[4], ast.Constant) else 0
        name = "." * level + first.value if isinstance(level, int) else first.value
        if name.startswith("."):
            resolved = _resolve(_absolute(name, package), known)
            yield from () if resolved is None else (resolved,)
    elif isinstance(first, ast.JoinedStr) and isinstance(first.values[0], ast.Constant):
        begins = str(first.values[0].value).rpartition(".")[0]
        whole = _absolute(begins, package) if begins.startswith(".") else begins
        if whole.partition(".")[0] == PACKAGE:
            prefix = whole.removeprefix(f"{PACKAGE}.")
            yield from (name for name in known if name.startswith(f"{prefix}."))


def _absolute(name: str, package: str) -> str:
    """A relative name in full."""
    rest = name.lstrip(".")
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - (len(name) - len(rest)) + 1], *filter(None, [rest])])


def _targets(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    """Absolute dotted names; a name after `from` may be a module or an attribute, so it is given in full."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    parts = package.split(".")
    base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
    source = ".".join(filter(None, (base, node.module)))
    yield from (f"{source}.{alias.name}" for alias in node.names)


def _resolve(target: str, known: dict[str, Path]) -> str | None:
    """The module of ours that a dotted name reaches, or None for a name of others."""
    parts = target.split(".")
    if parts[0] != PACKAGE:
        return None
    for end in range(len(parts), 1, -1):
        for name in (".".join(parts[1:end]), ".".join(["api", *parts[1:end]])):
            if name in known:
                return name
    return "api"


def cycle(graph: Iterable[Edge]) -> list[str]:
    """Some cycle of imports, as a list of modules; empty when there is none.

    Imports inside functions and those for types alone count: such an import hides a cycle and does not remove it, for a
    reader of one module still needs the other.
    """
    return _some_cycle((edge.importer, edge.imported) for edge in graph if edge.ours)


def cycle_of_rooms(graph: Iterable[Edge]) -> list[str]:
    """Some cycle of rooms, as a list of them; empty when there is none.

    A room is what stands in one of the folders: a folder or a single module. An import from one room to another is an
    edge, between whichever modules of the two it runs.
    """
    rooms = ((_room(edge.importer), _room(edge.imported)) for edge in graph if edge.ours)
    return _some_cycle((importer, imported) for importer, imported in rooms if importer != imported)


def _room(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _some_cycle(pairs: Iterable[tuple[str, str]]) -> list[str]:
    graph: dict[str, set[str]] = defaultdict(set)
    for importer, imported in pairs:
        graph[importer].add(imported)
    done: set[str] = set()
    for start in sorted(graph):
        result = _cycle_from(start, graph, [], done)
        if result:
            return result
    return []


def _cycle_from(name: str, graph: dict[str, set[str]], path: list[str], done: set[str]) -> list[str]:
    if name in path:
        return path[path.index(name) :]
    if name in done:
        return []
    for imported in sorted(graph.get(name, set())):
        result = _cycle_from(imported, graph, [*path, name], done)
        if result:
            return result
    done.add(name)
    return []
