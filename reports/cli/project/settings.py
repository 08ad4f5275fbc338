"""Settings of a project: `[tool.opassay.COMMAND]` in pyproject.toml counts as if the command line had said it.

An option on the command line wins over a setting. Everything is checked before it is used: a setting with a misspelt
name would otherwise be ignored, and the run would ask something else than its author believes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ....properties.names import nearest_of
from ... import exit_codes
from ...text import one_line
from ..host import Stop
from ..lazy import LazyGroup

NAME = "pyproject.toml"
_LARGEST = 2**20  # bytes of a pyproject.toml that is read
#: Commands that take no settings, and why.
WITHOUT = {
    "replay": "what it imports must be named on the command line, because its folder may have come from a stranger"
}


@dataclass(frozen=True)
class ProjectSettings:
    """The settings of a project.

    Attributes:
        path: the file. tables: name of a command -> its table.
    """

    path: Path
    tables: Mapping[str, Any]


def find_settings(start: Path, commands: Collection[str]) -> ProjectSettings | None:
    """The settings of the nearest pyproject.toml that has a table [tool.opassay], up to the folder of the repository.

    Args:
        start: where the search begins. commands: the names that tables may have.

    Raises:
        Stop: the file cannot be read, or a table is of no command.
    """
    for folder in (start, *start.parents):
        settings = read_settings(folder / NAME, commands) if (folder / NAME).is_file() else None
        if settings is not None:
            return settings
        # Above the folder of a repository begin the files of others.
        if (folder / ".git").exists():
            break
    return None


def read_settings(path: Path, commands: Collection[str]) -> ProjectSettings | None:
    """The settings of one file; None where it has no table [tool.opassay].

    Raises:
        Stop: as `find_settings`.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise _wrong(path, "", f"more than {_LARGEST} bytes")
        document = tomllib.loads(content.decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as err:
        raise _wrong(path, "", one_line(str(err), 300)) from err
    tool = document.get("tool", {})
    tables = tool.get("opassay") if isinstance(tool, dict) else None
    if tables is None:
        return None
    if not isinstance(tables, dict):
        raise _wrong(path, "tool.opassay", f"got {tables!r}, need a table")
    for name, table in tables.items():
        if name not in commands:
            text = f"got {name!r}{nearest_of(name, commands)}, need the name of a command"
            raise _wrong(path, "tool.opassay", text)
        if name in WITHOUT:
            raise _wrong(path, f"tool.opassay.{name}", f"{name} takes no settings: {WITHOUT[name]}")
        if not isinstance(table, dict):
            raise _wrong(path, f"tool.opassay.{name}", f"got {table!r}, need a table of options")
    return ProjectSettings(path, tables)


def defaults(settings: ProjectSettings, name: str, command: click.Command, context: click.Context) -> dict[str, Any]:
    """The settings of one command as click takes them: parameter -> value; for a group, command -> such a table.

    Raises:
        Stop: an option that the command does not have, or a value that it does not take.
    """
    return _Reader(settings, context).defaults(f"tool.opassay.{name}", settings.tables.get(name, {}), command)


@dataclass(frozen=True)
class _Reader:
    """Reads tables of one file; `where` is the name of a table in it."""

    settings: ProjectSettings
    context: click.Context

    def defaults(self, where: str, table: Mapping[str, Any], command: click.Command) -> dict[str, Any]:
        """As the function of this name, for a table at any depth."""
        if isinstance(command, LazyGroup):
            return self._of_group(where, table, command)
        options = _options(command)
        values: dict[str, Any] = {}
        for key, value in table.items():
            option = options.get(key.replace("_", "-"))
            if option is None or option.name is None:
                text = f"got {key!r}{nearest_of(key, options)}, need one of {', '.join(options)}"
                raise _wrong(self.settings.path, where, text)
            try:
                values[option.name] = self._value(option, value)
            except click.BadParameter as err:
                raise _wrong(self.settings.path, where, f"{key}: {one_line(err.message, 300)}") from err
        return values

    def _of_group(self, where: str, table: Mapping[str, Any], group: LazyGroup) -> dict[str, Any]:
        values: dict[str, Any] = {}
        names = group.list_commands(self.context)
        usual = group.get_command(self.context, group.usual)
        own = {}
        for name, inner in table.items():
            command = group.get_command(self.context, name)
            # What is no table is an option of the command that is meant where a line names none.
            if usual is not None and not isinstance(inner, dict):
                own[name] = inner
            elif command is None or not isinstance(inner, dict):
                text = f"got {name!r}{nearest_of(name, names)}, need a table of one of {', '.join(names)}"
                raise _wrong(self.settings.path, where, text)
            else:
                values[name] = self.defaults(f"{where}.{name}", inner, command)
        if usual is not None and own:
            values[group.usual] = self.defaults(where, own, usual) | values.get(group.usual, {})
        return values

    def _value(self, option: click.Option, value: Any) -> Any:
        """The value of a setting, of the type that the option takes.

        Raises:
            click.BadParameter: it is of another type.
        """
        if option.multiple:
            if not isinstance(value, list):
                raise click.BadParameter(f"got {value!r}, need a list")
            return [self._single(option, item) for item in value]
        if option.is_flag:
            if not isinstance(value, bool):
                raise click.BadParameter(f"got {value!r}, need true or false")
            return value
        return self._single(option, value)

    def _single(self, option: click.Option, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise click.BadParameter(f"got {value!r}, need a text or a number")
        if isinstance(option.type, click.Path) and self.settings.path.parent != Path.cwd():
            # A path in a file is meant from where the file stands, also when the command is started in a folder below.
            value = self.settings.path.parent / str(value)
        # As text, as the command line gives it: a type made for that would take 1.5 as the integer 1.
        return option.type.convert(str(value), option, self.context)


def _options(command: click.Command) -> dict[str, click.Option]:
    """The options of a command by the names that settings have: `report-dir`, and `keyword` of `-k`."""
    options: dict[str, click.Option] = {}
    for option in command.params:
        if isinstance(option, click.Option) and option.name is not None and not option.is_eager:
            # A short form such as -x sets the same parameter as --maxfail; the first one declared takes a value.
            options.setdefault(option.name.replace("_", "-"), option)
            for word in option.opts:
                if word.startswith("--"):
                    options.setdefault(word.removeprefix("--"), option)
    return options


def _wrong(path: Path, where: str, text: str) -> Stop:
    place = f"{path}: [{where}]" if where else str(path)
    return Stop(exit_codes.USAGE, f"{place}: {text}")
