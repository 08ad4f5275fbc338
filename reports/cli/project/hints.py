"""Names that are nearly right: what an unknown setting or value of an option may have been meant to be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from ....properties.names import nearest_of

# Before version 8.2 click's class takes no type in brackets at run time.
if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice


def completing(names: Iterable[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """What a shell offers for the beginning of an argument: the names that begin so, in upper or lower case."""
    return lambda context, parameter, begun: [name for name in names if name.lower().startswith(begun.lower())]


class HintedChoice(_Choice):
    """A choice of names that says of an unknown one which is near."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as err:
            hint = nearest_of(str(value), map(str, self.choices))
            self.fail(f"{err.message.rstrip('.')}{hint}.", param, ctx)
