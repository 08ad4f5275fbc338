"""The functions of `torch._C` behind torch.nn.parallel, which a build without CUDA lacks, made of copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def _device(index: int) -> torch.device:
    return torch.device("cpu") if index < 0 else torch.device("cuda", index)


def broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    """A tensor on each device; itself on the first, where it is."""
    return [tensor if i == 0 else tensor.to(_device(index), copy=True) for i, index in enumerate(devices)]


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int) -> list[list[Tensor]]:
    """Tensors on each device."""
    return [list(row) for row in zip(*(broadcast(tensor, devices) for tensor in tensors), strict=True)]


def scatter(
    tensor: Tensor, devices: Sequence[int], chunk_sizes: Sequence[int] | None, dim: int, streams: Any
) -> list[Tensor]:
    """Parts of a tensor, one on each device."""
    parts = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return [part.to(_device(index)) for part, index in zip(parts, devices, strict=False)]


def gather(tensors: Sequence[Tensor], dim: int, destination: int | None) -> Tensor:
    """Tensors one after the other on a device; the current one by default."""
    place = torch.device("cuda", torch.cuda.current_device()) if destination is None else _device(destination)
    return torch.cat([tensor.to(place) for tensor in tensors], dim)


def install() -> None:
    """Put them where torch looks for them."""
    private: Any = torch._C
    private._broadcast, private._broadcast_coalesced = broadcast, broadcast_coalesced
    private._scatter, private._gather = scatter, gather
