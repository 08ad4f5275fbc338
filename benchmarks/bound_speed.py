"""Times a bound, and a judgement by it, against torch's own float32 forward on one core, in time of the processor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from measurement import Row, at_most, line
from torch.nn import functional

from opassay.oracles import accept
from opassay.oracles.contract import contract
from opassay.oracles.rounding import balls
from opassay.oracles.specs import traced
from opassay.reference.formats import BINARY32
from opassay.reference.norms.layer_norm import layer_norm

#: name -> (spec, or a formula of NumPy beside it, shapes, the ratio that is to be reached)
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None, tuple[tuple[int, ...], ...], float]] = {
    "matmul 1024x1024x1024": (torch.mm, None, ((1024, 1024), (1024, 1024)), 40.0),
    "softmax 4096x4096": (lambda x: torch.softmax(x, -1), None, ((4096, 4096),), 30.0),
    "layer_norm 4096x1024": (
        lambda x, w, b: functional.layer_norm(x, (1024,), w, b),
        lambda x, w, b: layer_norm(x, (1024,), w, b),
        ((4096, 1024), (1024,), (1024,)),
        30.0,
    ),
    "relu 4096x4096": (torch.relu, None, ((4096, 4096),), 30.0),
    "conv2d 8x64x56x56, 3x3": (partial(functional.conv2d, padding=1), None, ((8, 64, 56, 56), (64, 64, 3, 3)), 40.0),
    "max_pool2d 16x32x128x128": (lambda x: functional.max_pool2d(x, 3, 2, 1), None, ((16, 32, 128, 128),), 40.0),
}
RUNS = 3


def _fastest(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the processor, because another process on the same core takes time of its own."""
    found: list[float] = []
    result: Any = None
    for _ in range(RUNS):
        start = time.process_time()
        result = call()
        found.append(time.process_time() - start)
    return min(found), result


def rows(names: tuple[str, ...] = tuple(CASES)) -> Iterator[Row]:
    """Two rows for each case."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    terms = contract("float32")
    for name in names:
        spec, formula, shapes, target = CASES[name]
        tensors = [torch.randn(shape, generator=generator) for shape in shapes]
        spec(*tensors)
        forward, output = _fastest(partial(spec, *tensors))
        read = traced(spec, *tensors) if formula is None else formula
        bound, (ball, *_) = _fastest(partial(balls, read, [x.double().numpy() for x in tensors], terms))
        judged, found = _fastest(partial(accept.judge, output.double().numpy(), BINARY32, ball, None))
        if not found.accepted.all():
            raise RuntimeError(f"{name}: torch's own result is outside its accept sets")
        yield at_most("bound", name, bound / forward, "x forward", target)
        yield at_most("bound", f"{name}, and judged", (bound + judged) / forward, "x forward", target)


if __name__ == "__main__":
    for row in rows():
        print(line(row), flush=True)
