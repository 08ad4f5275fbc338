"""Groups of commands whose modules are imported only when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ...properties.names import nearest_name
from ..text import one_line


@dataclass(frozen=True)
class Branch:
    """Several commands under one name.

    Attributes:
        about: what the line of help says. usual: the command that is meant where a line names none.
        table: name -> the module, and what its line of help says.
    """

    about: str
    usual: str
    table: Mapping[str, tuple[str, str]]


#: name -> the module of a command and what its line of help says, or several commands under that name.
Table = Mapping[str, tuple[str, str] | Branch]


class LazyGroup(click.Group):
    """Commands by name, each the function `NAME_command` of a module.

    Args:
        table: the commands; modules are relative to `package`.
        package: the package that the modules are in.
        usual: the command of the table that is meant where a line names none; none by default.
    """

    def __init__(self, *args: Any, table: Table, package: str, usual: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table, self.usual, self._package = table, usual, package

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(help_lines(self.table))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = self.table.get(cmd_name)
        if row is None:
            return None
        if isinstance(row, Branch):
            help_text = f"{row.about}\n\nWhere no command is named, {row.usual} is meant."
            return LazyGroup(cmd_name, table=row.table, package=self._package, usual=row.usual, help=help_text)
        module = importlib.import_module(row[0], self._package)
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if self.usual and not args and not ctx.resilient_parsing:
            # By itself click would show the help, and before version 8.2 end with 0: a gate that was given nothing must
            # not pass.
            near = "; here is opassay-report" if Path("opassay-report/run.json").is_file() else ""
            ctx.fail(f"got nothing, need a record of a run, or one of {', '.join(self.table)}{near}")
        if self.usual and args and self._means_usual(ctx, args[0]):
            args = [self.usual, *args]
        return super().parse_args(ctx, args)

    def _means_usual(self, ctx: click.Context, word: str) -> bool:
        """Whether the first word of a line is neither the name of a command nor nearly one."""
        if word in self.table or word in ctx.help_option_names:
            return False
        return word.startswith("-") or Path(word).exists() or not nearest_name(word, self.table)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        # What begins with a dash is an option, and click tells of an unknown one by itself; of a command that is near
        # to an unknown one it tells from version 8.4 on only. A shell that asks what could follow is told nothing else.
        if not name.startswith("-") and name not in self.table and not ctx.resilient_parsing:
            suggestions = self._suggestions(ctx)
            nearest = nearest_name(name, suggestions)
            hint = f" (did you mean {suggestions[nearest]!r}?)" if nearest else ""
            ctx.fail(f"No such command {one_line(name, 100)!r}{hint}.")
        return super().resolve_command(ctx, args)

    def _suggestions(self, ctx: click.Context) -> dict[str, str]:
        """What may have been meant: a name that is near to what was typed -> the words of its command."""
        branches = {name: row for name, row in self.table.items() if isinstance(row, Branch)}
        inner = {last: f"{name} {last}" for name, branch in branches.items() for last in branch.table}
        return {**inner, **{name: name for name in self.table}}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            # click would import the module of every command for its line of help; the table has the words already.
            formatter.write_dl(list(help_lines(self.table).items()))


def help_lines(table: Table) -> dict[str, str]:
    """The commands, with their lines of help."""
    return {name: row.about if isinstance(row, Branch) else row[1] for name, row in table.items()}
