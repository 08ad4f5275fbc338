"""The two files of the gate, known.json and budget.json: where they are, and how they are read and changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from ... import exit_codes
from ...text import one_line
from ..reading import as_usage

KNOWN = Path("known.json")
BUDGET = Path("budget.json")
_T = TypeVar("_T")


def read_optional(path: Path | None, usual: Path | None, read: Callable[[Path], _T]) -> _T | None:
    """The content of a file that was named, or of the usual one if it exists."""
    chosen = path if path is not None else usual if usual is not None and usual.exists() else None
    if chosen is None:
        return None
    with as_usage():
        return read(chosen)


def say_changes(lines: list[str], last: str) -> int:
    """The exit code of a command that has changed a file; says what it changed."""
    for line in lines:
        click.echo(one_line(line, 1000))
    click.echo(last)
    return exit_codes.OK
