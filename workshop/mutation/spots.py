"""The places of a source file at which a change would be a change of what an op computes.

Only what runs when an op is called is changed: bodies of functions and lambdas. Texts of errors, annotations, default
values and decorators are left alone, and so is what runs once, when a module is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
#: Statements and expressions that no question asks about.
_IGNORED_NODES = (ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)


@dataclass(frozen=True)
class Spot:
    """A node of a syntax tree, and where it hangs.

    Attributes:
        node: what could be changed.
        parent, field, index: the node that holds it, in which field, and at which position where that is a list.
        function: the qualified name of the function around it, as its code object has it.
        scopes: the functions around it, the outermost first.
        statement: the statement around it.
    """

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    function: str
    scopes: tuple[Scope, ...]
    statement: ast.stmt

    def put(self, node: ast.AST) -> None:
        """Have another node there, with the lines of the one that was."""
        ast.copy_location(node, self.node)
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node
        ast.fix_missing_locations(node)


@dataclass(frozen=True)
class _Around:
    prefix: str = ""
    function: str = ""
    scopes: tuple[Scope, ...] = ()
    statement: ast.stmt | None = None


def spots(tree: ast.Module) -> Iterator[Spot]:
    """Every place at which a file may be changed, in the order of its text."""
    yield from _below(tree, _Around())


def _below(parent: ast.AST, around: _Around) -> Iterator[Spot]:
    for field, index, node in _children(parent):
        here = around
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            here = _Around(around.prefix, around.function, around.scopes, node)
        if around.scopes and here.statement is not None:
            yield Spot(node, parent, field, index, around.function, around.scopes, here.statement)
        if not isinstance(node, ast.Raise):
            yield from _below(node, _inside(node, here))


def _inside(node: ast.AST, around: _Around) -> _Around:
    """What is around the children of a node."""
    match node:
        case ast.ClassDef(name=name):
            return _Around(f"{around.prefix}{name}.")
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            function = f"{around.prefix}{name}"
        case ast.Lambda():
            function = f"{around.prefix}<lambda>"
        case _:
            return around
    return _Around(f"{function}.<locals>.", function, (*around.scopes, node), around.statement)


def _children(parent: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    for field in _fields(parent):
        value = getattr(parent, field)
        children: list[tuple[int | None, object]] = (
            list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        )
        for index, node in children:
            if isinstance(node, ast.AST) and not isinstance(node, _IGNORED_NODES) and not _is_text(node):
                yield field, index, node


def _fields(parent: ast.AST) -> tuple[str, ...]:
    match parent:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef() | ast.Module():
            return ("body",)
        case ast.AnnAssign():
            return ("value",)
        case ast.Call(func=ast.Name(id="cast")):
            return ("args",)
        case _:
            return parent._fields


def _is_text(node: ast.AST) -> bool:
    constant = node.value if isinstance(node, ast.Expr) else node
    return isinstance(constant, ast.Constant) and isinstance(constant.value, str)
