"""Kinds of kernels that are written today: whether specs are read, right kernels accepted and wrong ones refused.

    python benchmarks/kernel_kinds.py [NAME ...] [--own] [--unseen] [--seeds 0 1 2] > table.md

Every right kernel of `judging/kinds/` is asked everything in each dtype that its kind has, and so is every mistake that
the given call need not show; other mistakes are asked what `QUESTIONS` names. So are the kinds of `tests/choices/` and
`tests/low_bit/`, unless `--own` is given. `--unseen` judges only kinds that have mistakes that need not show. NAME is a
part of a kind's name. Ends with 1 where a verdict is another, or a judgement takes more than 15 s of the processor.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # some kinds stand beside the tests

import torch
from judging.kinds import KINDS
from judging.kinds.kind import Kind, in_float32

import opassay
from opassay.properties.candidates.question_plan import USUAL
from tests.choices import modes, routers, samplers
from tests.low_bit import floats, integers, pairs

QUESTIONS = ("FWD:given", "FWD:seeds", "FWD:signs", "FWD:offset", "FWD:small", "FWD:ties")
#: Seconds of the processor that a judgement takes at most.
MOST = 15.0


def other_kinds() -> Iterator[Kind]:
    """The kinds that stand beside the tests."""
    for problem in (*floats.PROBLEMS, *integers.PROBLEMS, *pairs.PROBLEMS):
        yield Kind(
            problem.name, problem.spec, lambda dtype, draw=problem.inputs: draw(dtype, 0),
            problem.right, problem.wrong, problem.dtypes,
        )  # fmt: skip
    for chooser in (*routers.CHOOSERS, *samplers.CHOOSERS, *modes.CHOOSERS):
        yield Kind(chooser.name, chooser.spec, chooser.inputs, chooser.right, chooser.wrong)


def judge(kind: Kind, way: Any, dtype: torch.dtype, seed: int, *questions: str) -> tuple[str, float, str]:
    """The verdict, the seconds of the processor that it took, and why it is none of the usual ones."""
    start = time.process_time()
    judgement = opassay.judge(way, kind.spec, kind.inputs(dtype), questions=questions, seed=seed)
    causes = [f"{cause.question}: {cause.text}" for cause in judgement.causes]
    why = [*causes, *judgement.weaknesses[::-1], str(judgement.error)][0]
    return str(judgement.verdict), time.process_time() - start, why.partition("\n")[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names of kinds; all of them by default")
    parser.add_argument("--own", action="store_true", help="without the kinds beside the tests")
    parser.add_argument("--unseen", action="store_true", help="only kinds with mistakes that need not show")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of what is asked")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    kinds = [*KINDS, *([] if arguments.own else other_kinds())]
    kinds = [kind for kind in kinds if not arguments.names or any(part in kind.name for part in arguments.names)]
    kinds = [kind for kind in kinds if kind.unseen or not arguments.unseen]
    bad = 0
    print("| kind | dtypes | right, accepted | wrong, refused | CPU s at most |\n|---|---|---|---|---|")
    for kind in kinds:
        most, right, wrong, failures = 0.0, 0, 0, []
        questions = [code for code in USUAL if code not in kind.skips]
        calls = [(dtype, seed) for dtype in kind.dtypes for seed in arguments.seeds]
        ways = [(name, way, True, call) for name, way in kind.right.items() for call in calls]
        ways += [(name, way, False, call) for name, way in kind.unseen.items() for call in calls]
        for name, way, is_right, (dtype, seed) in ways:
            verdict, seconds, why = judge(kind, in_float32(way), dtype, seed, *questions)
            as_it_should = verdict == ("accepted" if is_right else "rejected")
            right, wrong = right + (as_it_should and is_right), wrong + (as_it_should and not is_right)
            most = max(most, seconds)
            failures += [] if as_it_should else [f"{name}, {dtype}, seed {seed}: {verdict} {why}"]
        for name, way in kind.wrong.items():
            verdict, seconds, why = judge(kind, way, torch.float32, 0, *QUESTIONS)
            wrong, most = wrong + (verdict == "rejected"), max(most, seconds)
            failures += [f"{name}: {verdict} {why}"] if verdict != "rejected" else []
        dtypes = ", ".join(str(dtype).removeprefix("torch.") for dtype in kind.dtypes)
        rights, wrongs = len(kind.right) * len(calls), len(kind.unseen) * len(calls) + len(kind.wrong)
        print(f"| {kind.name} | {dtypes} | {right} of {rights} | {wrong} of {wrongs} | {most:.1f} |", flush=True)
        for failure in failures:
            print(f"{kind.name}, {failure}", file=sys.stderr, flush=True)
        bad += bool(failures) or most > MOST
    print(f"\n{len(kinds)} kinds, {bad} not as they should be")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
