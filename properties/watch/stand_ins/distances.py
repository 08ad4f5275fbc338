"""Distances and lengths, and the backwards of those that have their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .pulled_back import pull_back


def _slope(difference: Tensor, p: float, distance: Tensor) -> Tensor:
    """The derivative of a p-norm by each element of a difference, from its saved value; 0 where that is 0."""
    if p == 0:
        return torch.zeros_like(difference)
    if p == 1:
        return difference.sign()
    if p == math.inf:
        # A saved distance that was rounded equals no difference; the largest one is what torch looks for.
        largest = difference.abs().argmax(-1, keepdim=True)
        return torch.zeros_like(difference).scatter(-1, largest, difference.gather(-1, largest).sign())
    there = distance != 0
    ratio = difference / torch.where(there, distance, 1.0)
    if p == 2:
        return torch.where(there, ratio, 0.0)
    moved = there & (difference != 0) if p < 2 else there
    power = torch.where(moved, ratio, 1.0).abs() ** (p - 1)
    return torch.where(moved, difference.sign() * power, 0.0)


def _cdist_backward(g: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Tensor:
    """The cotangent of the first rows of distances between rows."""
    difference = x1[..., :, None, :] - x2[..., None, :, :]
    return (g[..., None] * _slope(difference, p, cdist[..., None])).sum(-2)


def _pdist_backward(g: Tensor, x: Tensor, p: float, pdist: Tensor) -> Tensor:
    """The cotangent of rows, of the distances of all pairs of them."""
    first, second = torch.triu_indices(len(x), len(x), 1, device=x.device)
    parts = g[:, None] * _slope(x[first] - x[second], p, pdist[:, None])
    total = torch.zeros_like(x)
    for start in range(len(x) - 1):  # One of two rows after another: no row has more than one part of each.
        own = first == start
        total = total.index_add(0, second[own], -parts[own])
        total = total + torch.nn.functional.pad(parts[own].sum(0, keepdim=True), (0, 0, start, len(x) - 1 - start))
    return total


def _dist(x: Tensor, y: Tensor, p: float = 2) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(x - y, p)
    return length


def _powsum(
    x: Tensor, ord: float = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *,
    dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    x = x if dtype is None else x.to(dtype)
    axes = list(range(x.dim())) if dim is None else list(dim)
    return (x.abs() ** ord).sum(axes, keepdim=keepdim)


def _weight_norm_backward(g: Tensor, v: Tensor, weight_g: Tensor, norms: Tensor, dim: int) -> list[Tensor]:
    return pull_back("_weight_norm_interface", [v, weight_g, dim], [g], [0, 1])


STAND_INS: dict[str, Callable[..., Any]] = {
    "_cdist_backward": _cdist_backward,
    "_pdist_backward": _pdist_backward,
    "_weight_norm_interface_backward": _weight_norm_backward,
    "dist": _dist,
    "linalg__powsum": _powsum,
}
