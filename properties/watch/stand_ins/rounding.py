"""Numbers that are rounded to those of few bits and stay floating: quantisation in training.

What says which numbers were cut off is left: rounding may decide it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _round_to_steps(x: Tensor, scale: Any, zero: Any, least: int, most: int) -> Tensor:
    """The nearest of the numbers (n − zero) scale, for whole n from the least to the most."""
    steps = torch.clamp(torch.round(x * (1.0 / scale)) + zero, least, most)
    nearest: Tensor = (steps - zero) * scale
    return nearest.to(x.dtype)


def _by_tensors(x: Tensor, scale: Tensor, zero: Tensor, enabled: Tensor, least: int, most: int) -> Tensor:
    return torch.where(enabled != 0, _round_to_steps(x, scale, zero.to(x.dtype), least, most), x)


def _by_channel(x: Tensor, scale: Tensor, zero: Tensor, axis: int, least: int, most: int) -> Tensor:
    shape = [-1 if i == axis % x.dim() else 1 for i in range(x.dim())]
    return _round_to_steps(x, scale.reshape(shape), zero.to(x.dtype).reshape(shape), least, most)


STAND_INS: dict[str, Callable[..., Any]] = {
    "fake_quantize_per_tensor_affine_cachemask": _round_to_steps,
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": _by_tensors,
    "fake_quantize_per_channel_affine_cachemask": _by_channel,
}
