"""`opassay bound`: the radius of an element of a spec's output, by the operations and lines that make it."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from ... import exit_codes
from ..addresses import require_in_file
from ..host import Stop, require
from .judge import parse_inputs, run_on_user_files
from .options import dtype_of


@click.command("bound")
@click.argument("reference")
@click.option("--dtype", help="To which floating inputs and parameters are cast.")
@click.option("--input", "words", multiple=True, metavar="NAME=VALUE", help="For what gives the inputs.")
@click.option("--contract", default="torch", show_default=True, help="What an evaluation may do.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the inputs.")
@click.option("--output", type=click.IntRange(0), default=0, show_default=True, help="Position of the output.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON.")
@click.option("--at", metavar="I,J,...", help="Index of the element; by default that of the widest bound in ulps.")
def bound_command(
    reference: str, dtype: str | None, words: tuple[str, ...], contract: str, seed: int, output: int,
    as_json: bool, at: str | None,
) -> int:  # fmt: skip
    """Say why the bound of an element of REFERENCE is what it is: which operations and lines make its radius.

    Inputs are those of REFERENCE's file. In Python: `opassay.explain_bound`, which a notebook shows as a table.
    Exit codes: 0, 2 usage.
    \f

    Args:
        reference: a file, or MODULE:NAME. dtype, words, contract, seed: as for `judge`.
        output, at: as for `explain_bound`. as_json: whether a program reads what is printed.
    """
    require_in_file(reference)
    require("torch", "mpmath", "msgspec")
    from ....properties.candidates.bound_parts import explain_in_file

    index = None if at is None else _index_of(at)
    name, values = dtype_of(dtype) if dtype else "", parse_inputs(words)
    try:
        parts = run_on_user_files(
            lambda: explain_in_file(reference, name, values, seed, contract=contract, output=output, index=index)
        )
    except IndexError as err:
        raise Stop(exit_codes.USAGE, str(err)) from err
    title = f"opassay bound {reference}: contract {contract}, seed {seed}"
    click.echo(json.dumps(asdict(parts)) if as_json else f"{title}\n{parts}")
    return exit_codes.OK


def _index_of(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(",") if word.strip())
    except ValueError as err:
        raise Stop(exit_codes.USAGE, f"--at: got {text!r}, need integers with commas between them") from err
