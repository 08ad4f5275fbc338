"""Mistakes planted in the compiled kernels of the league, one instruction at a time, and which question refuses them.

    python benchmarks/league_mutants.py [LIBRARY ...] [--dtype bfloat16] [--call TEXT] [--most 1] [-n 2] [--json FILE]

What is asked of a kernel is what the league asks (`opassay.judge`), in groups, of which the cheapest come first. Only
kernels that are right as they are have mutants. The score is of those that were killed or survived.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import click

import opassay
from benchmarks.contenders import COMPILED, HALVES, Contender, contenders
from opassay.oracles.machine.ptx import triton_launches
from opassay.oracles.verdicts.verdict import Cell, Outcome, Verdict
from workshop.commands.ptx_mutants import run_campaign
from workshop.mutation.ptx_campaign import PtxCampaign, PtxSettings
from workshop.mutation.ptx_launches import MutableExecutor

_ARCHITECTURE = "sm_90"
#: Questions that are asked together, the most telling for their time first; the names are those of properties. Not
#: SIZE:sizes, which has torch begin threads: copies of a process that has some wait for them for ever.
_GROUPS = {
    "FWD": ("FWD:given", "FWD:seeds", "FWD:signs", "FWD:offset", "FWD:wide"),
    "CALLS": ("CALLS:again", "CALLS:same", "POISON", "PURE:untouched"),
    "SPECIAL": (
        "SPECIAL:zeros",
        "SPECIAL:nan",
        "SPECIAL:inf",
        "FWD:small",
        "FWD:nearone",
        "DATA:integers",
        "DATA:bits",
    ),
    "VJP": ("VJP:grad",),
    "LAYOUT": ("LAYOUT:strides",),
}
#: Seconds of one group by the clock, CPU seconds of one in a mutant, and of all of them.
_TOTAL, _LIMIT, _SECONDS = 60.0, 90, 150.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", default=COMPILED, help="those whose kernels are compiled")
    parser.add_argument("--dtype", action="append", choices=HALVES, help="all by default; repeatable")
    parser.add_argument("--call", default="", help="kernels with this text in their call")
    parser.add_argument("--most", type=int, default=1, help="mutants of each kind of each kernel; 0 for all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-n", type=int, default=2, help="mutants that are asked at once")
    parser.add_argument("--json", type=Path, help="write all of it to a file")
    options = parser.parse_args()
    pairs = itertools.product(options.libraries, options.dtype or HALVES)
    every = itertools.chain.from_iterable(itertools.starmap(contenders, pairs))
    rows = {f"{each.call} {each.dtype}": each for each in every if options.call in each.call}
    cells = [Cell(name, group, row.dtype, "cpu", "ptx") for name, row in rows.items() for group in _GROUPS]
    machine = MutableExecutor(_ARCHITECTURE)
    triton_launches.Executor = lambda architecture: machine  # type: ignore[assignment, misc]
    campaign = PtxCampaign(machine, cells, click.echo, functools.partial(_ask, rows), _LIMIT)
    score = run_campaign(campaign, PtxSettings(options.seed, options.most, options.n, _SECONDS), options.json)
    click.echo(f"{score:.1%} of {len(rows)} kernels' mutants that were killed or survived, seed {options.seed}")
    return 0


def _ask(rows: dict[str, Contender], cell: Cell, examples: int | None) -> Verdict:
    """The verdict of a group of questions about a kernel; `examples` says nothing here."""
    row = rows[cell.op]
    judgement = opassay.judge(
        row.function, row.spec, row.arguments, contract=row.contract, questions=_GROUPS[cell.property],
        compiled=_ARCHITECTURE, calls=4, total=_TOTAL, domain={"where": row.where},
    )  # fmt: skip
    for cause in judgement.causes:
        return Verdict(cell, Outcome.FAIL, cause.wrong.code if cause.wrong else None, cause.text)
    return Verdict(cell, Outcome.ERROR if judgement.error else Outcome.VERIFIED, None, judgement.error)


if __name__ == "__main__":
    sys.exit(main())
