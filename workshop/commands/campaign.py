"""`python -m workshop campaign`: as `opassay campaign`, with mutants of the ops beside cells and sweeps."""

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

from .mutant_work import MutantWork


@click.command("campaign", params=list(opassay_campaign.params))
@click.option("--mutants", type=click.IntRange(min=0), help="Mutants of each family of ops, as `mutate`; 0 for all.")
@click.option("--graph", is_flag=True, help="The mutants are of the graph, and not of the text.")
@click.option("--mutants-into", type=click.Path(path_type=Path, dir_okay=False), default=Path("mutants.jsonl"),
              show_default=True, help="The log of the mutants.")  # fmt: skip
@click.pass_obj
def campaign_command(
    host: Host, /, ops: tuple[str, ...], mutants: int | None, graph: bool, mutants_into: Path, **options: Any
) -> int:
    """Spread cells, draws, sweeps and mutants over a cluster; ends with the record, the report and their exit code."""
    if mutants is None:
        if graph:
            raise Stop(exit_codes.USAGE, "--graph: got no --mutants, need how many of each family")
        return run_campaign(host, ops, options)

    def mutant_work(request: Request, teller: Teller) -> dict[str, Work]:
        names = [name for name in CATALOG if name in (request.selection.ops or CATALOG)]
        return {"mutants": MutantWork(names, mutants, graph, mutants_into, teller)}

    words = [f"--mutants={mutants}", *(["--graph"] if graph else [])]
    return run_campaign(host, ops, options, words=words, more=mutant_work)
