"""Holds what torch computes by the bound that torch's own function has as a spec.

    python benchmarks/torch_against_itself.py [NAME ...] [--share K/N] [--dtype float32 ...] [--group NAME ...]
                                              [--to FILE] [--of FILE ...]

Functions of elements, reductions and scans; one call of every function of torch.nn.functional; the collection of
specs; and the samples of torch's own tests (OpInfo), where the package `expecttest` is installed. Values and gradients
in three dtypes, at data of several kinds, always the same. A table says how many elements are inside, not judged, and
outside; each result with an element outside is listed with torch's own float64 beside it. Exit code 1 if one remains
that is not explained in `losses.py`. All of it takes ten minutes on one core; `--share 2/4` takes every
fourth function from the second on, `--to` writes the rows, and `--of` prints the tables of such files.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the collection of specs stands beside the tests

import torch
from itself import GROUPS, has_opinfo, looked_at, sources
from losses import explanation, is_off

DTYPES = ("float32", "bfloat16", "float16")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="functions that have one of these words in their name; all by default")
    parser.add_argument("--share", default="1/1", help="K/N: every N-th function, from the K-th on")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--group", nargs="+", choices=GROUPS, default=GROUPS)
    parser.add_argument("--to", type=Path, help="a file for the rows, one a line")
    parser.add_argument("--of", type=Path, nargs="+", help="files of rows: print their tables and compute nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    begun = time.process_time()
    if options.of:
        rows = [json.loads(line) for path in options.of for line in path.read_text().splitlines()]
    else:
        rows = list(_looked_at_all(options))
    return printed(rows, time.process_time() - begun)


def _looked_at_all(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    share, shares = map(int, options.share.split("/"))
    if "OpInfo" in options.group and not has_opinfo():
        print("without the samples of OpInfo: expecttest is not installed", file=sys.stderr)
    named = [
        each for each in sources(options.group) if not options.names or any(word in each.name for word in options.names)
    ]
    mine = named[share - 1 :: shares]
    out = options.to.open("w") if options.to else None
    for number, source in enumerate(mine):
        for dtype in options.dtype:
            for row in looked_at(source, getattr(torch, dtype)):
                if out:
                    out.write(json.dumps(row.as_dict()) + "\n")
                    out.flush()
                yield row.as_dict()
        if number % 50 == 49:
            print(f"{number + 1} of {len(mine)}, {time.process_time():.0f} CPU s", file=sys.stderr, flush=True)


def printed(rows: list[dict[str, Any]], seconds: float) -> int:
    """Print the tables, and return the exit code."""
    print(f"torch {torch.__version__}, contract torch, {len({row['name'] for row in rows})} functions and samples")
    print(f"{'':24}{'results':>9}{'judged':>13}{'not judged':>12}{'though finite':>15}{'outside':>9}{'worst':>11}")
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        for key in ((row["group"], row["dtype"], row["what"].split()[0]), ("all", row["dtype"], ""), ("all", "", "")):
            groups[key].append(row)
    for key, mine in groups.items():
        sums = [sum(row[word] for row in mine) for word in ("judged", "left", "missed", "outside")]
        worst = max(row["worst"] for row in mine)
        print(
            f"{' '.join(key).strip():28}{len(mine):5}{sums[0]:13,}{sums[1]:12,}{sums[2]:15,}{sums[3]:9,}{worst:11.4g}"
        )
    outliers = [row for row in rows if row["outside"]]
    unexplained = [row for row in outliers if not explanation(row)]
    print(f"\n{len(outliers)} results with an element outside, {len(unexplained)} of them not explained")
    for row in sorted(outliers, key=lambda row: (bool(explanation(row)), row["name"], row["dtype"])):
        print(_line(row))
    for title, start in (("not read", "not read"), ("raised", "RAISED")):
        notes = Counter((row["name"], row["note"]) for row in rows if row["note"].startswith(start))
        print(f"\n{title}: {len(notes)}")
        for (name, note), count in notes.items():
            print(f"  {name} ({count}): {note}")
    print(f"{seconds:.0f} CPU s")
    return int(bool(unexplained))


def _line(row: dict[str, Any]) -> str:
    why = explanation(row) or "NOT EXPLAINED"
    return (
        f"  {row['name']:32} {row['dtype']:8} {row['kind']:8} {row['what']:10} {row['outside']:6} of {row['judged']:6}"
        f" {row['worst']:10.4g} bounds at {row['at']}: {row['computed']:.9g}, float64 {row['exact']:.9g},"
        f" half-width {row['width']:.3g}, {row['moved']:.3g} moves of the operands"
        f", {row['stepped']} outside by steps{'; THE READING IS OFF' if is_off(row) else ''} {row['note']} | {why}"
    )


if __name__ == "__main__":
    sys.exit(main())
