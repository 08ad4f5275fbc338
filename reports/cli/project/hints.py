"""Names that are nearly right: what an unknown command, setting or value of an option may have been meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from ...text import one_line

# Before version 8.2 click's class takes no type in brackets at run time.
if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice


def near(name: str, choices: Iterable[str]) -> str:
    """The one of `choices` that is nearest to a name, whatever the case of its letters; empty if none is near."""
    names = list(choices)
    close = difflib.get_close_matches(name.lower()[:200], [other.lower() for other in names], n=1)
    return next((other for other in names if close and other.lower() == close[0]), "")


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """` (did you mean 'softmax'?)`, or nothing where no name is near."""
    nearest = near(name, choices)
    return f" (did you mean {nearest!r}?)" if nearest else ""


class HintedGroup(click.Group):
    """A group that says of an unknown command which one is near; click does so from version 8.4 on only."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *_ = args
        # What begins with a dash is an option, and click tells of an unknown one by itself.
        if not name.startswith("-") and self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            suggestions = self.suggestions(ctx)
            nearest = near(name, suggestions)
            hint = f" (did you mean {suggestions[nearest]!r}?)" if nearest else ""
            ctx.fail(f"No such command {one_line(name, 100)!r}{hint}.")
        return super().resolve_command(ctx, args)

    def suggestions(self, ctx: click.Context) -> dict[str, str]:
        """What may have been meant: a name that is near to what was typed -> the words of its command."""
        return {name: name for name in self.list_commands(ctx)}


class HintedChoice(_Choice):
    """A choice of names that says of an unknown one which is near."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as err:
            hint = did_you_mean(str(value), map(str, self.choices))
            self.fail(f"{err.message.rstrip('.')}{hint}.", param, ctx)
