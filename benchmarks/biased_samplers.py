"""Whether right samplers are ever refused, and which biased ones are found, and how small a bias.

    python benchmarks/biased_samplers.py [REPETITIONS]

Every right kernel of `tests/choices/drawers.py` is compared with its spec again and again, 1,000 times in all by
default: 128 calls of each, by the tests that `LIKELY` makes of a spec that draws. Then every biased one is judged by
FWD:given and LIKELY; what found it is told, with the card. Last comes dropout whose share is off by ever less, up to
what is not found any more. About five minutes on one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the kernels stand beside the tests

import numpy as np
import torch

import opassay
from opassay.oracles.bound.frequencies import RISK, compare
from opassay.oracles.op.declaration import is_float, to_array
from tests.choices.chooser import Chooser, Kernel
from tests.choices.drawers import DRAWERS, SHARE

CALLS = 128


def outputs(kernel: Kernel, drawer: Chooser) -> list[np.ndarray]:
    """The outputs of calls at the given inputs."""
    arguments = drawer.inputs(torch.float32)
    calls = [kernel(*arguments) for _ in range(CALLS)]
    return [np.stack([to_array(y) if is_float(y) else y.numpy() for y in calls])]


def repeat(repetitions: int) -> int:
    """Compare right kernels with their specs; how many were refused."""
    pairs = [(drawer, kernel) for drawer in DRAWERS for kernel in (drawer.spec, *drawer.right.values())]
    refusals, least = 0, 1.0
    for number in range(repetitions):
        torch.manual_seed(number)
        drawer, kernel = pairs[number % len(pairs)]
        # Both have values with roundings of their own.
        comparison = compare(outputs(kernel, drawer), outputs(drawer.spec, drawer), [1e-5])
        refusals += comparison.worst.is_wrong
        least = min(least, comparison.worst.risk * comparison.worst.tests)
    print(f"{repetitions} comparisons of right samplers: {refusals} refused at a risk of {RISK:g}; least {least:.2g}")
    return refusals


def judge_biased() -> int:
    """Judge biased kernels; how many were not found."""
    missed = 0
    for drawer in DRAWERS:
        for name, kernel in drawer.wrong.items():
            judgement = opassay.judge(
                kernel, drawer.spec, drawer.inputs(torch.float32), questions=["FWD:given", "LIKELY"], seed=0
            )
            is_rejected = judgement.verdict == "rejected"
            missed += not is_rejected
            print(f"{drawer.name}: {name}: {judgement.verdict} by {[cause.question for cause in judgement.causes]}")
            for cause in judgement.causes[-1:]:
                assert cause.wrong is not None
                print("\n".join(f"    {line}" for line in (cause.wrong.title, *cause.wrong.lines[:4])))
    return missed


def measure_bias() -> None:
    """Judge dropout whose share is off by less and less."""
    drawer = DRAWERS[0]
    for off in (0.05, 0.03, 0.02, 0.01, 0.005):
        kernel = lambda x, off=off: torch.where(torch.rand(x.shape) >= SHARE + off, x / (1 - SHARE), 0.0)  # noqa: E731
        judgement = opassay.judge(
            kernel, drawer.spec, drawer.inputs(torch.float32), questions=["FWD:given", "LIKELY"], seed=0
        )
        print(f"dropout with a share of {SHARE + off:.3f} in place of {SHARE}: {judgement.verdict}")


def main() -> None:
    refusals = repeat(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
    missed = judge_biased()
    print(f"{missed} biased samplers were not found")
    measure_bias()
    sys.exit(refusals + missed > 0)


if __name__ == "__main__":
    main()
