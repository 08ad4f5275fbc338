"""How small a fault the bound shows: `python benchmarks/detectability.py [--op NAME]... [--examples N] [--dtype NAME]`.

Prints, for every op, the median half-width of the accept sets of its judged elements, in ulp: of values, of vjp and of
jvp. The profile "commit" has fixed seeds, so the samples are the same in every run. Up to the first derivative the
median is held against a target. A backward op is a first derivative itself: its own derivatives are second ones, whose
bound is twice as wide by rule.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator

import torch
from measurement import Row, at_most, line

from opassay.oracles.verdicts.verdict import Cell, Code
from opassay.properties.catalog import CATALOG
from opassay.properties.catalog.loading import load_op
from opassay.properties.verification import Settings, run_cell

PROPERTIES = ("FWD", "VJP", "JVP")
#: The largest median that is meant to be, in ulp.
TARGET = 100.0
EXAMPLES = 80


def rows(ops: list[str], dtype: str, examples: int) -> Iterator[Row]:
    """A row for every cell; NaN where the op has no such derivative.

    Raises:
        RuntimeError: a cell failed, so that its samples are not all there.
    """
    for op in ops:
        for code in PROPERTIES:
            cell = Cell(op, code, dtype, "cpu", "opassay")
            verdict = run_cell(cell, Settings("commit", max_examples=examples))
            median = verdict.measure.detect_median
            if math.isnan(median) and verdict.code is not Code.HELD:
                continue
            if verdict.code is not Code.HELD:
                raise RuntimeError(f"{cell.key}: {verdict.reason}")
            order = load_op(op).promises.order + (code != "FWD")
            case = f"{code} {dtype}, order {order}, {verdict.measure.judged} elements"
            yield at_most(op, case, median, "ulp", TARGET) if order <= 1 else Row(op, case, median, "ulp")


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the median half-width of the accept sets of ops, in ulp.")
    parser.add_argument("--op", action="append", choices=CATALOG, metavar="NAME", help="one op of the catalog")
    parser.add_argument("--examples", type=int, default=EXAMPLES, metavar="N", help=f"per cell, {EXAMPLES} by default")
    parser.add_argument("--dtype", default="float32", help="torch's name of the dtype, float32 by default")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    missed = 0
    for row in rows(arguments.op or list(CATALOG), arguments.dtype, arguments.examples):
        print(line(row), flush=True)
        missed += row.reaches_target is False
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
