"""A launcher that takes down what is launched and allocated, for tests in a process that interprets kernels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from opassay.impl.gpu import launching


class Recorder:
    """A launcher that takes down what is launched and allocated, and hands it on.

    Attributes:
        launches: how often each kernel. sizes: elements of every tensor that a kernel is to fill.
    """

    def __init__(self) -> None:
        self._under = launching._on[-1]
        self.launches: Counter[str] = Counter()
        self.sizes: list[int] = []

    def launch(self, kernel: Any, grid: Any, operands: Any, constants: Any, warps: int) -> None:
        self.launches[kernel.fn.__name__] += 1
        self._under.launch(kernel, grid, operands, constants, warps)

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        self.sizes.append(math.prod(shape))
        return self._under.empty(shape, dtype, device)


@contextmanager
def recorded() -> Iterator[Recorder]:
    """What is launched within the block."""
    recorder = Recorder()
    with launching.on(recorder):
        yield recorder
