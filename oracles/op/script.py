"""What a program shows: values by name, and lines that use them. Whoever finds a failure says it in these terms."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch


@dataclass(frozen=True)
class Laid:
    """A tensor of a program: the values of `kept`, in the memory layout of `given`.

    They are two because a subject may have written to what it was given.
    """

    given: torch.Tensor
    kept: torch.Tensor


@dataclass(frozen=True)
class Script:
    """A part of a program, or all of it but its head.

    Attributes:
        values: by the names that the lines use: tensors and what else an argument may be.
        lines: Python, in which `op` is the subject. imports: lines that come first.
    """

    values: Mapping[str, object] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()

    def then(self, *lines: str) -> Script:
        """The same, and these lines after it."""
        return replace(self, lines=(*self.lines, *lines))

    def joined(self, other: Script) -> Script:
        """This one and then another one, whose values have other names or are the same."""
        imports = dict.fromkeys((*self.imports, *other.imports))
        return Script({**self.values, **other.values}, (*self.lines, *other.lines), tuple(imports))


@dataclass(frozen=True)
class Spelt:
    """A way of calling the subject, and lines of a program that define `call` as the same way of calling `op`."""

    function: Callable[..., Any]
    lines: tuple[str, ...]

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


#: What tells the script of a failure, or of outputs: a function, because only the failure that is told is written.
Telling = Callable[[], Script]


class NoProgram(Exception):
    """A failure that no program of this kind shows again; the text is the reason, a sentence."""


def plain_source(function: Callable[..., object]) -> list[str]:
    """The source of a function without annotations, docstring and comments, so that it stands by itself.

    Raises:
        NoProgram: the source cannot be read.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        raise NoProgram("The source of a function that it needs cannot be read.") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns, node.decorator_list = None, []
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree).splitlines()
