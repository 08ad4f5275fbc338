"""What a kernel that chooses by values is asked to do, in plain PyTorch, and others that say to do it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Kernel = Callable[..., object]


@dataclass(frozen=True)
class Chooser:
    """A kernel that chooses.

    Attributes:
        name: of the kernel. spec: what it means. inputs: (dtype) -> arguments.
        right: others that mean the same, and choose otherwise where rounding leaves that open. wrong: mistakes.
    """

    name: str
    spec: Kernel
    inputs: Callable[[torch.dtype], tuple[Tensor, ...]]
    right: Mapping[str, Kernel]
    wrong: Mapping[str, Kernel]


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def last_of_ties(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest along the last axis, of ties those with the largest index."""
    values, places = torch.sort(x.flip(-1), dim=-1, descending=True, stable=True)
    return values[..., :k], x.shape[-1] - 1 - places[..., :k]


def first_of_ties(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest along the last axis, of ties those with the least index."""
    values, places = torch.sort(x, dim=-1, descending=True, stable=True)
    return values[..., :k], places[..., :k]
