"""Scripts: the part of a program that shows a failure, as values by name and lines that use them.

A check that finds a failure makes a script of it, and `oracles/programs/writing.py` writes the program.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch


@dataclass(frozen=True)
class ProgramTensor:
    """A tensor of a program: the values of one tensor in the memory layout of another one.

    These are two tensors, because a subject may have written to its argument: then only a copy has the values.

    Attributes:
        layout: the subject's argument, whose strides, offset and device count. values: the copy, whose elements count.
    """

    layout: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True)
class Script:
    """A part of a program, or all of it but its head.

    Attributes:
        values: tensors and other arguments, by the names that the lines use.
        lines: Python, in which `op` is the subject. imports: the lines of imports, which come first.
    """

    values: Mapping[str, object] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()

    def then(self, *lines: str) -> Script:
        """The same script with further lines at its end."""
        return replace(self, lines=(*self.lines, *lines))

    def joined(self, other: Script) -> Script:
        """This script and then another one; values that both have by one name must be the same."""
        imports = dict.fromkeys((*self.imports, *other.imports))
        return Script({**self.values, **other.values}, (*self.lines, *other.lines), tuple(imports))


@dataclass(frozen=True)
class CallVariant:
    """A way of calling the subject, and lines of a program that define `call` as the same way of calling `op`."""

    function: Callable[..., Any]
    lines: tuple[str, ...]

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


#: Makes the script of a failure, or of outputs. It is a function, because only a failure that is reported needs it.
ScriptMaker = Callable[[], Script]


class NoProgram(Exception):
    """No program can show a failure again; the text of the exception is the reason, a sentence."""


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
