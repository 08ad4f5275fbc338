"""How many wrong and right candidates each tool accepts: the judge, beside tolerances that are chosen by hand.

    python benchmarks/candidates.py [--share K/N] [--seconds S] [--task NAME ...] [--kind WORD ...]
                                    [--only wrong|right] [--list] [--to FILE] [--of FILE ...]

Right and wrong candidates for some forty small specs (`judging/`) are judged by `opassay.judge`, and by
`torch.allclose` with rtol = atol = 1e-2 and 1e-4 and `torch.testing.assert_close` on three draws of the arguments. A
table by kind says how many each accepts; wrong ones that the judge accepts, or calls weak, and right ones that it does
not accept, are listed. `--share 2/4` takes every fourth candidate from the second on; `--to` writes the rows, and
`--of` prints the table of such files. One core, some 12 minutes for all.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from judging import TASKS, judged_by_all, right_candidates, wrong_candidates

TOOLS = ("allclose 1e-2", "allclose 1e-4", "assert_close", "opassay")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", default="1/1", help="K/N: every N-th candidate, from the K-th on")
    parser.add_argument("--seconds", type=float, default=720, help="no candidate is begun after so many")
    parser.add_argument("--task", nargs="+", default=(), help="tasks by name; all by default")
    parser.add_argument("--kind", nargs="+", default=(), help="kinds that have one of these words in their name")
    parser.add_argument("--only", choices=("wrong", "right"), help="candidates of one sort")
    parser.add_argument("--list", action="store_true", help="say which candidates there are, and judge none")
    parser.add_argument("--to", type=Path, help="a file for the rows")
    parser.add_argument("--of", type=Path, nargs="+", help="files of rows: print their table and judge nothing")
    options = parser.parse_args()
    if options.of:
        rows = [json.loads(line) for path in options.of for line in path.read_text().splitlines()]
        print(table(rows))
        return 0
    torch.set_num_threads(1)
    if options.to is not None:
        options.to.write_text("")
    rows = judge(options)
    if not options.list:
        print(table(rows))
    return 0


def judge(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each candidate of the share."""
    share, shares = map(int, options.share.split("/"))
    tasks = [task for name, task in TASKS.items() if not options.task or name in options.task]
    both = [(True, c) for task in tasks for c in wrong_candidates(task)]
    both += [(False, c) for task in tasks for c in right_candidates(task)]
    both = [(wrong, c) for wrong, c in both if not options.kind or any(word in c.kind for word in options.kind)]
    both = [(wrong, c) for wrong, c in both if options.only in (None, "wrong" if wrong else "right")]
    share_of_all = both[share - 1 :: shares]
    begun, rows = time.perf_counter(), []
    for number, (wrong, candidate) in enumerate(share_of_all):
        if options.list:
            print("wrong" if wrong else "right", candidate.task.name, "|", candidate.kind, "|", candidate.name)
            continue
        if time.perf_counter() - begun > options.seconds:
            print(
                f"out of time: {len(share_of_all) - number} of {len(share_of_all)} candidates are not judged",
                file=sys.stderr,
            )
            break
        result = judged_by_all(candidate, wrong=wrong)
        rows.append(
            {
                "wrong": wrong, "task": candidate.task.name, "kind": candidate.kind, "name": candidate.name,
                "accepted": result.accepted, "verdict": result.verdict, "causes": result.causes, "text": result.text,
            }
        )  # fmt: skip
        if options.to is not None:
            with options.to.open("a") as file:  # at once, so that a run that is stopped leaves what it knows
                file.write(json.dumps(rows[-1]) + "\n")
        if number % 20 == 19:
            seconds = time.perf_counter() - begun
            print(f"{number + 1} of {len(share_of_all)}, {seconds:.0f} s", file=sys.stderr, flush=True)
    if options.list:
        print(
            f"{sum(wrong for wrong, _ in both)} wrong, {sum(not wrong for wrong, _ in both)} right, {len(tasks)} tasks"
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The table by kind, and what was not judged as it should be."""
    lines = [f"torch {torch.__version__}, {platform.machine()}, float32, seed 0"]
    for wrong, title in ((True, "wrong candidates, accepted"), (False, "right candidates, accepted")):
        mine = [row for row in rows if row["wrong"] is wrong]
        lines += ["", f"{title:36}{'of':>5}" + "".join(f"{tool:>15}" for tool in TOOLS)]
        for kind in dict.fromkeys(row["kind"] for row in mine):
            lines.append(_line(kind, [row for row in mine if row["kind"] == kind]))
        lines.append(_line(f"all, of {len({row['task'] for row in mine})} tasks", mine))
        verdicts = Counter(row["verdict"] for row in mine)
        lines.append("opassay: " + ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()))
        others = [
            row
            for row in mine
            if (row["verdict"] == "rejected") is not wrong and (wrong or row["verdict"] != "accepted")
        ]
        lines += [
            "",
            *(f"{row['verdict']}: {row['task']} | {row['kind']} | {row['name']} {_why(row)}" for row in others),
        ]
    return "\n".join(lines)


def _line(kind: str, rows: list[dict[str, Any]]) -> str:
    return f"{kind:36}{len(rows):5}" + "".join(f"{sum(row['accepted'][tool] for row in rows):15}" for tool in TOOLS)


def _why(row: dict[str, Any]) -> str:
    return f"{' '.join(row['causes'])} {row['text'].partition(chr(10))[0]}".strip()


if __name__ == "__main__":
    sys.exit(main())
