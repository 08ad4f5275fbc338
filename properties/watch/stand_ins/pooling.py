"""The backwards of pooling, of resampling and of padding that repeats elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .pulled_back import pull_back


def _pull_pool(name: str) -> Callable[..., Tensor]:
    """The backward of an average over windows, whose arguments are those of its forward behind the cotangent."""
    return lambda g, x, *args: pull_back(name, [x, *args], [g])[0]


def _pull_adaptive(name: str, axes: int) -> Callable[..., Tensor]:
    return lambda g, x: pull_back(name, [x, list(g.shape[-axes:])], [g])[0]


def _pull_resampling(name: str) -> Callable[..., Tensor]:
    """The backward of a resampling, which is given the shape of the operand and not the operand; it is linear."""

    def backward(g: Tensor, output_size: Sequence[int], input_size: Sequence[int], *args: Any) -> Tensor:
        return pull_back(name, [g.new_zeros(input_size), list(output_size), *args], [g])[0]

    return backward


def _scatter_to_largest(axes: int) -> Callable[..., Tensor]:
    """The backward of the largest element of each window: its indices say where the cotangents go."""

    def backward(g: Tensor, x: Tensor, *args: Any, indices: Tensor | None = None) -> Tensor:
        places = args[-1] if indices is None else indices
        rows = (*x.shape[:-axes], math.prod(x.shape[-axes:]))
        pieces = (*g.shape[:-axes], math.prod(g.shape[-axes:]))
        return g.new_zeros(rows).scatter_add(-1, places.reshape(pieces), g.reshape(pieces)).reshape(x.shape)

    return backward


def _add_up_repeated(axes: int) -> Callable[..., Tensor]:
    """The backward of a padding that repeats the outermost elements."""

    def backward(g: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
        places = torch.zeros((), dtype=torch.int64, device=g.device)
        for i, length in enumerate(x.shape[-axes:]):
            before, after = padding[2 * (axes - 1 - i)], padding[2 * (axes - 1 - i) + 1]
            own = torch.arange(-before, length + after, device=g.device).clamp(0, length - 1)
            places = places[..., None] * length + own
        rows, pieces = (*x.shape[:-axes], math.prod(x.shape[-axes:])), g.flatten(-axes)
        return g.new_zeros(rows).scatter_add(-1, places.reshape(-1).expand_as(pieces), pieces).reshape(x.shape)

    return backward


_RESAMPLINGS = (
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d",
    "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa",
)  # fmt: skip
STAND_INS: dict[str, Callable[..., Any]] = {
    "avg_pool2d_backward": _pull_pool("avg_pool2d"),
    "avg_pool3d_backward": _pull_pool("avg_pool3d"),
    "_adaptive_avg_pool2d_backward": _pull_adaptive("_adaptive_avg_pool2d", 2),
    "_adaptive_avg_pool3d_backward": _pull_adaptive("_adaptive_avg_pool3d", 3),
    **{f"{name}_backward": _pull_resampling(name) for name in _RESAMPLINGS},
    **{
        f"{kind}_pool{axes}d{middle}_backward": _scatter_to_largest(axes)
        for kind, middle in (("max", "_with_indices"), ("adaptive_max", ""), ("fractional_max", ""))
        for axes in (2, 3)
    },
    **{f"replication_pad{axes}d_backward": _add_up_repeated(axes) for axes in (1, 2, 3)},
}
