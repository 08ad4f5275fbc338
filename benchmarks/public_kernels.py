"""Judges kernels of public packages as they stand, on the rehearsal device; prints verdict, codes and seconds of each.

    python -m opassay.properties.rehearsal benchmarks/public_kernels.py [WORD ...] [--all] [--verbose]

Each is called as its package calls it, compiled for sm_90 (`OPASSAY_PTX_ARCHITECTURE` takes another), each time in the
next configuration of its tuner. WORD is a part of a package's or a kernel's name. Each package has its own process,
because some change torch where they are imported. Asked are the given call and eight more in a row, and the gradient
of some; with --all every usual question, at which kernels that take rows for contiguous ones are red at LAYOUT:strides.
Packages are installed by `pip install --no-deps`; three have no wheel, and
lie in the folder of `OPASSAY_PUBLIC_SOURCES` (`public/row.py`). FlagGems and unsloth want `GEMS_VENDOR=nvidia` and
`UNSLOTH_IS_PRESENT=1`. A package that is absent is said to be. Ends with 1 where a verdict is not the wanted one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
from public import attentions, losses, norms, pointwise, products, quantisers, scans  # noqa: F401
from public.row import ROWS, Call, Row
from torch.utils import _pytree as pytree

import opassay
from opassay.properties.candidates.question_plan import USUAL

#: Asked of every row.
_ASKED = ("FWD:given", "CALLS:again")
#: Seconds after which nothing more is asked of a row.
_SECONDS = 120.0


def judge_row(each: Row, every: bool) -> tuple[opassay.Judgement | None, str, Call | None]:
    """The judgement of a row, or why there is none."""
    torch.manual_seed(0)
    try:
        call = each.make()
    except ImportError as err:
        return None, f"not run: {type(err).__name__}: {err}".partition("\n")[0], None
    inputs = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.cuda(), call.inputs)
    judgement = opassay.judge(
        call.candidate, call.spec, inputs, contract=call.contract, total=_SECONDS, calls=8,
        questions=USUAL if every else (*_ASKED, *call.questions),
        compiled=os.environ.get("OPASSAY_PTX_ARCHITECTURE", "sm_90"),
    )  # fmt: skip
    return judgement, "", call


def describe(judgement: opassay.Judgement) -> str:
    """The codes of what is wrong and the questions, or why there is no verdict."""
    codes = sorted({str(cause.wrong.code.value) for cause in judgement.causes if cause.wrong is not None})
    questions = ", ".join(cause.question for cause in judgement.causes)
    return " ".join([*codes, questions]).strip() or "; ".join(judgement.weaknesses) or judgement.error


def choose(words: list[str]) -> list[Row]:
    """The rows that have one of some words in their names; all where there are none."""
    return [each for each in ROWS if not words or any(word in f"{each.package} {each.name}" for word in words)]


def judge_in_turn(words: list[str]) -> int:
    """Judge each package in a process of its own; the exit code."""
    print("| package | kernel | verdict | wanted | why | CPU s |\n|---|---|---|---|---|---|", flush=True)
    packages = dict.fromkeys(each.package for each in choose(words))
    commands = [[sys.executable, __file__, *sys.argv[1:], "--here", package] for package in packages]
    return max(subprocess.run(command, check=False).returncode for command in commands)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of names; all by default")
    parser.add_argument("--all", action="store_true", help="ask every usual question")
    parser.add_argument("--verbose", action="store_true", help="print the whole report of each")
    parser.add_argument("--here", metavar="PACKAGE", help="judge the kernels of a package in this process")
    options = parser.parse_args()
    if options.here is None:
        return judge_in_turn(options.words)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    unwanted = judged = 0
    for each in [each for each in choose(options.words) if each.package == options.here]:
        began, call = time.process_time(), None
        judgement: Any = None
        try:
            judgement, why, call = judge_row(each, options.all)
        except Exception as err:
            why = f"{type(err).__name__}: {err}".partition("\n")[0]
            if options.verbose:
                traceback.print_exc()
        verdict = str(judgement.verdict) if judgement else "none"
        wanted = "" if call is None else "rejected" if call.fault else "accepted"
        judged += verdict in ("accepted", "rejected")
        unwanted += verdict != wanted
        words = [each.package, each.name, verdict, wanted, (describe(judgement) if judgement else why)[:150]]
        seconds = f"{time.process_time() - began:.1f}"
        print("| " + " | ".join([*words, seconds]) + " |" + "  UNEXPECTED" * (verdict != wanted), flush=True)
        if judgement and (options.verbose or verdict != wanted):
            print(judgement.report(verbose=True), flush=True)
    print(f"{options.here}: {judged} judged, {unwanted} not as wanted", flush=True)
    return int(unwanted > 0)


if __name__ == "__main__":
    sys.exit(main())
