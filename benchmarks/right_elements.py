"""Whether the bound ever accuses a right variant.

    python benchmarks/right_elements.py [--elements N] [--task NAME ...] [--seed S]

The right candidates of `judging/` compute some forty specs in other orders, other tiles and other forms. Their values
and their gradients by autograd are held against the bound, at arguments of several kinds, until so many elements have
been judged. A row for each task says how many elements were judged, how many were refused and the largest error over
its bound; every refusal is listed with its seed. Exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the collection of specs stands beside the tests

import torch
from judging import TASKS, right_candidates
from judging.tasks import Task
from torch import Tensor

from opassay.oracles.specs import SpecCall
from tests.specs import Agreement, bounds, hold, pullback

ELEMENTS = 10_000_000
#: Right values whose derivative by autograd is not in the contract, and why.
VALUES_ALONE = {
    "silu as a quotient": "the derivative of x / (1 + exp(-x)) is NaN where exp(-x) is beyond float32",
    "online softmax": "autograd goes back through two exponentials of an element, whose errors differ, so that"
    " y g - y s loses digits where g and s are close: two results in two million were 1.00 and 1.09 bounds off",
}
#: Kind of arguments -> what it makes of normal numbers.
KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda x: x,
    "large": lambda x: x * 30.0,
    "small": lambda x: x * 2.0**-12,
    "offset": lambda x: x + 100.0,
    "wide": lambda x: torch.ldexp(x, (torch.arange(x.numel()).reshape(x.shape) * 7919) % 25 - 12),
    "zeros": lambda x: torch.where(x > 0.5, 0.0, x),
    "equal": lambda x: torch.round(x),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=ELEMENTS, help=f"in all, {ELEMENTS} by default")
    parser.add_argument("--task", nargs="+", default=list(TASKS), choices=list(TASKS), metavar="NAME")
    parser.add_argument("--seed", type=int, default=0, help="of the first draw")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, float32, seed {options.seed}, kinds of arguments: {', '.join(KINDS)}")
    for name, reason in VALUES_ALONE.items():
        print(f"values alone: {name} ({reason})")
    share, begun, all_judged, all_refused = options.elements // len(options.task), time.process_time(), 0, 0
    for name in options.task:
        values, pulled, accused = judge(TASKS[name], share, options.seed)
        all_judged += values.judged + pulled.judged
        all_refused += len(accused)
        print(
            f"{name:22} values {values.line():>45}   gradients {pulled.line():>45}   {values.judged + pulled.judged:9,}"
        )
        for line in accused:
            print(f"    REFUSED {line}", flush=True)
    seconds = time.process_time() - begun
    print(f"{all_judged:,} elements judged, {all_refused} results refused, {seconds:.0f} CPU s")
    return all_refused > 0


def judge(task: Task, share: int, seed: int) -> tuple[Agreement, Agreement, list[str]]:
    """What was found of values and of gradients, and a line for each result that was refused."""
    candidates = [(c.kind, c.make()) for c in right_candidates(task) if "inductor" not in c.kind]
    values, pulled, accused = Agreement(), Agreement(), []
    for draw, kind in _draws(seed):
        args = tuple(KINDS[kind](t) for t in task.draw(draw))
        call = SpecCall.of(task.spec, *args)
        ball = bounds(call, "float32")[0]
        torch.manual_seed(draw)  # for the cotangents
        pull = pullback(call, range(len(args)))
        for name, function in candidates:
            refusals = values.refusals + pulled.refusals
            with torch.no_grad():
                hold(values, ball, function(*args))
            gradients = [] if name in VALUES_ALONE else pull.computed(_listed(function))
            for bound, gradient in zip(pull.bounds, gradients, strict=False):
                hold(pulled, bound, gradient)
            if values.refusals + pulled.refusals > refusals:
                accused.append(f"{name} at {kind} arguments, draw {draw}")
            # The half-widths of so many elements would fill the memory; those of the last draw are shown.
            del values.widths[:-1], pulled.widths[:-1]
        if values.judged + pulled.judged >= share:
            return values, pulled, accused
    raise AssertionError("there is no end of draws")


def _listed(function: Callable[..., Any]) -> Callable[..., Sequence[Tensor]]:
    return lambda *args: [function(*args)]


def _draws(seed: int) -> Iterator[tuple[int, str]]:
    while True:
        for kind in KINDS:
            yield seed, kind
            seed += 1


if __name__ == "__main__":
    sys.exit(main())
