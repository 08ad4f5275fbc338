"""`python -m workshop second-opinion`: the exact reading held against a second one, op by op."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opassay.properties.catalog.loading import load_op, op_names
from opassay.properties.names import SelectionError
from opassay.reports import exit_codes
from opassay.reports.cli.host import Stop, require
from opassay.reports.cli.reading import as_usage
from opassay.reports.store.files import write_atomically

if TYPE_CHECKING:
    from ..checking.opinions import Account

DTYPES = ("float64", "float32", "bfloat16", "float16")
_HEADINGS = ("op", "dtype", "samples", "elements", "singular", "wide", "unread", "apart", "disagree", "seconds")
_WIDTHS = (34, 9, 8, 9, 9, 5, 7, 8, 9, 8)


def table_line(cells: Iterable[Any], widths: Iterable[int] = _WIDTHS) -> str:
    """One row: the first two columns to the left, numbers to the right."""
    pairs = zip(map(str, cells), widths, strict=True)
    return " ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(pairs)).rstrip()


@click.command("second-opinion")
@click.argument("ops", nargs=-1)
@click.option("--dtype", "dtypes", multiple=True, type=click.Choice(DTYPES), help="May be repeated; all.")
@click.option("--samples", type=click.IntRange(1), default=2000, show_default=True, help="Of all ops and dtypes.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of drafts and data.")
@click.option("--json", "into", type=click.Path(path_type=Path, dir_okay=False), help="Sums by op.")
def second_opinion_command(
    ops: tuple[str, ...], dtypes: tuple[str, ...], samples: int, seed: int, into: Path | None
) -> int:
    """Read formulas and their derivatives twice: with mpmath's numbers, and with arb's intervals and Taylor series.

    OPS: those of the catalog. Orders 0, 1 and 2, by every word of jvp and vjp. Columns: elements that were compared;
    derivatives that are not finite, of which nothing is said; intervals that say too little; samples that a reading
    gave up; and how far an exact value lies outside its interval at most, as a share of it. Exit code 1 where the two
    disagree.
    """
    require("mpmath", "hypothesis")
    try:
        names = list(ops or op_names())
        declared = [load_op(name) for name in names]
    except SelectionError as err:
        raise Stop(exit_codes.USAGE, str(err)) from err
    # torch is imported with the declarations, and not before: the table of commands is read without it.
    try:
        from ..checking import opinions
    except ModuleNotFoundError as err:
        if err.name != "flint":
            raise
        raise Stop(exit_codes.USAGE, str(err)) from err

    formats = dtypes or DTYPES
    each = math.ceil(samples / (len(names) * len(formats)))
    click.echo(f"seed {seed}, {each} samples of each op and dtype\n{table_line(_HEADINGS)}")
    accounts: list[Account] = []
    interrupted = False
    try:
        for op in declared:
            for dtype in formats:
                accounts.append(opinions.Account(op.name, dtype))
                for accounts[-1] in opinions.compare_readings(op, dtype, each, seed):
                    pass
                click.echo(_row(accounts[-1]))
    except KeyboardInterrupt:
        interrupted = True
    if into is not None:
        with as_usage():
            write_atomically(into, json.dumps(sums_by_op(accounts, seed), indent=1).encode() + b"\n")
    return _print_sums(accounts, interrupted)


def sums_by_op(accounts: Iterable[Account], seed: int) -> dict[str, Any]:
    """Of each op, over all of its dtypes: how much was compared, and how much disagrees."""
    by_op: dict[str, Counter[str]] = {}
    for account in accounts:
        sums = by_op.setdefault(account.op, Counter({"disagree": 0, "seed": seed}))
        sums.update(samples=account.samples, elements=account.elements, disagree=account.disagreements)
    return {"ops": {op: dict(sums) for op, sums in by_op.items()}}


def _row(account: Account) -> str:
    kinds = account.kinds
    apart = "none" if account.apart is None else f"2^{account.apart}"
    return table_line(
        (account.op, account.dtype, account.samples, account.elements, kinds["singular"], kinds["wide"],
         sum(account.unread.values()), apart, kinds["disagree"], f"{account.seconds:.2f}")
    )  # fmt: skip


def _print_sums(accounts: Iterable[Account], interrupted: bool) -> int:
    """The sums, what disagrees, and the exit code."""
    every = list(accounts)
    unread: Counter[str] = sum((account.unread for account in every), Counter())
    samples, elements = sum(a.samples for a in every), sum(a.elements for a in every)
    wrong = sum(account.disagreements for account in every)
    gave_up = ", ".join(f"{count} {reason}" for reason, count in unread.items())
    click.echo(f"{samples:,} samples, {elements:,} elements, {wrong:,} disagree; unread: {gave_up or 'none'}")
    for line in (line for account in every for line in account.examples):
        click.echo(f"  {line}")
    if interrupted:
        return exit_codes.INTERRUPT
    if wrong:
        return exit_codes.FAILED
    return exit_codes.OK if elements else exit_codes.NOTHING
