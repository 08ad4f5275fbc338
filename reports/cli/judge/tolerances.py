"""`opassay tolerances`: the least tolerances that miss no allowed evaluation of a spec, and what they do not see."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ... import exit_codes
from ..addresses import require_in_file
from ..host import require
from .judge import parse_inputs, run_on_user_files
from .options import dtype_of

if TYPE_CHECKING:
    from ....properties.candidates.tolerances import Tolerance

_DTYPES = ("float32", "bfloat16", "float16")
_HEAD = ("dtype", "inputs", "output", "atol", "rtol", "atol exact", "rtol exact", "ulp", "rms")


@click.command("tolerances")
@click.argument("reference")
@click.option(
    "--dtype", "dtypes", multiple=True, help=f"Of the inputs; may be repeated (default {', '.join(_DTYPES)})."
)
@click.option("--input", "words", multiple=True, metavar="NAME=VALUE",
              help="For what gives the inputs; a name with several values makes several cases.")  # fmt: skip
@click.option("--contract", default="torch", show_default=True, help="What an evaluation may do.")
@click.option("--atol", "absolute", type=float, help="Of yours: say what it misses, with the other one, or 0.")
@click.option("--rtol", "relative", type=float, help="The same.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the first inputs.")
@click.option("--draws", type=click.IntRange(1, 1000), default=8, show_default=True, help="Inputs of each case.")
@click.option("--format", "form", type=click.Choice(("table", "python", "torch", "yaml")), default="table",
              show_default=True, help="torch: for toleranceOverride, by dtype.")  # fmt: skip
def tolerances_command(
    reference: str, dtypes: tuple[str, ...], words: tuple[str, ...], contract: str,
    absolute: float | None, relative: float | None, seed: int, draws: int, form: str,
) -> int:  # fmt: skip
    """Print the least tolerances that miss no allowed evaluation of REFERENCE, and what they do not see.

    atol and rtol are for a test that computes REFERENCE in the same dtype, those called exact for one that computes it
    in float64 and rounds. ulp and rms are errors against the exact value. Inputs are those of REFERENCE's file.
    With --atol or --rtol it tries these in place of the least ones.
    Exit codes: 0, 1 a pair of yours misses a fault, 2 usage, 4 some elements have no bound.
    \f

    Args:
        reference: a file, or MODULE:NAME. dtypes, words, contract, seed, draws: as for `derive_tolerances`.
        absolute, relative: its `own`. form: of what is printed.
    """
    require_in_file(reference)
    require("torch", "mpmath", "msgspec")
    from ....properties.candidates.tolerances import AtolRtol, derive_tolerances

    own = None if absolute is relative is None else AtolRtol(absolute or 0.0, relative or 0.0)
    names = [dtype_of(name) for name in dtypes or _DTYPES]
    values = defaultdict(list)
    for word in words:
        for name, value in parse_inputs((word,)).items():
            values[name].append(value)
    cases = [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]
    rows = run_on_user_files(
        lambda: list(derive_tolerances(reference, names, cases, contract, seed=seed, draws=draws, own=own))
    )
    title = f"opassay tolerances {reference}: contract {contract}, seeds {seed} to {seed + draws - 1}"
    click.echo("\n".join([title if form == "table" else f"# {title}", *_FORMS[form](rows)]))
    for row in [row for row in rows if row.unbounded]:
        text = f"{row.dtype} {row.output}: {row.unbounded} of {row.elements} elements have no bound, and no tolerance"
        click.echo(text, err=True)
    for row in [row for row in rows if row.constant]:
        click.echo(f"{row.dtype} {row.output}: the right value is the same whatever the input", err=True)
    if own is not None and any(row.faults.misses for row in rows):
        return exit_codes.FAILED
    return exit_codes.INCOMPLETE if any(row.unbounded for row in rows) else exit_codes.OK


def _table(rows: Sequence[Tolerance]) -> list[str]:
    cells = [_HEAD] + [
        (
            row.dtype,
            row.case or "as given",
            row.output,
            *(f"{x:.2g}" for x in (*row.pair, *row.exact, row.ulp, row.rms)),
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    for row in rows:
        head = f"{row.dtype} {row.case} {row.output}".replace("  ", " ")
        names, sees, untried = row.faults
        misses = ", ".join(names) or "no fault that was tried"
        rest = f"; {untried} could not be tried" if untried else ""
        lines.append(f"{head}: does not see {misses}; sees {sees}; accept sets see all {sees + len(names)}{rest}")
    return lines


def _python(rows: Sequence[Tolerance]) -> list[str]:
    lines = [
        f"    {(row.dtype, row.case, row.output)!r}: {dict(row.pair._asdict())!r},"
        + (f"  # does not see {', '.join(row.faults.misses)}" if row.faults.misses else "")
        for row in rows
    ]
    return ["TOLERANCES = {  # (dtype, inputs, output): for torch.testing.assert_close", *lines, "}"]


def _torch(rows: Sequence[Tolerance]) -> list[str]:
    by_dtype: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        by_dtype[row.dtype].append(row.pair)
    lines = [
        f"    torch.{dtype}: tol(atol={max(p.atol for p in pairs)!r}, rtol={max(p.rtol for p in pairs)!r}),"
        for dtype, pairs in by_dtype.items()
    ]
    return ["from torch.testing._internal.common_device_type import tol, toleranceOverride", "",
            "TOLERANCES = toleranceOverride({", *lines, "})"]  # fmt: skip


def _yaml(rows: Sequence[Tolerance]) -> list[str]:
    return [
        f"- {{dtype: {row.dtype}, inputs: {json.dumps(row.case)}, output: {json.dumps(row.output)},"
        f" atol: {row.pair.atol!r}, rtol: {row.pair.rtol!r}, ulp: {row.ulp!r}, rms: {row.rms!r},"
        f" does_not_see: {json.dumps(row.faults.misses)}}}"
        for row in rows
    ]


_FORMS: dict[str, Callable[[Sequence[Tolerance]], list[str]]] = {
    "table": _table, "python": _python, "torch": _torch, "yaml": _yaml,
}  # fmt: skip
