"""`opassay verify-function`, an earlier name: a run of one custom function, whose line it prints."""

from __future__ import annotations

import shlex

import click

from .host import Host
from .run import run_command


@click.command("verify-function", context_settings={"ignore_unknown_options": True})
@click.argument("function", metavar="MODULE:CLASS")
@click.option(
    "--samples", required=True, metavar="MODULE:NAME", help="Tuples of arguments, or a callable that draws one."
)
@click.option("--reference", metavar="MODULE:NAME", help="The formula in NumPy; by default what forward says.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF RUN]")
@click.pass_obj
def verify_function_command(
    host: Host, function: str, samples: str, reference: str | None, options: tuple[str, ...]
) -> int:
    """Judge a custom autograd function; further options are those of `opassay run`, which does this now.

    Judged in float64 and float32 unless --dtype says otherwise; profile brief unless --profile does.
    \f

    Args:
        host: what surrounds the command. function: MODULE:CLASS of the function. samples: MODULE:NAME of its arguments.
        reference: MODULE:NAME of its formula, or None. options: further words, which `opassay run` reads.
    """
    # The whole declaration goes into the name of the op, because the processes that judge
    # get nothing but names of cells.
    arguments = f"{samples},{reference}" if reference else samples
    words = ["--op", f"{function}({arguments})", *options]
    # Both ways to write an option count, `--dtype x` and `--dtype=x`.
    if not any(word.split("=")[0] == "--dtype" for word in options):
        words += ["--dtype", "float64", "--dtype", "float32"]
    if not any(word.split("=")[0] == "--profile" for word in options):
        words += ["--profile", "brief"]
    click.echo(f"`opassay verify-function` is `opassay run {shlex.join(words)}` now", err=True)
    code: int = run_command.main(words, prog_name="opassay verify-function", standalone_mode=False, obj=host)
    return code
