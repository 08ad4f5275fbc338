"""How often LIKELY speaks: of right rewritings, which it must not accuse, and of quietly wrong candidates.

    python benchmarks/suspicion.py [--seeds N] [--of NAME ...] [--only right|wrong] [--seconds S]

Every right rewriting (`judging/rewritings.py`) is asked for values and gradients in float32 and float64, and in
bfloat16 and float16 where its kernel computes in float32, with N seeds each. The table has, for each spec, how many
judgements there were, the verdicts, and how near to suspicion the nearest of them came, in shares of what each test
allows. Below are the quietly wrong ones (`judging/quiet.py`) and what the judge says of each. Exit code 1 if a right
one is suspect. One core, some five minutes for each seed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from judging.orders import in_float32
from judging.quiet import QUIET
from judging.rewritings import PAIRS, Pair

import opassay
from opassay.oracles.bound.rounding.likeness import Likeness
from opassay.properties.candidates.asking import likely

QUESTIONS = ("FWD:given", "FWD:seeds", "FWD:offset", "FWD:nearone", "VJP:grad", "LIKELY")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4, help="judgements of each right candidate in each dtype")
    parser.add_argument("--of", nargs="+", default=(), help="specs by name; all by default")
    parser.add_argument("--only", choices=("right", "wrong"), help="candidates of one sort")
    parser.add_argument("--seconds", type=float, default=600, help="no spec is begun after so many")
    options = parser.parse_args()
    torch.set_num_threads(1)
    begun, suspects, count = time.perf_counter(), 0, 0
    print(f"torch {torch.__version__}; asked: {', '.join(QUESTIONS)}")
    for pair in PAIRS if options.only != "wrong" else ():
        if options.of and pair.name not in options.of:
            continue
        if time.perf_counter() - begun > options.seconds:
            print(f"out of time before {pair.name}", file=sys.stderr)
            break
        verdicts, nearest, which = _right(pair, options.seeds)
        suspects, count = suspects + verdicts["suspect"], count + verdicts.total()
        message = ", ".join(f"{n} {verdict}" for verdict, n in verdicts.most_common())
        print(f"{pair.name:16}{verdicts.total():5}  {message:32} nearest {nearest:4.2f}  {which}", flush=True)
    print(f"right rewritings: {count} judgements, {suspects} suspect")
    wrong: Counter[str] = Counter()
    for quiet in QUIET if options.only != "right" else ():
        generator = torch.Generator().manual_seed(5)
        first, *others = (torch.randn(shape, generator=generator) for shape in quiet.shapes)
        args = [first, *(t / t.shape[-2] ** 0.5 if t.ndim > 1 else t for t in others)]
        judgement = opassay.judge(quiet.candidate, quiet.spec, [t.to(quiet.dtype) for t in args], questions=QUESTIONS)
        wrong[str(judgement.verdict)] += 1
        causes = judgement.causes or judgement.suspicions
        message = f"{causes[0].question}: {causes[0].text}" if causes else judgement.error
        print(f"{quiet.name:52}{judgement.verdict:9} {message}", flush=True)
    print("quietly wrong:", ", ".join(f"{n} {verdict}" for verdict, n in wrong.most_common()))
    return int(suspects > 0)


def _right(pair: Pair, seeds: int) -> tuple[Counter[str], float, str]:
    """The verdicts on a spec's rewritings, the largest share of what a test allows, and whose it is."""
    verdicts: Counter[str] = Counter()
    nearest, which = 0.0, ""
    for name, dtype, way in _candidates(pair):
        for seed in range(seeds):
            with _Noted() as noted:
                judgement = opassay.judge(way, pair.spec, pair.draw(seed, dtype), seed=seed, questions=QUESTIONS)
            verdicts[str(judgement.verdict)] += 1
            for share in noted.shares:
                if share > nearest:
                    nearest, which = share, f"{name}, {str(dtype).removeprefix('torch.')}, seed {seed}"
            if judgement.verdict not in ("accepted", "weak"):
                print(f"  {pair.name}, {name}, {dtype}, seed {seed}: {judgement.verdict}: {_why(judgement)}")
    return verdicts, nearest, which


def _why(judgement: Any) -> str:
    causes = judgement.causes or judgement.suspicions
    return f"{causes[0].question}: {causes[0].text}" if causes else str(judgement.error)


def _candidates(pair: Pair) -> Iterator[tuple[str, torch.dtype, Any]]:
    for name, way in pair.ways.items():
        for dtype in (torch.float32, torch.float64):
            yield name, dtype, way
        for dtype in (torch.bfloat16, torch.float16) if pair.halves else ():
            yield name, dtype, in_float32(way)


class _Noted:
    """Takes note of where outputs stand while candidates are judged."""

    def __init__(self) -> None:
        self.shares: list[float] = []

    def __enter__(self) -> _Noted:
        self._likeness = likely.likeness

        def noting(*args: Any) -> Likeness | None:
            result = self._likeness(*args)
            if result is not None:
                self.shares += [result.largest / result.most[0], result.overall / result.most[1]]
            return result

        likely.likeness = noting
        return self

    def __exit__(self, *_: object) -> None:
        likely.likeness = self._likeness


if __name__ == "__main__":
    sys.exit(main())
