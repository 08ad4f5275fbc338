"""Times a bound, and a judgement by it, against torch's own float32 forward on one core, in time of the processor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from measurement import Row, at_most, line
from torch.nn import functional

from opassay.oracles.bound import accept
from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import balls
from opassay.oracles.specs import traced
from opassay.reference.formats import BINARY32
from opassay.reference.norms.layer_norm import layer_norm


def _written_out(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Layer norm by mean and variance."""
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * w + b


#: name -> (spec, or a formula of NumPy beside it, shapes, the ratio that is to be reached)
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None, tuple[tuple[int, ...], ...], float]] = {
    "matmul 1024x1024x1024": (torch.mm, None, ((1024, 1024), (1024, 1024)), 40.0),
    "softmax 4096x4096": (lambda x: torch.softmax(x, -1), None, ((4096, 4096),), 30.0),
    "layer_norm 4096x1024": (
        lambda x, w, b: functional.layer_norm(x, (1024,), w, b),
        None,
        ((4096, 1024), (1024,), (1024,)),
        30.0,
    ),
    "layer_norm 4096x1024, a formula": (
        lambda x, w, b: functional.layer_norm(x, (1024,), w, b),
        lambda x, w, b: layer_norm(x, (1024,), w, b),
        ((4096, 1024), (1024,), (1024,)),
        30.0,
    ),
    "layer_norm 4096x1024, written out": (
        _written_out,
        None,
        ((4096, 1024), (1024,), (1024,)),
        30.0,
    ),
    "relu 4096x4096": (torch.relu, None, ((4096, 4096),), 30.0),
    "conv2d 8x64x56x56, 3x3": (partial(functional.conv2d, padding=1), None, ((8, 64, 56, 56), (64, 64, 3, 3)), 40.0),
    "max_pool2d 16x32x128x128": (lambda x: functional.max_pool2d(x, 3, 2, 1), None, ((16, 32, 128, 128),), 40.0),
}
#: Rounds of which the fastest counts, and calls in a row of the forward that is in the caches.
RUNS, IN_A_ROW = 5, 10


def _spent(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of the processor, because another process on the same core takes time of its own."""
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def rows(names: tuple[str, ...] = tuple(CASES)) -> Iterator[Row]:
    """Rows for each case: a bound over the forward that is called in turn with it, so that both find the caches alike.

    Beside it stands what the same bound is over the fastest of forwards called in a row, whose operands and results are
    in the caches already, and has no target: no caller of a bound has that.
    """
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    terms = contract("float32")
    for name in names:
        spec, formula, shapes, target = CASES[name]
        tensors = [torch.randn(shape, generator=generator) for shape in shapes]
        forwards, bounds, judgements = [], [], []
        meaning = traced(spec, *tensors) if formula is None else formula
        for _ in range(RUNS):
            seconds, output = _spent(partial(spec, *tensors))
            forwards.append(seconds)
            seconds, (ball, *_) = _spent(partial(balls, meaning, [x.double().numpy() for x in tensors], terms))
            bounds.append(seconds)
            seconds, result = _spent(
                partial(accept.place_in_accept_sets, output.double().numpy(), BINARY32, ball, None)
            )
            judgements.append(seconds)
            if not result.accepted.all():
                raise RuntimeError(f"{name}: torch's own result is outside its accept sets")
        cached = min(_spent(partial(spec, *tensors))[0] for _ in range(IN_A_ROW))
        forward, bound, judged = min(forwards), min(bounds), min(judgements)
        yield at_most("bound", name, bound / forward, "x forward", target)
        yield at_most("bound", f"{name}, and judged", (bound + judged) / forward, "x forward", target)
        yield Row("bound", f"{name}, over forwards in a row", bound / cached, "x forward")


if __name__ == "__main__":
    for row in rows():
        print(line(row), flush=True)
