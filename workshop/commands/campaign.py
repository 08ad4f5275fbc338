"""`python -m workshop campaign`: as `opassay campaign`, with sweeps and mutants of the ops beside cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from opassay.properties.catalog import CATALOG
from opassay.reports import exit_codes
from opassay.reports.cli.campaign.campaign import campaign_command as opassay_campaign
from opassay.reports.cli.campaign.campaign import run_campaign
from opassay.reports.cli.campaign.work import Work
from opassay.reports.cli.host import Host, Stop
from opassay.reports.cli.session import Request
from opassay.reports.progress import Teller

from ..sweeps.inputs import DTYPES
from .mutant_work import MutantWork
from .sweep_work import SweepWork


@click.command("campaign", params=list(opassay_campaign.params))
@click.option("--no-cells", is_flag=True, help="Ask no cells, only what other options name.")
@click.option("--sweep", "functions", multiple=True, metavar="FUNCTION", help="Sweep it, or all; may be repeated.")
@click.option("--sweep-dtype", "dtypes", multiple=True, type=click.Choice(DTYPES), help="May be repeated; all.")
@click.option("--sweep-shards", metavar="FIRST:END", default="", help="Only these of the 256 shards of float32.")
@click.option("--sweep-into", type=click.Path(path_type=Path), default=Path("sweeps"), show_default=True,
              help="The folder of the sweeps' logs.")  # fmt: skip
@click.option("--mutants", type=click.IntRange(min=0), help="Mutants of each family of ops, as `mutate`; 0 for all.")
@click.option("--graph", is_flag=True, help="The mutants are of the graph, and not of the text.")
@click.option("--mutants-into", type=click.Path(path_type=Path, dir_okay=False), default=Path("mutants.jsonl"),
              show_default=True, help="The log of the mutants.")  # fmt: skip
@click.pass_obj
def campaign_command(host: Host, /, ops: tuple[str, ...], **options: Any) -> int:
    """Spread cells, draws, sweeps and mutants over a cluster; ends with the record, the report and their exit code."""
    functions, most, graph = options["functions"], options["mutants"], options["graph"]
    if graph and most is None:
        raise Stop(exit_codes.USAGE, "--graph: got no --mutants, need how many of each family")

    def make_work(request: Request, teller: Teller) -> dict[str, Work]:
        works = dict[str, Work]()
        if functions:
            into = options["sweep_into"]
            works["shard"] = SweepWork(functions, options["dtypes"], options["sweep_shards"], into, teller)
        if most is not None:
            names = [name for name in CATALOG if name in (request.selection.ops or CATALOG)]
            works["mutants"] = MutantWork(names, most, graph, options["mutants_into"], teller)
        return works

    words = [f"--sweep={name}" for name in functions]
    words += [] if most is None else [f"--mutants={most}", *(["--graph"] if graph else [])]
    return run_campaign(
        host, ops, options, asks_cells=not options["no_cells"], words=words, more=make_work if words else None
    )
