"""`opassay list`: which ops there are, and which cells a run would ask."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Sequence
from typing import Any

import click

from ...oracles.verdicts.verdict import AXES, Cell, quantity
from ...properties.catalog import CATALOG
from ...properties.catalog.loading import plugin_entry_points
from ...properties.engine.plan import Selection
from ...properties.table import KINDS, PROPERTIES
from .. import exit_codes
from ..record import plan_digest
from ..text import one_line
from .options import find_exclusions, narrowing_options, plan_cells, selection_of, selection_options

_WIDTH = 96


@click.command("list")
@selection_options
@narrowing_options
@click.option("--cells", "all_cells", is_flag=True, help="The cells also where nothing is selected.")
@click.option("--plugins", is_flag=True, help="Where ops come from; no cells, and nothing is imported.")
@click.option("--json", "as_json", is_flag=True, help="Cells and the digest of the plan, of all shards, as JSON.")
def list_command(
    ops: tuple[str, ...], all_cells: bool, plugins: bool, as_json: bool, keyword: str, shard: str | None, **options: Any
) -> int:
    """Show the ops; with a selection, which cells a run with the same options would ask.
    \f

    Args:
        ops, chosen, keyword, shard: what is selected. all_cells: print cells whether or not something is.
        plugins: print where ops come from instead. as_json: print JSON instead.
    """
    if plugins:
        return _print_plugins()
    selection = selection_of(ops, options)
    whole = plan_cells(selection)
    exclusions = find_exclusions(whole, shard, keyword)
    cells = [cell for cell in whole if cell.key not in exclusions]
    if as_json:
        data = [{"id": cell.id, "key": cell.key, **{axis: getattr(cell, axis) for axis in AXES}} for cell in cells]
        click.echo(json.dumps({"plan_digest": plan_digest(whole), "cells": data}, indent=1))
    elif all_cells or shard or keyword or ops or any(options.values()):
        _print_cells(cells, selection)
    else:
        _print_ops(cells)
    return exit_codes.OK if cells else exit_codes.NOTHING


def _print_ops(cells: Sequence[Cell]) -> None:
    names = list(dict.fromkeys(one_line(cell.op, 100) for cell in cells))
    click.echo(f"{quantity(len(names), 'op')}:")
    lines = textwrap.TextWrapper(
        _WIDTH, initial_indent="  ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    click.echo(lines.fill(", ".join(names)))
    kinds = f"opassay judge asks a candidate {quantity(len(KINDS), 'kind')} of them"
    click.echo(
        f"{len(PROPERTIES)} properties:\n{lines.fill(', '.join(PROPERTIES))}\n{kinds}:\n{lines.fill(', '.join(KINDS))}"
    )
    click.echo(f"{quantity(len(cells), 'cell')}: `opassay list OP` shows those of one op, `opassay list --cells` all")


def _print_cells(cells: Sequence[Cell], selection: Selection) -> None:
    for cell in cells:
        click.echo(f"{cell.id}  {one_line(cell.key, 600)}")
    # Devices and subjects have defaults, so cells of others are not what a filter of the user removed.
    removed = len(plan_cells(Selection(devices=selection.devices, subjects=selection.subjects))) - len(cells)
    click.echo(f"{quantity(len(cells), 'cell')}; the filters removed {removed}", err=True)


def _print_plugins() -> int:
    """Says where ops come from. Loading a plugin runs its code, so none is loaded."""
    click.echo(f"built in: {', '.join(CATALOG)}")
    if os.environ.get("OPASSAY_DISABLE_PLUGIN_AUTOLOAD"):
        click.echo("plugins are off: OPASSAY_DISABLE_PLUGIN_AUTOLOAD is set")
    for point in plugin_entry_points():
        note = "  (refused: the name is built in)" if point.name in CATALOG else ""
        origin = f"{point.dist.name} {point.dist.version}" if point.dist else "unknown distribution"
        click.echo(one_line(f"{point.name}: {origin}, {point.value}{note}", 500))
    return exit_codes.OK
