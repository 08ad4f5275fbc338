"""Times ops of two installations of opassay against each other: small calls, first order, double backward.

Run `python benchmarks/two_installations.py BEFORE AFTER`, each the Python of an environment. Processes of both
alternate, each prints the minimum of its timings, and the minimum over all processes is kept: on a shared machine the
minimum is what the code costs, and the rest is the neighbours.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from opassay import impl

PROCESSES = 4
SECONDS = 0.15
"""How long each case is timed in one process."""

Case = Callable[[], object]


def _norms(rows: int, length: int) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    groups, shape = 4, (length,)
    return {
        "layer_norm": lambda x, w, b: impl.layer_norm(x, shape, w, b),
        "group_norm": lambda x, w, b: impl.group_norm(x, groups, w, b),
        "batch_norm": lambda x, w, b: impl.batch_norm(x, None, None, w, b, True),
        "log_softmax": lambda x, w, b: impl.log_softmax(x, -1),
        "softmax": lambda x, w, b: impl.softmax(x, -1),
        "log_sigmoid": lambda x, w, b: impl.log_sigmoid(x),
        "cross_map_lrn2d": lambda x, w, b: impl.cross_map_lrn2d(x[None, :, None], 3),
        "cross_entropy": lambda x, w, b: impl.cross_entropy(x, torch.zeros(rows, dtype=torch.long)),
    }


def _forward(f: Callable[..., Tensor], rows: int, length: int) -> Case:
    x, w, b = torch.randn(rows, length), torch.randn(length), torch.randn(length)
    return lambda: f(x, w, b)


def _first_order(f: Callable[..., Tensor], rows: int, length: int) -> Case:
    x, w, b = (torch.randn(shape, requires_grad=True) for shape in ((rows, length), (length,), (length,)))
    v = torch.randn(f(x, w, b).shape)
    return lambda: torch.autograd.grad(f(x, w, b), (x, w, b), v, allow_unused=True)


def _second_order(f: Callable[..., Tensor], rows: int, length: int) -> Case:
    x, w, b = (torch.randn(shape, requires_grad=True) for shape in ((rows, length), (length,), (length,)))
    v = torch.randn(f(x, w, b).shape, requires_grad=True)

    def run() -> object:
        first = torch.autograd.grad(f(x, w, b), (x, w, b), v, create_graph=True, allow_unused=True)
        results = [g for g in first if g is not None]
        return torch.autograd.grad(results, (x, v), [g.detach() for g in results])

    return run


def cases() -> dict[str, Case]:
    """What is timed, by name."""
    results = {}
    for rows, length in ((8, 32), (256, 1024)):
        for name, f in _norms(rows, length).items():
            if rows == 8:
                results[f"{name} forward {rows}x{length}"] = _forward(f, rows, length)
                results[f"{name} first order {rows}x{length}"] = _first_order(f, rows, length)
            results[f"{name} double backward {rows}x{length}"] = _second_order(f, rows, length)
    return results


def _minimum(case: Case) -> float:
    case()  # the first call starts what torch starts once
    best, end = float("inf"), time.perf_counter() + SECONDS
    calls = 20
    while time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(calls):
            case()
        spent = time.perf_counter() - start
        best = min(best, spent / calls)
        calls = max(1, min(1000, int(0.01 / best)))
    return best


def _child() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(json.dumps({name: _minimum(case) for name, case in cases().items()}))


def _measured(python: str) -> dict[str, float]:
    done = subprocess.run([python, __file__, "--child"], capture_output=True, text=True, check=True)
    document: dict[str, float] = json.loads(done.stdout)
    return document


def main() -> None:
    """Prints the table."""
    if sys.argv[1:] == ["--child"]:
        _child()
        return
    before, after = sys.argv[1:]
    best: dict[str, list[float]] = {}
    for _ in range(PROCESSES):
        for side, python in enumerate((before, after)):
            for name, seconds in _measured(python).items():
                sides = best.setdefault(name, [float("inf"), float("inf")])
                sides[side] = min(sides[side], seconds)
    print(f"{'case':44} {'before µs':>10} {'after µs':>10} {'ratio':>6}")
    for name, (one, other) in best.items():
        print(f"{name:44} {one * 1e6:10.1f} {other * 1e6:10.1f} {other / one:6.2f}")


if __name__ == "__main__":
    main()
