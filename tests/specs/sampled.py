"""Specs that sample images, align sequences, count numbers, or reduce at places that integers name."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch import rand as uniform
from torch import randn as normal

from .making import Making


def _points(*shape: int) -> Tensor:
    """Points in an image and, some of them, beside it."""
    return 2.6 * uniform(shape) - 1.3


def _sampling(mode: str, padding: str, corners: bool) -> Any:
    return lambda x, grid: F.grid_sample(x, grid, mode, padding, corners)


def _resizing(mode: str, size: tuple[int, int], corners: bool | None = None) -> Any:
    return lambda x: F.interpolate(x, size=size, mode=mode, align_corners=corners, antialias=True)


def _transformed(x: Tensor, theta: Tensor) -> Any:
    return F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=True), align_corners=True)


def _aligned(x: Tensor) -> Any:
    labels = torch.tensor([[1, 2, 2], [3, 1, 0]])
    return F.ctc_loss(x.log_softmax(-1), labels, torch.tensor([7, 6]), torch.tensor([3, 2]))


def _aligned_one_by_one(x: Tensor) -> Any:
    labels, steps, lengths = (torch.tensor(each) for each in ([1, 2, 2, 3, 3, 3, 1], [7, 6, 3], [3, 1, 3]))
    return F.ctc_loss(x.log_softmax(-1), labels, steps, lengths, blank=4, reduction="none", zero_infinity=True)


def _reduced(how: str, with_itself: bool) -> Any:
    index = torch.tensor([0, 2, 0, 0])
    return lambda x, source: x.index_reduce(0, index, source, how, include_self=with_itself)


#: How grids are sampled: every mode, every padding, with corners and without.
_SAMPLED: dict[str, Making] = {
    f"grid_sample_{mode}_{padding}{'_corners' if corners else ''}": (
        lambda m=mode, p=padding, c=corners: (_sampling(m, p, c), normal(2, 3, 5, 6), _points(2, 4, 7, 2))  # type: ignore[misc]
    )
    for mode in ("bilinear", "nearest", "bicubic")
    for padding in ("zeros", "border", "reflection")
    for corners in (False, True)
}

_IMAGES: dict[str, Making] = {
    **_SAMPLED,
    "grid_sample_volume": lambda: (
        _sampling("bilinear", "zeros", False),
        normal(2, 2, 4, 5, 3),
        _points(2, 3, 4, 5, 3),
    ),
    "grid_sample_volume_nearest": lambda: (
        _sampling("nearest", "border", True),
        normal(1, 2, 4, 5, 3),
        _points(1, 3, 4, 5, 3),
    ),
    "affine_grid": lambda: (
        lambda theta: F.affine_grid(theta, [2, 3, 4, 5], align_corners=False), normal(2, 2, 3),
    ),
    "affine_grid_volume": lambda: (
        lambda theta: F.affine_grid(theta, [2, 3, 3, 4, 5], align_corners=True), normal(2, 3, 4),
    ),
    "spatial_transformer": lambda: (_transformed, normal(2, 3, 5, 6), 0.5 * normal(2, 2, 3)),
    "spatial_transformer_identity": lambda: (
        _transformed, normal(2, 3, 5, 6), torch.eye(3)[:2].expand(2, 2, 3).clone(),
    ),
    "antialiased_bilinear": lambda: (_resizing("bilinear", (5, 3)), normal(2, 3, 11, 8)),
    "antialiased_bilinear_larger": lambda: (_resizing("bilinear", (13, 5), True), normal(1, 2, 7, 12)),
    "antialiased_bicubic": lambda: (_resizing("bicubic", (5, 9)), normal(2, 3, 11, 8)),
    "antialiased_lanczos": lambda: (_resizing("lanczos", (4, 5)), normal(1, 2, 11, 8)),
    "antialiased_half": lambda: (
        lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
        normal(1, 2, 8, 6),
    ),
    "conv_tbc": lambda: (F.conv_tbc, normal(8, 2, 3), normal(3, 3, 4), normal(4)),
    "local_response_norm": lambda: (lambda x: F.local_response_norm(x, 3, 0.01), normal(2, 7, 4, 4)),
    "fold_unfold": lambda: (lambda x: F.fold(F.unfold(x, 3, padding=1), (6, 5), 3, padding=1), normal(2, 3, 6, 5)),
}  # fmt: skip

_COUNTER: dict[str, Making] = {
    "ctc_loss": lambda: (_aligned, 2 * normal(7, 2, 5)),
    "ctc_loss_one_by_one": lambda: (_aligned_one_by_one, normal(7, 3, 5)),
    "bucketize": lambda: (torch.bucketize, normal(4, 9), torch.tensor([-1.0, 0.0, 0.5, 2.0])),
    "searchsorted": lambda: (
        lambda rows, x: torch.searchsorted(rows, x, right=True), normal(3, 6).sort(1).values, normal(3, 4),
    ),
    "bucketize_of_computed": lambda: (
        lambda x, bounds: torch.bucketize(torch.tanh(x), bounds), normal(50), torch.tensor([-0.5, 0.0, 0.5]),
    ),
    "histc": lambda: (lambda x: torch.histc(x, 7, -2, 2), normal(60)),
    "histc_of_all": lambda: (lambda x: torch.histc(x, 5), normal(60)),
    "bincount": lambda: (lambda x: torch.bincount(torch.arange(x.numel()) % 7, x.detach(), 9), normal(60)),
    "quantile": lambda: (lambda x: (torch.quantile(x, 0.3, 1), x.quantile(0.5, keepdim=True)), normal(4, 11)),
    "quantile_nearest": lambda: (lambda x: torch.quantile(x, 0.3, 1, interpolation="nearest"), normal(4, 12)),
    "index_reduce_prod": lambda: (_reduced("prod", True), normal(3, 5), normal(4, 5)),
    "index_reduce_mean": lambda: (_reduced("mean", False), normal(3, 5), normal(4, 5)),
    "index_reduce_amax": lambda: (_reduced("amax", True), normal(3, 5), normal(4, 5)),
    "index_reduce_amin": lambda: (_reduced("amin", False), normal(3, 5), normal(4, 5)),
    "prod_of_all": lambda: (torch.prod, normal(3, 4, 2)),
    "prod_along": lambda: (lambda x: torch.prod(x, 1), normal(3, 9)),
    "ldexp": lambda: (torch.ldexp, normal(3, 4), torch.tensor([1, 2, 0, 5])),
    "embedding_renormed": lambda: (
        lambda table: F.embedding(torch.tensor([0, 3, 3]), table.clone(), max_norm=1.0), normal(5, 4),
    ),
    "gaussian_nll_loss_of_variances": lambda: (
        lambda x, y, v: F.gaussian_nll_loss(x, y, v, full=True), normal(4, 5), normal(4, 5), uniform(4, 1),
    ),
    "selu_in_place": lambda: (nn.SELU(inplace=True), normal(4, 5)),
}  # fmt: skip

SAMPLED: dict[str, Making] = {**_IMAGES, **_COUNTER}
