"""DET: the same bits run to run, and with one thread and several."""

from __future__ import annotations

import torch

from .judgement import Judgement
from .op import Sample, Tensor
from .purity import require_same
from .transforms import ENGINES, Problem, along, draw_directions, signature

THREADS = (1, 2, 3)
RUNS = 2


def deterministic(j: Judgement, sample: Sample) -> None:
    """DET: forward and reverse mode, repeated, with 1, 2 and 3 threads."""
    first: list[Tensor] | None = None
    before = torch.get_num_threads()
    try:
        for threads in THREADS:
            torch.set_num_threads(threads)
            for run in range(RUNS):
                got = _everything(j, sample)
                if first is None:
                    first = got
                require_same(j, got, first, f"run {run + 1} with {threads} threads")
    finally:
        torch.set_num_threads(before)


def _everything(j: Judgement, sample: Sample) -> list[Tensor]:
    problem = Problem(j.op, sample.args)
    f = problem.subject(j.subject)
    with torch.no_grad():
        primal = j.call(f, *problem.inputs, what="forward")
    own = len(problem.wrt)
    cotangents = draw_directions(signature(("vjp",), problem.inputs, primal)[own:], sample.seed, j.device)
    grads = j.call(along(ENGINES["eager"], ("vjp",), f, own, len(primal)), *problem.inputs, *cotangents, what="vjp")
    return [t.detach() for t in (*primal, *grads)]
