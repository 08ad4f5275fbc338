"""What moving tensors costs beside the plain torch expression, all places on the CPU: ratios of interleaved minima.

`python benchmarks/moving_tensors.py`. Nothing is far away here, so a ratio shows what planning, packing and the
machinery of custom functions cost, and at large sizes how often memory is read and written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from against_torch import keep_large_blocks
from measurement import Row, fastest, line
from torch import Tensor

from opassay.impl.comm import broadcast_coalesced, gather, reduce_add_coalesced, scatter

PLACES = 4
ROUNDS = 25
#: Name, float32 elements in all, calls per timing.
SIZES = (("1 kB", 256, 200), ("16 MiB", 4 * 2**20, 1))
MANY = 16


@dataclass(frozen=True)
class Case:
    """One comparison: both functions take the tensors and return a tuple of tensors."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    shapes: Callable[[int], list[int]]


def _places(x: Tensor) -> list[str]:
    return [str(x.device)] * PLACES


def _broadcast(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(y for row in broadcast_coalesced(tensors, _places(tensors[0])) for y in row)


def _cloned(*tensors: Tensor) -> tuple[Tensor, ...]:
    return (*(x.view_as(x) for x in tensors), *(x.clone() for _ in range(PLACES - 1) for x in tensors))


def _reduced(*tensors: Tensor) -> tuple[Tensor, ...]:
    count = len(tensors) // PLACES
    return reduce_add_coalesced([tensors[p * count : (p + 1) * count] for p in range(PLACES)])


def _added(*tensors: Tensor) -> tuple[Tensor, ...]:
    count = len(tensors) // PLACES
    return tuple(sum(tensors[i + count :: count], tensors[i]) for i in range(count))


def _scattered(x: Tensor) -> tuple[Tensor, ...]:
    return scatter(x, _places(x))


def _split(x: Tensor) -> tuple[Tensor, ...]:
    return x.chunk(PLACES)


def _gathered(*tensors: Tensor) -> tuple[Tensor, ...]:
    return (gather(tensors),)


def _joined(*tensors: Tensor) -> tuple[Tensor, ...]:
    return (torch.cat(tensors),)


CASES = (
    Case("broadcast_coalesced, 1 tensor, against clone", _broadcast, _cloned, lambda n: [n]),
    Case(f"broadcast_coalesced, {MANY} tensors, against clone", _broadcast, _cloned, lambda n: [n // MANY] * MANY),
    Case("reduce_add_coalesced, 1 tensor, against +", _reduced, _added, lambda n: [n] * PLACES),
    Case(f"reduce_add_coalesced, {MANY} tensors, against +", _reduced, _added, lambda n: [n // MANY] * MANY * PLACES),
    Case("scatter against chunk", _scattered, _split, lambda n: [n]),
    Case("gather against cat", _gathered, _joined, lambda n: [n // PLACES] * PLACES),
)


def _often(call: Callable[[], object], calls: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(calls):
            call()

    return run


def _forward(f: Callable[..., Any], shapes: list[int]) -> Callable[[], object]:
    tensors = [torch.ones(n) for n in shapes]
    return lambda: f(*tensors)


def _backward(f: Callable[..., Any], shapes: list[int]) -> Callable[[], object]:
    leaves = [torch.ones(n, requires_grad=True) for n in shapes]
    cotangents = [torch.ones_like(y) for y in f(*leaves)]
    return lambda: torch.autograd.grad(f(*leaves), leaves, cotangents)


def rows() -> Iterator[Row]:
    keep_large_blocks()
    for case in CASES:
        for size, elements, calls in SIZES:
            for name, make in (("forward", _forward), ("forward + backward", _backward)):
                pair = [_often(make(f, case.shapes(elements)), calls) for f in (case.ours, case.theirs)]
                ours, theirs = fastest(pair, ROUNDS)
                label = f"{case.name}, {size}, {name}"
                yield Row("moving", f"{label}, {ours / calls * 1e3:.3g} ms", ours / theirs, "x torch")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for row in rows():
        print(line(row), flush=True)
