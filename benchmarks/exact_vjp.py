"""Times the exact VJP of layer_norm against torch's slow gradcheck, and its cost per element as inputs grow.

Both give all three gradients at the same input in the same process: the exact reading 200 bits and more of them,
gradcheck about eight digits by central differences in float64. A judge decides by balls, and reads exactly one sample
in some, and failures. So the balls of the gradients of four ops are timed against gradcheck, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from measurement import Row, at_least, at_most, fastest, line

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import balls
from opassay.reference.derivative import vjp
from opassay.reference.exact import evaluate, exact, precision
from opassay.reference.losses import cross_entropy
from opassay.reference.norms.batch_norm import native_batch_norm
from opassay.reference.norms.layer_norm import layer_norm
from opassay.reference.softmax import softmax

#: Shape -> how many times faster than gradcheck one evaluation must be.
AGAINST_GRADCHECK = {(8, 32): 5.0, (16, 64): 20.0}
GROWING = ((8, 32), (16, 64), (32, 128), (64, 256))
#: Largest allowed ratio of the costs per element over all of `GROWING`.
CONSTANT_WITHIN = 1.5
BITS = 200
#: How many times faster than gradcheck the balls of gradients must be, for operands of this shape.
BALLS_AGAINST_GRADCHECK, BALLS_SHAPE = 50.0, (16, 64)
_LABELS = np.arange(16) * 7 % 64
#: op -> its formula, torch's function, and how many of x, weight and bias it takes.
OPS: dict[str, tuple[Callable[..., Any], Callable[..., Any], int]] = {
    "layer_norm": (
        lambda x, w, b: layer_norm(x, (64,), w, b),
        lambda x, w, b: torch.nn.functional.layer_norm(x, (64,), w, b),
        3,
    ),
    "softmax": (lambda x: softmax(x, -1), lambda x: torch.softmax(x, -1), 1),
    "cross_entropy": (
        lambda x: cross_entropy(x, _LABELS),
        lambda x: torch.nn.functional.cross_entropy(x, torch.from_numpy(_LABELS)),
        1,
    ),
    "batch_norm": (
        lambda x, w, b: native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5)[0],
        lambda x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, True),
        3,
    ),
}


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


def gradcheck(function: Callable[..., Any], values: list[Any]) -> bool:
    """torch's check of the same gradients, slow mode."""
    return bool(torch.autograd.gradcheck(function, [torch.from_numpy(v).requires_grad_() for v in values]))


def rows() -> Iterator[Row]:
    for (height, length), target in AGAINST_GRADCHECK.items():
        size = f"{height}x{length}"
        single, agreeing, theirs = _times(operands(height, length))
        yield Row("exact vjp", f"{size}, gradcheck", theirs * 1e3, "ms")
        yield Row("exact vjp", f"{size}, one evaluation at {BITS} bits", single * 1e3, "ms")
        yield Row("exact vjp", f"{size}, two precisions that agree", agreeing * 1e3, "ms")
        yield at_least("exact vjp", f"{size}, gradcheck / one evaluation", theirs / single, "x", target)
        yield Row("exact vjp", f"{size}, gradcheck / two precisions", theirs / agreeing, "x")
    yield from _balls()
    yield from _growth()


def _balls() -> Iterator[Row]:
    """Gradients in float64, as balls that hold every evaluation's, against gradcheck."""
    size, terms = "x".join(map(str, BALLS_SHAPE)), contract("float64")
    for name, (formula, function, count) in OPS.items():
        *values, cotangent = operands(*BALLS_SHAPE)
        values = values[:count]
        pulled = cotangent if function(*map(torch.from_numpy, values)).ndim else np.ones(())

        def read(*arrays: Any, formula: Callable[..., Any] = formula) -> Any:
            return vjp(formula, arrays[:-1])[1](arrays[-1])

        ball = functools.partial(balls, read, [*values, pulled], terms)
        ours, theirs = fastest((ball, functools.partial(gradcheck, function, values)), 9)
        most = max(float(np.max(each.radii()) / np.max(np.abs(each.centre))) for each in ball())
        yield Row("exact vjp", f"{size}, balls of {name}", ours * 1e3, "ms")
        yield Row("exact vjp", f"{size}, largest radius of {name}", most, "of largest")
        yield at_least("exact vjp", f"{size}, gradcheck / balls of {name}", theirs / ours, "x", BALLS_AGAINST_GRADCHECK)


def _of_layer_norm(values: list[Any]) -> bool:
    shape = (values[0].shape[-1],)
    return gradcheck(lambda x, w, b: torch.nn.functional.layer_norm(x, shape, w, b), values[:3])


def _times(values: list[Any]) -> list[float]:
    """Seconds of one evaluation, of two that agree, and of gradcheck."""
    calls = (lambda: once(values), lambda: evaluate(gradients, *values, bits=BITS), lambda: _of_layer_norm(values))
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
