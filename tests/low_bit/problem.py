"""What a kernel of few bits is asked to do, in plain PyTorch, and others that say to do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

Kernel = Callable[..., object]
Inputs = tuple[Tensor, ...]

E4M3, E5M2, E8M0 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu
#: The dtypes of what is quantised.
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Problem:
    """A kernel of few bits.

    Attributes:
        name: of the kernel. spec: what it means. inputs: (dtype, seed) -> arguments.
        restored: the numbers that its outputs stand for, which a tolerance compares.
        right: others that mean the same. wrong: mistakes.
        dtypes: of the inputs that are not of few bits.
    """

    name: str
    spec: Kernel
    inputs: Callable[[torch.dtype, int], Inputs]
    restored: Callable[..., Tensor]
    right: Mapping[str, Kernel]
    wrong: Mapping[str, Kernel]
    dtypes: tuple[torch.dtype, ...] = field(default=DTYPES)


def draw(*shape: int, seed: int, scale: float = 3.0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers times a scale."""
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator)).to(dtype)


def in_blocks(x: Tensor, size: int) -> Tensor:
    """The last axis as blocks of a size."""
    blocks: Tensor = x.unflatten(-1, (-1, size))
    return blocks


def truncated(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A cast to eight bits that cuts off what does not fit."""
    nearest = x.to(dtype)
    too_large = nearest.float().abs() > x.float().abs()
    return (nearest.view(torch.uint8) - too_large.to(torch.uint8)).view(dtype)
