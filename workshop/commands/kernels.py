"""`python -m workshop kernels`: the machine code and the traffic of the ops' CUDA kernels, judged without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import click

from opassay.reports import exit_codes
from opassay.reports.cli.host import Stop, is_installed
from opassay.reports.text import one_line

from ..kernels.classes import ARCHITECTURES, DTYPES, FAMILIES
from .kernel_tables import code_table, traffic_table

_OPS = tuple(op for ops in FAMILIES.values() for op in ops)
_PROGRAM = "workshop.kernels.program"
_NO_TRITON = 'Triton is not installed, which compiles and interprets kernels; pip install "opassay[triton]" (on Linux)'


@click.command("kernels")
@click.argument("ops", nargs=-1)
@click.option("--op", "also", multiple=True, metavar="OP", help="Only this op; may be repeated.")
@click.option("--family", multiple=True, type=click.Choice(tuple(FAMILIES)), help="Only this family; may be repeated.")
@click.option("--arch", multiple=True, type=click.Choice(ARCHITECTURES), help="Only this architecture; all by default.")
@click.option("--dtype", multiple=True, type=click.Choice(DTYPES), help="Only this dtype; all but float64 by default.")
@click.option("--once", is_flag=True, help="Each kernel (or op) in one configuration: seconds, not minutes.")
@click.option("--traffic", is_flag=True, help="The bytes that move, by the interpreter, against those that must.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the tables in Markdown.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON.")
def kernels_command(ops: tuple[str, ...], **options: Any) -> int:
    """Judge the CUDA kernels of OPS without a GPU: their machine code, or with --traffic what they move.

    What is compiled is what the ops launch at the shape classes of practice. Exit code 1 where a kernel fails: it
    spills, computes in double precision unasked, loads less than 16 bytes at a time, takes too much shared memory or
    too many registers; or moves more than it must.
    """
    names = _select_ops((*ops, *options["also"]), options["family"])
    if not is_installed("triton"):
        raise Stop(exit_codes.USAGE, _NO_TRITON)
    traffic = options["traffic"]
    rows = _rows(
        {
            "table": "traffic" if traffic else "code",
            "ops": names,
            "dtypes": options["dtype"] or DTYPES[: 1 if traffic else 3],
            "architectures": options["arch"] or ARCHITECTURES,
            "once": options["once"],
        }
    )
    if options["as_json"]:
        click.echo(json.dumps(rows, indent=1))
    else:
        table = traffic_table(rows) if traffic else code_table(rows)
        click.echo("\n".join(table.markdown() if options["as_markdown"] else table.lines()))
    return exit_codes.FAILED if any(row["faults"] for row in rows) else exit_codes.OK


def _select_ops(ops: tuple[str, ...], families: tuple[str, ...]) -> list[str]:
    unknown = [op for op in ops if op not in _OPS]
    if unknown:
        raise Stop(exit_codes.USAGE, f"unknown op: got op={unknown[0]!r}, need one of {', '.join(_OPS)}")
    return [op for op in _OPS if op in ops or any(op in FAMILIES[family] for family in families)]


def _rows(question: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a process that compiles or interprets; which of the two, Triton decides once for a process."""
    process = subprocess.run(
        [sys.executable, "-m", _PROGRAM, json.dumps(question)], capture_output=True, text=True, check=False
    )
    if process.returncode:
        lines = [line for line in process.stderr.splitlines() if line.strip()] or ["no message"]
        raise RuntimeError(f"the process that judges kernels ended with {process.returncode}: {one_line(lines[-1])}")
    return [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
