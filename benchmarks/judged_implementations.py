"""Right and wrong implementations of specs that people write, judged in float32 and in half types.

    python benchmarks/judged_implementations.py [WORD ...] [--share K/N] [--dtype ...] [--only right|wrong]
                                                [--check] [--list] [--to FILE] [--of FILE ...]

The problems are in `implementations/`. Right ones (other orders, tiles, splits, forms; gradients by hand) are judged
under the contract `torch`, and in half types, where they compute in float32 and round once, also under `strict`. Wrong
ones are judged in float32 under `torch`, and in bfloat16 under `strict`, the sharpest contract that their right ones
keep. It is told which right ones are not accepted, and which wrong ones are not refused though their results or
gradients differ in bits from those of every right one. `--check` only asks whether the right ones are right in float64.
Exit code 1 if a right one is not accepted whose reason is not written beside it. All of it takes half an hour on one
core.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from implementations import DTYPES, PROBLEMS, Implementation, Problem, differing, judge_one

CONTRACTS = {
    (True, "float32"): ("torch",), (True, "bfloat16"): ("torch", "strict"), (True, "float16"): ("strict",),
    (False, "float32"): ("torch",), (False, "bfloat16"): ("strict",), (False, "float16"): (),
}  # fmt: skip
TITLES = ("accepted", "suspect", "weak", "rejected", "error", "raised")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="problems that have one of these in their name; all by default")
    parser.add_argument("--share", default="1/1", help="K/N: every N-th judgement, from the K-th on")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--only", choices=("right", "wrong"), help="implementations of one sort")
    parser.add_argument("--list", action="store_true", help="say what there is, and judge nothing")
    parser.add_argument("--check", action="store_true", help="hold the right ones against their specs in float64 alone")
    parser.add_argument("--to", type=Path, help="a file for the rows, one a line")
    parser.add_argument("--of", type=Path, nargs="+", help="files of rows: print their table and judge nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.list:
        return listed()
    if options.check:
        return checked()
    if options.of:
        rows = [json.loads(line) for path in options.of for line in path.read_text().splitlines()]
    else:
        rows = list(_judged_all(options))
    return printed(rows)


def listed() -> int:
    for problem in PROBLEMS.values():
        for each in problem.implementations:
            print("right" if each.right else "wrong", "|", problem.name, "|", each.title, "|", " ".join(each.dtypes))
    every = [each for problem in PROBLEMS.values() for each in problem.implementations]
    right = sum(each.right for each in every)
    print(f"{len(PROBLEMS)} problems, {right} right implementations, {len(every) - right} wrong ones")
    return 0


def checked() -> int:
    """In float64 a right one is its spec, to the last few digits."""
    wrong = 0
    for problem in PROBLEMS.values():
        for each in problem.implementations:
            how = differing(problem, each)
            if each.right and how:
                wrong += 1
                print(f"not right: {problem.name} | {each.title} | {how}")
            if not each.right and not how and "float32" in each.dtypes:
                print(f"as the spec: {problem.name} | {each.title}")
    return wrong


def _jobs(options: argparse.Namespace) -> Iterator[tuple[Problem, Implementation, str, str]]:
    for problem in PROBLEMS.values():
        if options.words and not any(word in problem.name for word in options.words):
            continue
        for each in problem.implementations:
            if options.only not in (None, "right" if each.right else "wrong"):
                continue
            for dtype in options.dtype:
                if dtype in each.dtypes:
                    yield from ((problem, each, dtype, name) for name in CONTRACTS[each.right, dtype])


def _judged_all(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    share, shares = map(int, options.share.split("/"))
    jobs = list(_jobs(options))[share - 1 :: shares]
    out = options.to.open("w") if options.to else None
    begun = time.perf_counter()
    for number, job in enumerate(jobs):
        row = asdict(judge_one(*job))
        if out:
            out.write(json.dumps(row) + "\n")
            out.flush()
        yield row
        if number % 50 == 49:
            seconds = time.perf_counter() - begun
            print(f"{number + 1} of {len(jobs)}, {seconds:.0f} s", file=sys.stderr, flush=True)


def printed(rows: list[dict[str, Any]]) -> int:
    """Print the tables, and return the exit code."""
    print(f"torch {torch.__version__}")
    print(f"{'':36}{'all':>6}" + "".join(f"{title:>10}" for title in TITLES) + f"{'unseen':>10}")
    for right in (True, False):
        for key in sorted({(row["dtype"], row["contract"].partition("+")[0]) for row in rows if row["right"] is right}):
            mine = [
                row for row in rows
                if row["right"] is right and (row["dtype"], row["contract"].partition("+")[0]) == key
            ]  # fmt: skip
            counts = [sum(row["verdict"] == title for row in mine) for title in TITLES]
            unseen = sum(not row["shows"] and row["verdict"] != "rejected" for row in mine)
            title = f"{'right' if right else 'wrong'}, {', '.join(key)}"
            print(f"{title:36}{len(mine):6}" + "".join(f"{count:10}" for count in counts) + f"{unseen:10}")
    others = [row for row in rows if row["right"] and row["verdict"] != "accepted"]
    print("\nright, and not accepted:")
    for row in others:
        print(_line(row))
    print("\nwrong, and not refused:")
    for row in rows:
        if not row["right"] and row["verdict"] != "rejected":
            print(_line(row) + ("" if row["shows"] else " | has the bits of a right one"))
    print(f"{sum(row['seconds'] for row in rows):.0f} s")
    return int(any(not row["why"] for row in others))


def _line(row: dict[str, Any]) -> str:
    text = row["text"].partition("\n")[0][:160]
    why = f" | by design: {row['why']}" if row["why"] else ""
    return (
        f"  {row['problem']} | {row['title']} | {row['dtype']} {row['contract']} | {row['verdict']}"
        f" {' '.join(row['questions'])} {row['ratio']} | {text}{why}"
    )


if __name__ == "__main__":
    sys.exit(main())
