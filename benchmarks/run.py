"""All benchmarks in one table: `python benchmarks/run.py [--only NAME]... [--json FILE]`.

Times are minima of runs that take turns; on a shared machine the minimum is what the code costs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import against_torch
import certified
import exact_vjp
import fixed_cost
import function_overhead
import moving_tensors
import op_overhead
import process_state
import suite
import torch
from measurement import Row, line, surroundings

BENCHMARKS: dict[str, Callable[[], Iterable[Row]]] = {
    "exact_vjp": exact_vjp.rows,
    "certified": certified.rows,
    "suite": suite.rows,
    "process_state": process_state.rows,
    "against_torch": against_torch.rows,
    "fixed_cost": fixed_cost.rows,
    "function_overhead": function_overhead.rows,
    "moving_tensors": moving_tensors.rows,
}
OVERHEAD = "op_overhead"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the benchmarks and print one table.")
    names = (*BENCHMARKS, OVERHEAD)
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers, versions, CPU name and date")
    return parser.parse_args()


def _overhead() -> list[str]:
    """The lines of the op's own benchmark, shown as they come."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        op_overhead.main()
    return text.getvalue().splitlines()


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(1)
    results: dict[str, Any] = {"surroundings": surroundings(), "rows": [], OVERHEAD: []}
    print(", ".join(f"{name} {value}" for name, value in results["surroundings"].items()))
    wanted = arguments.only or [*BENCHMARKS, OVERHEAD]
    for name, rows in BENCHMARKS.items():
        for row in rows() if name in wanted else ():
            print(line(row), flush=True)
            results["rows"].append(asdict(row))
    if OVERHEAD in wanted:
        results[OVERHEAD] = _overhead()
        print("\n".join(results[OVERHEAD]))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
