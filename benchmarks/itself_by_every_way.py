"""Judges functions of torch by themselves, by every way of asking: a table of what is red, which nothing may be.

    python benchmarks/itself_by_every_way.py [NAME ...] [--way judge verify_kernel pytest run] [--share K/N]

A line for each function and way: the seconds of the processor, and every question that is neither held nor left out
with a reason. Exit code 1 if there is one. All of them take an hour and a half on one core.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from tests.itself import FUNCTIONS, WAYS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="of functions; all by default")
    parser.add_argument("--way", nargs="+", choices=WAYS, default=tuple(WAYS))
    parser.add_argument("--share", default="1/1", help="K/N: every N-th function, from the K-th on")
    options = parser.parse_args()
    torch.set_num_threads(1)
    share, shares = map(int, options.share.split("/"))
    names = [name for name in FUNCTIONS if not options.names or name in options.names][share - 1 :: shares]
    red: Counter[str] = Counter()
    for name in names:
        for way in options.way:
            before, wrong = _seconds(), WAYS[way](name)
            red[way] += bool(wrong)
            print(f"{name:20} {way:14} {_seconds() - before:6.1f} s  {'; '.join(wrong) or 'green'}", flush=True)
    print(f"\nred, of {len(names)} functions: {', '.join(f'{way} {red[way]}' for way in options.way)}")
    return int(any(red.values()))


def _seconds() -> float:
    """Of the processor: this process and those that it has started and that have ended."""
    each = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in each)


if __name__ == "__main__":
    sys.exit(main())
