"""Mistakes in kernels of few bits: what opassay says of them, and what four tolerances that are in use say.

    python benchmarks/low_bit_faults.py > table.md

Every mistake of `tests/low_bit/` is judged at its given inputs, in the dtypes of its problem. Beside that stand four
checks of the numbers that its outputs stand for (`Problem.restored`), against those of the spec at the same inputs: the
cosine of both is at least 0.99; their ratio of signal to noise is at least 35 dB; every element is within 85 % of the
spec's; every element is within 12. About two minutes on one core.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the kernels stand beside the tests

import torch
from torch import Tensor

import opassay
from tests.low_bit import floats, integers, pairs
from tests.low_bit.problem import Kernel, Problem

#: What suites ask of kernels of few bits. The numbers are theirs: FlashInfer's tests and DeepGEMM's compare cosines,
#: vllm and TensorRT ratios of signal to noise, flashinfer-bench has rtol 0.85, kernelbench.com atol 12.
CHECKS: dict[str, Callable[[Tensor, Tensor], bool]] = {
    "cosine 0.99": lambda y, need: bool(y.ravel() @ need.ravel() >= 0.99 * y.norm() * need.norm()),
    "SQNR 35 dB": lambda y, need: bool(need.norm() >= 10 ** (35 / 20) * (y - need).norm()),
    "rtol 0.85": lambda y, need: bool(((y - need).abs() <= 0.85 * need.abs()).all()),
    "atol 12": lambda y, need: bool(((y - need).abs() <= 12.0).all()),
}
#: What a mistake is asked; a right kernel is asked everything.
QUESTIONS = (
    "FWD:given",
    "FWD:signs",
    "FWD:small",
    "SPECIAL:zeros",
    "DATA:bits",
    "SPECIAL:nan",
    "SPECIAL:inf",
    "FWD:ties",
)
MARKS = {True: "passes", False: "fails"}


def restored(problem: Problem, kernel: Kernel, dtype: torch.dtype) -> Tensor:
    outputs = kernel(*problem.inputs(dtype, 0))
    return problem.restored(*(outputs if isinstance(outputs, tuple) else (outputs,))).double()


def row_of(problem: Problem, name: str, kernel: Kernel) -> tuple[str, dict[str, bool], bool]:
    """A line of the table, which of the checks it passes, and whether opassay said what is so."""
    right = name not in problem.wrong
    checks = dict.fromkeys(CHECKS, True)
    verdicts, questions = [], set()
    for dtype in problem.dtypes:
        y, need = (restored(problem, each, dtype) for each in (kernel, problem.spec))
        checks = {check: passes and CHECKS[check](y, need) for check, passes in checks.items()}
        codes = () if right else QUESTIONS
        judgement = opassay.judge(kernel, problem.spec, problem.inputs(dtype, 0), questions=codes)
        verdicts.append(str(judgement.verdict))
        questions |= {cause.question for cause in judgement.causes[:1]}
    message = ", ".join(dict.fromkeys(verdicts)) + (f" ({', '.join(sorted(questions))})" if questions else "")
    known = set(verdicts) == {"accepted" if right else "rejected"}
    cells = [MARKS[passes] for passes in checks.values()]
    return f"| {problem.name} | {name} | {message} | {' | '.join(cells)} |", checks, known


def main() -> int:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    start, wrong, right = time.process_time(), 0, 0
    rejected, accepted = 0, 0
    passed = dict.fromkeys(CHECKS, 0)
    print(f"| kernel | mistake | opassay | {' | '.join(CHECKS)} |\n|---|---|---|{'---|' * len(CHECKS)}")
    for problem in (*floats.PROBLEMS, *integers.PROBLEMS, *pairs.PROBLEMS):
        for name, kernel in problem.right.items():
            _, _, known = row_of(problem, name, kernel)
            right, accepted = right + 1, accepted + known
        for name, kernel in problem.wrong.items():
            line, checks, known = row_of(problem, name, kernel)
            print(line)
            wrong, rejected = wrong + 1, rejected + known
            passed = {check: count + checks[check] for check, count in passed.items()}
    cells = [f"{count} of {wrong} pass" for count in passed.values()]
    print(f"| all | {wrong} mistakes | {rejected} rejected | {' | '.join(cells)} |")
    seconds = math.ceil(time.process_time() - start)
    print(f"\n{right} right kernels beside them, of which opassay accepts {accepted}; {seconds} s of CPU")
    return int(rejected < wrong or accepted < right)


if __name__ == "__main__":
    sys.exit(main())
