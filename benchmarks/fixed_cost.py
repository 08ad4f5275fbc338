"""What a call costs beyond its kernels: each op on a tensor of 8x32 beside torch's, in microseconds more.

The kernels take next to nothing at this size, so the difference is the Python around them: checks of arguments, the way
to the kernel, an autograd function written in Python where torch's is C++. "warm" repeats one call. "cold" writes to
64 MB between two calls, as the kernels of a large call do: the interpreter then fetches its code and its objects from
memory again, and the same Python takes several times as long. `against_torch.py` measures large calls, whose ratio is
that of the kernels plus this cost over theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from measurement import Row, line
from torch import Tensor

from opassay import impl

ROUNDS = 60
_CACHES = 1 << 24
"""Elements of float32, 64 MB: more than the caches of a core."""

Pair = tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]


def _pairs() -> dict[str, Pair]:
    x, parameters = torch.randn(8, 32), (torch.randn(32), torch.randn(32))
    target, shape, groups = torch.randint(0, 32, (8,)), (32,), 4
    # Batch norm has a way of its own for eight elements per channel and fewer, so it gets sixteen.
    twice = torch.randn(16, 32)
    return {
        "layer_norm": (
            lambda x, w, b: impl.layer_norm(x, shape, w, b), lambda x, w, b: F.layer_norm(x, shape, w, b),
            (x, *parameters),
        ),
        "group_norm": (
            lambda x, w, b: impl.group_norm(x, groups, w, b), lambda x, w, b: F.group_norm(x, groups, w, b),
            (x, *parameters),
        ),
        "batch_norm training": (
            lambda x, w, b: impl.batch_norm(x, None, None, w, b, True),
            lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
            (twice, *parameters),
        ),
        "softmax": (lambda x: impl.softmax(x, -1), lambda x: F.softmax(x, -1), (x,)),
        "log_sigmoid": (impl.log_sigmoid, F.logsigmoid, (x,)),
        "nll_loss": (lambda x: impl.nll_loss(x, target), lambda x: F.nll_loss(x, target), (x,)),
        "cross_entropy": (lambda x: impl.cross_entropy(x, target), lambda x: F.cross_entropy(x, target), (x,)),
        "trace": (impl.trace, torch.trace, (x,)),
    }  # fmt: skip


def _seconds(call: Callable[[], object], between: Callable[[], object]) -> float:
    """Of the second of two calls in a row: the first has what a timer of the other function has left behind."""
    call()
    between()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _forward(function: Callable[..., Tensor], operands: tuple[Tensor, ...]) -> Callable[[], object]:
    return lambda: function(*operands)


def _backward(function: Callable[..., Tensor], operands: tuple[Tensor, ...]) -> Callable[[], object]:
    leaves = [t.clone().requires_grad_() for t in operands]
    cotangent = torch.randn(function(*leaves).shape)
    return lambda: torch.autograd.grad(function(*leaves), leaves, cotangent)


def rows() -> Iterator[Row]:
    caches = torch.zeros(_CACHES)
    for state, between in (("warm", lambda: None), ("cold", lambda: caches.add_(1.0))):
        for name, (ours, theirs, operands) in _pairs().items():
            for label, make in (("forward", _forward), ("forward + backward", _backward)):
                calls = make(ours, operands), make(theirs, operands)
                best = [float("inf")] * 2
                for _ in range(ROUNDS):
                    best = [min(least, _seconds(call, between)) for least, call in zip(best, calls, strict=True)]
                more, torchs = 1e6 * (best[0] - best[1]), 1e6 * best[1]
                yield Row("fixed_cost", f"{name} {label}, {state}, torch {torchs:.3g} µs", more, "µs more")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for row in rows():
        print(line(row), flush=True)
