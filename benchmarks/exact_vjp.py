"""Times the exact VJP of layer_norm against torch's slow gradcheck, and its cost per element as inputs grow.

Both give all three gradients at the same input in the same process: the exact reading 200 bits and more of them,
gradcheck about eight digits by central differences in float64.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from measurement import Row, at_least, at_most, fastest, line

from opassay.reference.derivative import vjp
from opassay.reference.exact import evaluate, exact, precision
from opassay.reference.norms.layer_norm import layer_norm

#: Shape -> how many times faster than gradcheck one evaluation must be.
AGAINST_GRADCHECK = {(8, 32): 5.0, (16, 64): 20.0}
GROWING = ((8, 32), (16, 64), (32, 128), (64, 256))
#: Largest allowed ratio of the costs per element over all of `GROWING`.
CONSTANT_WITHIN = 1.5
BITS = 200


def operands(rows: int, length: int) -> list[Any]:
    """x, weight, bias and a cotangent, float64."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape) for shape in ((rows, length), (length,), (length,), (rows, length))]


def gradients(x: Any, weight: Any, bias: Any, cotangent: Any) -> Any:
    """The three gradients of layer_norm by its formula."""
    return vjp(lambda *args: layer_norm(args[0], (x.shape[-1],), *args[1:]), (x, weight, bias))[1](cotangent)


def once(values: list[Any]) -> Any:
    """The gradients at one precision."""
    with precision(BITS):
        return gradients(*(exact(v) for v in values))


def gradcheck(values: list[Any]) -> bool:
    """torch's check of the same gradients, slow mode."""
    inputs = [torch.from_numpy(v).requires_grad_() for v in values[:3]]
    shape = (inputs[0].shape[-1],)
    return bool(torch.autograd.gradcheck(lambda x, w, b: torch.nn.functional.layer_norm(x, shape, w, b), inputs))


def rows() -> Iterator[Row]:
    for (height, length), target in AGAINST_GRADCHECK.items():
        size = f"{height}x{length}"
        single, agreeing, theirs = _times(operands(height, length))
        yield Row("exact vjp", f"{size}, gradcheck", theirs * 1e3, "ms")
        yield Row("exact vjp", f"{size}, one evaluation at {BITS} bits", single * 1e3, "ms")
        yield Row("exact vjp", f"{size}, two precisions that agree", agreeing * 1e3, "ms")
        yield at_least("exact vjp", f"{size}, gradcheck / one evaluation", theirs / single, "x", target)
        yield Row("exact vjp", f"{size}, gradcheck / two precisions", theirs / agreeing, "x")
    yield from _growth()


def _times(values: list[Any]) -> list[float]:
    """Seconds of one evaluation, of two that agree, and of gradcheck."""
    calls = (lambda: once(values), lambda: evaluate(gradients, *values, bits=BITS), lambda: gradcheck(values))
    return fastest(calls, 9)


def _growth() -> Iterator[Row]:
    inputs = [operands(*shape) for shape in GROWING]
    calls = [functools.partial(once, values) for values in inputs]
    # Equal work for every size: the minimum of a short run needs more runs to be one.
    costs = [
        fastest((call,), max(7, 32_768 // v[0].size))[0] / v[0].size for call, v in zip(calls, inputs, strict=True)
    ]
    for cost, values in zip(costs, inputs, strict=True):
        yield Row("exact vjp", f"cost per element of {values[0].size}", cost * 1e6, "µs")
    yield at_most("exact vjp", "largest / smallest cost per element", max(costs) / min(costs), "x", CONSTANT_WITHIN)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for row in rows():
        print(line(row), flush=True)
