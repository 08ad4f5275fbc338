"""The mutants of a source file: one change each, with a name that stays while the text around it does."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .changes import changes_at, modules_of
from .spots import Spot, spots

#: What the kinds of mutants of a graph begin with.
GRAPH = "graph: "
#: Characters that are kept of the text of a change.
MAX_TEXT = 160


@dataclass(frozen=True)
class Mutant:
    """One changed place of one file.

    Attributes:
        file: below the folder of the production ops, "softmax/rules.py".
        function: the qualified name of the function around the place.
        kind: what kind of mistake it is.
        statement: the first line of the statement around the place, which is a part of the name.
        old, new: the text there, and what is there in its place.
        nth: which of several equal changes of that function it is, from 0.
        line, last: of the place in the file; no part of the name.
    """

    file: str
    function: str
    kind: str
    statement: str
    old: str
    new: str
    nth: int
    line: int
    last: int

    @property
    def key(self) -> str:
        """A name of ten characters; it stays the same when lines are added elsewhere in the file."""
        text = "\0".join((self.file, self.function, self.kind, self.statement, self.old, self.new, str(self.nth)))
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def family(self) -> str:
        """The folder of the ops that the file belongs to; the file itself where it is in none."""
        return Path(self.file).parts[0].removesuffix(".py")

    @property
    def in_graph(self) -> bool:
        """Whether an operation of torch is changed, and not the text: `old` is its name, `statement` asks for it."""
        return self.kind.startswith(GRAPH)

    def data(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Mutant:
        return cls(**{name: data[name] for name in cls.__dataclass_fields__})


def mutants_of(file: str, text: str) -> list[Mutant]:
    """Every mutant of a file, in the order of its text."""
    return [mutant for mutant, _, _ in find_changes(file, ast.parse(text))]


def find_changes(file: str, tree: ast.Module) -> Iterator[tuple[Mutant, Spot, ast.AST]]:
    """Every mutant of a file, where it changes the tree, and the node that it puts there."""
    modules, counts = modules_of(tree), Counter[tuple[str, ...]]()
    for spot in spots(tree):
        texts: set[str] = set()
        for kind, node in changes_at(spot, modules):
            old, new = _text(spot.node), _text(node)
            if new in texts or new == old:
                continue
            texts.add(new)
            statement = _text(spot.statement)
            name = (spot.function, kind, statement, old, new)
            line, last = getattr(spot.node, "lineno", 0), getattr(spot.node, "end_lineno", 0)
            yield Mutant(file, *name, nth=counts[name], line=line or spot.statement.lineno, last=last or 0), spot, node
            counts[name] += 1


def _text(node: ast.AST) -> str:
    """The text of a node, in one line; of a statement that holds others, what stands before them."""
    return ast.unparse(node).partition("\n")[0][:MAX_TEXT]
