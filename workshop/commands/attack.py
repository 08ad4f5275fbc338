"""`python -m workshop attack`: the derived bounds held against random evaluations that the contract allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from opassay.properties.catalog.loading import load_op, op_names
from opassay.properties.names import SelectionError
from opassay.reports import exit_codes
from opassay.reports.cli.host import Stop, require

from .second_opinion import DTYPES, table_line

if TYPE_CHECKING:
    from ..checking.attacks import Attack

_PRESETS = ("strict", "flash", "torch", "tensor_core", "fast_math")
#: A line of progress after so many million elements.
_EVERY = 5 * 10**6


@click.command("attack")
@click.argument("ops", nargs=-1)
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(DTYPES), help="May be repeated; all.")
@click.option("--contract", "contracts", multiple=True, type=click.Choice(_PRESETS), help="May be repeated; all.")
@click.option("--elements", type=click.IntRange(1), default=10**7, show_default=True, help="To evaluate, at least.")
@click.option("--rounds", type=click.IntRange(1), default=12, show_default=True, help="Visits of each case, at least.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of drafts, data and evaluations.")
def attack_command(
    ops: tuple[str, ...], dtypes: tuple[str, ...], contracts: tuple[str, ...], elements: int, rounds: int, seed: int
) -> int:
    """Evaluate formulas as their contract allows, at random, and hold every element against its bound.

    OPS: those of the catalog; values and first derivatives, under every preset of terms. Sums run in random orders and
    along random trees, products are fused or not, functions are off by their ulps, intermediates stored or not. The
    table has, by output and contract, the largest error over its bound; those never above 0.3 are marked. Exit code 1
    where an element lies outside.
    """
    require("mpmath", "hypothesis")
    try:
        declared = [load_op(name) for name in ops or op_names()]
    except SelectionError as err:
        raise Stop(exit_codes.USAGE, str(err)) from err
    # torch is imported with the declarations, and not before: the table of commands is read without it.
    from ..checking import attacks

    cases = attacks.cases_of(declared, dtypes or DTYPES, lambda name: not contracts or name in contracts)
    click.echo(f"seed {seed}, {len(cases)} cases: ops, dtypes and contracts")
    last: Attack | None = None
    interrupted, next_line = False, _EVERY
    try:
        for last in attacks.attack_bounds(cases, elements, seed, rounds):
            if last.elements >= next_line:
                click.echo(f"{last.elements:,} elements, {last.outside} outside", err=True)
                next_line += _EVERY
    except KeyboardInterrupt:
        interrupted = True
    if last is None:
        return exit_codes.INTERRUPT if interrupted else exit_codes.NOTHING
    for line in _table(last, attacks.WIDE):
        click.echo(line)
    if interrupted:
        return exit_codes.INTERRUPT
    return exit_codes.FAILED if last.outside else exit_codes.OK if last.elements else exit_codes.NOTHING


def _table(attack: Attack, wide: float) -> Iterator[str]:
    """A row of ratios for every output, sums, the outputs whose bound nothing came near, and what lies outside."""
    contracts = list(dict.fromkeys(contract for _, _, contract in attack.rows))
    widths = (34, 18, *(max(len(name), 6) for name in contracts), 12, 8)
    yield table_line(("op", "output", *contracts, "elements", "outside"), widths)
    never = []
    for op, output in dict.fromkeys((op, output) for op, output, _ in attack.rows):
        rows = {name: attack.rows[op, output, name] for name in contracts if (op, output, name) in attack.rows}
        ratios = [f"{rows[name].ratio:.3f}" if name in rows else "none" for name in contracts]
        count, outside = sum(row.elements for row in rows.values()), sum(row.outside for row in rows.values())
        largest = max(row.ratio for row in rows.values())
        if 0 < largest <= wide:
            never.append(f"{op} {output} ({largest:.3f})")
        yield table_line((op, output, *ratios, f"{count:,}", outside), widths)
    unbounded = sum(row.unbounded for row in attack.rows.values())
    yield f"{attack.elements:,} elements, {attack.outside} outside; {unbounded:,} more have no finite bound"
    yield f"never above {wide:g} of the bound: {', '.join(never) or 'none'}"
    yield from (f"  outside: {line}" for line in attack.examples)
    yield from (f"  left out: {reason}, {count} times" for reason, count in attack.omissions.items())
