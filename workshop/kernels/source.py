"""What the arguments of a call at a shape class are made of, and what is taken of its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Source:
    """Makes the arguments of a call.

    Attributes:
        dtype, device: of the floating tensors. generator: of the numbers; None on the device "meta", which has none.
    """

    dtype: torch.dtype
    device: torch.device
    generator: torch.Generator | None = None

    def data(self, shape: Sequence[int], *, channels_last: bool = False) -> Tensor:
        """A tensor of normal random numbers that asks for a gradient."""
        tensor = torch.randn(shape, dtype=self.dtype, device=self.device, generator=self.generator)
        if channels_last:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        return tensor.requires_grad_()

    def plain(self, *shape: int) -> Tensor:
        """A tensor of positive float32 numbers that asks for no gradient, as running statistics are."""
        return torch.ones(shape, dtype=torch.float32, device=self.device)

    def classes(self, shape: Sequence[int], count: int) -> Tensor:
        """A tensor of class numbers."""
        return torch.randint(0, count, tuple(shape), device=self.device, generator=self.generator)


def outputs_of(result: Any) -> tuple[Tensor, ...]:
    """What an op has returned, as a tuple."""
    return result if isinstance(result, tuple) else (result,)


def gradients(outputs: Sequence[Tensor], arguments: Sequence[object]) -> tuple[Tensor, ...]:
    """The gradients of the arguments that ask for one, for cotangents of ones."""
    leaves = [value for value in arguments if isinstance(value, Tensor) and value.requires_grad]
    return torch.autograd.grad(outputs, leaves, [torch.ones_like(out) for out in outputs])
