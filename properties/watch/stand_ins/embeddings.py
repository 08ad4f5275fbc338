"""Bags of rows of a table, and their backwards.

A bag is a sum of rows, their mean, or their largest elements (modes 0, 1 and 2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_MEAN, _LARGEST = 1, 2


def _embedding_bag(*args: Any, **kwargs: Any) -> Tensor:
    """The bags alone: which memory beside them is filled depends on the mode and the device."""
    bags: Tensor = torch.ops.aten._embedding_bag(*args, **kwargs)[0]
    return bags


def _bags_of(indices: Tensor, offsets: Tensor) -> Tensor:
    """The bag that each index is in; a bag ends where the next one begins."""
    return (torch.arange(len(indices), device=indices.device)[:, None] >= offsets).sum(1) - 1


def _dense_backward(
    g: Tensor, indices: Tensor, offset2bag: Tensor, bag_size: Tensor, maximum_indices: Tensor, num_weights: int,
    scale_grad_by_freq: bool, mode: int, weights: Tensor | None, padding_idx: int = -1,
) -> Tensor:  # fmt: skip
    """The cotangent of the table: what each index gives is added up in its row."""
    if mode == _LARGEST:
        filled = (bag_size != 0)[:, None]
        rows = torch.where(filled, maximum_indices, 0)
        return g.new_zeros(num_weights, g.shape[1]).scatter_add(0, rows, torch.where(filled, g, 0.0))
    scale = torch.where(indices == padding_idx, 0.0, 1.0).to(g.dtype) if weights is None else weights
    if weights is not None:
        scale = torch.where(indices == padding_idx, 0.0, weights)
    if scale_grad_by_freq:
        scale = scale / (indices[:, None] == indices).sum(1).to(g.dtype)
    if mode == _MEAN:
        scale = scale / bag_size[offset2bag].clamp(min=1).to(g.dtype)
    parts = scale[:, None] * g[offset2bag]
    return g.new_zeros(num_weights, g.shape[1]).index_add(0, indices, parts)


def _backward(
    g: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, bag_size: Tensor, maximum_indices: Tensor,
    num_weights: int, scale_grad_by_freq: bool, mode: int, sparse: bool, weights: Tensor | None, padding_idx: int = -1,
) -> Tensor:  # fmt: skip
    """As `_dense_backward`; where the forward has not said which bag each index is in, the offsets do."""
    bags = offset2bag if len(offset2bag) == len(indices) else _bags_of(indices, offsets)
    others = (scale_grad_by_freq, mode, weights, padding_idx)
    return _dense_backward(g, indices, bags, bag_size, maximum_indices, num_weights, *others)


def _weights_backward(
    g: Tensor, table: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, mode: int, padding_idx: int = -1
) -> Tensor:
    """The cotangent of the weights that rows of a sum have."""
    bags = offset2bag if len(offset2bag) == len(indices) else _bags_of(indices, offsets)
    products = (g[bags] * table[indices]).sum(1)
    return torch.where(indices == padding_idx, 0.0, products)


STAND_INS: dict[str, Callable[..., Any]] = {
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": lambda *a, **k: torch.ops.aten._embedding_bag_forward_only(*a, **k)[0],
    "_embedding_bag_backward": _backward,
    "_embedding_bag_dense_backward": _dense_backward,
    "_embedding_bag_per_sample_weights_backward": _weights_backward,
}
