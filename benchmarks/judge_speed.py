"""Times `opassay judge` on problems of one operation each, at the sizes that collections of kernel problems have.

    python benchmarks/judge_speed.py [NAME ...]
    python benchmarks/judge_speed.py --isolation 10 [NAME ...]   # what isolation costs, in 10 pairs of judgements

Each problem is a file in KernelBench's form, with one candidate that is right and one that is wrong. A judgement is the
command as a user types it: its seconds are those of the processor in all its processes together (user and system), and
beside them those of the system alone, which clears memory that a process touches first, and those of the clock, which
depend on what else the machine has to do.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measurement import at_most, line
from processor_time import run

#: Seconds of the processor that one judgement may take.
TARGET = 10.0
#: Times as long as without it that an isolated judgement may take.
ISOLATION_TARGET = 1.05

_REFERENCE = """import torch
import torch.nn.functional as F
from torch import nn

class Model(nn.Module):
    def __init__(self{arguments}):
        super().__init__()
        {setup}

    def forward(self, {operands}):
        return {result}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [{inputs_of_class}]
"""


class Problem(NamedTuple):
    """A spec of one operation, and two candidates for it.

    Attributes:
        operands: names of the arguments. inputs: expressions of them, in order.
        result: of the spec; right, wrong: of candidates, which may be several lines, the last one with `return`.
        arguments, inputs_of_class: of the constructor. setup: what it makes.
    """

    operands: str
    inputs: str
    result: str
    right: str
    wrong: str
    arguments: str = ""
    inputs_of_class: str = ""
    setup: str = "pass"

    def reference(self) -> str:
        return _REFERENCE.format(**self._asdict())

    def candidate(self, body: str) -> str:
        """A file with a module that computes the body."""
        text = self.reference().partition("def get_inputs")[0].replace("class Model(", "class ModelNew(")
        return text.replace(f"return {self.result}", body)


PROBLEMS = {
    "matmul 2048x2048": Problem(
        "A, B", "torch.rand(2048, 2048), torch.rand(2048, 2048)", "torch.matmul(A, B)",
        "return torch.matmul(A[:, :1024], B[:1024]) + torch.matmul(A[:, 1024:], B[1024:])",
        "return torch.matmul(A.bfloat16(), B.bfloat16()).float()",
    ),
    "softmax 4096x4096": Problem(
        "x", "torch.rand(4096, 4096)", "torch.softmax(x, dim=1)",
        "e = torch.exp(x - x.amax(1, keepdim=True))\n        return e / e.sum(1, keepdim=True)",
        "e = torch.exp(x)\n        return e / e.sum(1, keepdim=True)",
    ),
    "softmax 16x16384": Problem(
        "x", "torch.randn(16, 16384)", "torch.softmax(x, dim=1)",
        "e = torch.exp(x - x.amax(1, keepdim=True))\n        return e * (1.0 / e.sum(1, keepdim=True))",
        "e = torch.exp(x - x.amax(1, keepdim=True))\n        return e / e[:, :-1].sum(1, keepdim=True)",
    ),
    "layer norm 16x64x256x256": Problem(
        "x", "torch.rand(16, 64, 256, 256)", "self.ln(x)",
        "y = x - x.mean((1, 2, 3), keepdim=True)\n"
        "        r = torch.rsqrt(y.square().mean((1, 2, 3), keepdim=True) + 1e-5)\n"
        "        return y * r * self.ln.weight + self.ln.bias",
        "y = x - x.mean((1, 2, 3), keepdim=True)\n"
        "        r = torch.rsqrt(y.square().mean((1, 2, 3), keepdim=True) + 1e-3)\n"
        "        return y * r * self.ln.weight + self.ln.bias",
        ", shape", "(64, 256, 256)", "self.ln = nn.LayerNorm(normalized_shape=shape)",
    ),
    "conv2d 16x3x256x256, 3x3": Problem(
        "x", "torch.randn(16, 3, 256, 256)", "self.conv2d(x)",
        "return torch.cat([self.conv2d(x[:8]), self.conv2d(x[8:])])",
        "return self.conv2d(x).bfloat16().float()",
        ", inner, outer, size", "3, 64, 3", "self.conv2d = nn.Conv2d(inner, outer, size, bias=False)",
    ),
    "max pool 16x32x128x128": Problem(
        "x", "torch.randn(16, 32, 128, 128)", "self.pool(x)",
        "return self.pool(x + 0.0)",
        "return self.pool(torch.relu(x))",
        "", "", "self.pool = nn.MaxPool2d(4, 1, 1)",
    ),
    "relu 16x16384": Problem(
        "x", "torch.randn(16, 16384)", "torch.relu(x)", "return x.clamp_min(0.0)", "return x.abs()",
    ),
}  # fmt: skip


class TimedVerdict(NamedTuple):
    """What came of one command: the verdict of its JSON; seconds of processor, of system alone, of clock."""

    verdict: str
    causes: list[str]
    processor: float
    system: float
    clock: float


def judge(folder: Path, reference: str, candidate: str, *options: str) -> TimedVerdict:
    """One run of the command, with these options, on two files of these texts."""
    spec, other = folder / "reference.py", folder / "candidate.py"
    spec.write_text(reference, encoding="utf-8")
    other.write_text(candidate, encoding="utf-8")
    command = [sys.executable, "-m", "opassay", "judge", str(other), "--spec", str(spec), "--json", *options]
    ended = run(command, folder, {**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        reply = json.loads(ended.output.splitlines()[-1])
    except (IndexError, ValueError) as err:
        raise RuntimeError(f"exit code {ended.code}: {ended.errors[-2000:]}") from err
    return TimedVerdict(reply["verdict"], [str(cause["question"]) for cause in reply["causes"]], *ended[3:])


def isolation_cost(problem: Problem, rounds: int) -> tuple[float, float, float]:
    """Quartiles of the seconds of the processor of an isolated judgement over those of one that is not.

    Both ask the same with the same draws. Which of them comes first changes with every pair.
    """
    ratios = []
    for number in range(rounds):
        seconds = {}
        for isolation in ("required", "none") if number % 2 else ("none", "required"):
            with tempfile.TemporaryDirectory() as folder:
                texts = problem.reference(), problem.candidate(problem.right)
                seconds[isolation] = judge(Path(folder), *texts, "--isolation", isolation, "--seed", "0").processor
        ratios.append(seconds["required"] / seconds["none"])
    low, median, high = np.quantile(ratios, (0.25, 0.5, 0.75))
    return float(low), float(median), float(high)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="words of the problems' names; all of them by default")
    parser.add_argument("--isolation", type=int, default=0, metavar="ROUNDS", help="time isolation in so many pairs")
    options = parser.parse_args()
    missed = 0
    for name, problem in PROBLEMS.items():
        if options.names and not any(word in name for word in options.names):
            continue
        if options.isolation:
            low, median, high = isolation_cost(problem, options.isolation)
            row = at_most("isolation", name, median, "x", ISOLATION_TARGET)
            missed += not row.reaches_target
            print(f"{line(row)} (quartiles {low:.3f} and {high:.3f})", flush=True)
            continue
        for kind, body, need in (
            ("right", problem.right, ("accepted", "weak")),
            ("wrong", problem.wrong, ("rejected",)),
        ):
            with tempfile.TemporaryDirectory() as folder:
                judgement = judge(Path(folder), problem.reference(), problem.candidate(body))
            row = at_most("judge", f"{name}, {kind}: {judgement.verdict}", judgement.processor, "CPU s", TARGET)
            missed += not row.reaches_target or judgement.verdict not in need
            beside = f"({judgement.system:.1f} s of the system, {judgement.clock:.1f} s by the clock)"
            print(f"{line(row)} {beside} {', '.join(judgement.causes)}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
