"""Which cells a command asks about: the options for it, and the plan that follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from ...oracles.verdicts.verdict import AXES, Cell
from ...properties.engine.plan import DTYPES, Selection, in_shard, plan
from ...properties.names import DEVICES, PluginError, SelectionError
from .. import exit_codes
from ..collect import DESELECTED, OTHER_SHARD
from ..keyword import KeywordError, matcher
from .host import Stop

#: What the help of an option says besides, where its values are few or are listed elsewhere.
_VALUES = {
    "property": " `opassay explain` lists them.",
    "dtype": f" One of {', '.join(DTYPES)}.",
    "device": f" One of {', '.join(DEVICES)}.",
    "subject": " `opassay explain` lists them.",
}


def selection_options(command: Any) -> Any:
    """Adds OPS and --op, --property, --dtype, --device, --subject to a command."""
    # Decorators are applied from the last to the first, so this gives the options in the order of AXES.
    for axis in reversed(AXES):
        text = f"Only this {axis}; may be repeated.{_VALUES.get(axis, '')}"
        command = click.option(f"--{axis}", multiple=True, metavar=axis.upper(), help=text)(command)
    return click.argument("ops", nargs=-1)(command)


def selection_of(ops: tuple[str, ...], chosen: dict[str, Any]) -> Selection:
    """The selection that the options name; cpu and opassay where they name no device or subject."""
    context = click.get_current_context(silent=True)
    # Ops that the command line names take the place of those that the project's settings name, as every option does.
    if ops and context is not None and context.get_parameter_source("op") is ParameterSource.DEFAULT_MAP:
        chosen = {**chosen, "op": ()}
    return Selection.of({**chosen, "op": (*ops, *chosen["op"])})


def plan_cells(selection: Selection) -> list[Cell]:
    """The cells of a selection; ends the command with 2 for an unknown name or a broken plugin."""
    try:
        return plan(selection)
    except (SelectionError, PluginError) as err:
        raise Stop(exit_codes.USAGE, str(err)) from err


def keyword_option(command: Any) -> Any:
    """Adds -k to a command."""
    return click.option("-k", "keyword", default="", metavar="EXPR", help="Only cells whose name matches.")(command)


def narrowing_options(command: Any) -> Any:
    """Adds -k and --shard to a command."""
    return keyword_option(click.option("--shard", metavar="I/N", help="Only part I of N of the cells.")(command))


def find_exclusions(cells: Sequence[Cell], shard: str | None, keyword: str) -> dict[str, str]:
    """Key of a cell that the two options leave out -> why; ends the command with 2 where they cannot be read."""
    try:
        # Shards are cut from the whole plan, before -k, so that all shards of a run agree on who has which cell.
        here = {cell.key for cell in in_shard(cells, shard)}
        matches = matcher(keyword) if keyword else lambda name: True
    except (SelectionError, KeywordError) as err:
        raise Stop(exit_codes.USAGE, str(err)) from err
    exclusions = {cell.key: OTHER_SHARD for cell in cells if cell.key not in here}
    return exclusions | {key: DESELECTED for key in here if not matches(key)}
