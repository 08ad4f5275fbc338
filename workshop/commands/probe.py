"""`python -m workshop probe`: the tree along which a function adds up, by the name that a contract has for it."""

from __future__ import annotations

import click

from opassay.reports import exit_codes
from opassay.reports.cli.host import Stop, require


@click.command("probe")
@click.argument("candidate", metavar="FILE:NAME")
@click.option("--spec", required=True, metavar="FILE:NAME", help="The same in plain PyTorch: one sum or product.")
def probe_command(candidate: str, spec: str) -> int:
    """Print the allowance that holds a function to the tree of sums that it shows.

    The spec is one sum, mean or product of matrices, and its file gives the inputs, as for `opassay judge`.
    """
    require("torch", "mpmath", "msgspec")
    from opassay.properties.candidates.host.module_files import GivenError, candidate_of, problem_of

    from ..probing.isolated_sum import ProbeError
    from ..probing.tree_probe import probe

    try:
        problem = problem_of(spec, 0)
        _, function = candidate_of(candidate, problem.init_args, 0)
        result = probe(function, problem.spec, problem.draw(0))
    except (GivenError, ProbeError) as err:
        raise Stop(exit_codes.USAGE, str(err)) from err
    click.echo(f"torch+{result.name}: {result}")
    return exit_codes.OK
