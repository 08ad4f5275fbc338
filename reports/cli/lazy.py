"""Groups of commands whose modules are imported only when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from .. import exit_codes
from .host import Stop
from .project.hints import HintedGroup


class LazyGroup(HintedGroup):
    """Commands by name, each the function `NAME_command` of a module.

    Args:
        table: name -> the module, relative to `package`, and what its line of help says.
        package: the package that the modules are in.
        moved: name of a command that is elsewhere now -> the line that does its work; it ends with 2 and says so.
    """

    def __init__(
        self, *args: Any, table: Mapping[str, tuple[str, str]], package: str, moved: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(*args, **kwargs)
        self._table, self._package, self._moved = table, package, moved or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._moved:
            return _moved_command(cmd_name, self._moved[cmd_name])
        if cmd_name not in self._table:
            return None
        module = importlib.import_module(self._table[cmd_name][0], self._package)
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            # click would import the module of every command for its line of help; the table has the words already.
            formatter.write_dl([(name, about) for name, (_, about) in self._table.items()])


def _moved_command(name: str, line: str) -> click.Command:
    def stop(words: tuple[str, ...]) -> None:
        raise Stop(exit_codes.USAGE, f"{name} is no command of opassay any more; in a checkout of opassay: {line}")

    settings = {"ignore_unknown_options": True, "help_option_names": []}
    words = click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)
    return click.Command(name, context_settings=settings, callback=stop, params=[words])
