"""Times the rounding reading of layer_norm and its VJP on one core: certified elements per second."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from measurement import Row, at_least, fastest, line

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import balls
from opassay.reference.derivative import vjp
from opassay.reference.norms.layer_norm import layer_norm

SHAPES = ((64, 64), (512, 768), (2048, 1024))
#: Millions of input elements per second, values and three gradients each.
TARGET = 3.0
RUNS = 9


def forward_and_gradients(x: Any, weight: Any, bias: Any, cotangent: Any) -> tuple[Any, ...]:
    """out, d_input, d_weight, d_bias."""
    (out,), pull = vjp(lambda *args: layer_norm(args[0], (x.shape[-1],), *args[1:]), (x, weight, bias))
    return (out, *pull(cotangent))


def operands(rows: int, length: int) -> list[Any]:
    """x, weight, bias and a cotangent: float32 values."""
    rng = np.random.default_rng(0)
    shapes = ((rows, length), (length,), (length,), (rows, length))
    return [rng.standard_normal(shape).astype(np.float32).astype(np.float64) for shape in shapes]


def rows() -> Iterator[Row]:
    for height, length in SHAPES:
        case = f"float32 {height}x{length}, values and gradients"
        yield at_least("certified", case, _speed(height, length, "float32"), "M elements/s", TARGET)
    height, length = SHAPES[1]
    case = f"float64 {height}x{length}, wider centres"
    yield Row("certified", case, _speed(height, length, "float64"), "M elements/s")


def _speed(height: int, length: int, dtype: str) -> float:
    values, terms = operands(height, length), contract(dtype)
    (seconds,) = fastest([lambda: balls(forward_and_gradients, values, terms)], RUNS)
    return height * length / seconds / 1e6


if __name__ == "__main__":
    torch.set_num_threads(1)
    for row in rows():
        print(line(row), flush=True)
