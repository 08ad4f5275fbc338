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


def unpack_weights(packed: Any) -> Any:
    """The weights less what stands for zero, the size of a step of each, and what is added, of a packed product.

    The packed weights come last: a form of calls is known by their address, which is theirs while they live.
    """
    weight, bias = packed.unpack()
    whole = weight.int_repr().float()
    if weight.qscheme() == torch.per_tensor_affine:
        return (whole - weight.q_zero_point()).t(), torch.tensor(weight.q_scale(), dtype=torch.float32), bias, packed
    zeros = weight.q_per_channel_zero_points().float()
    return (whole - zeros[:, None]).t(), weight.q_per_channel_scales().float(), bias, packed


def _linear_dynamic(x: Tensor, weights: Any, reduce_range: bool = False) -> Tensor:
    """A product with a matrix that is rounded to unsigned bytes between its least and its largest element.

    A kernel whose partial sums are cut off at 16 bits computes something else: `reduce_range` keeps them smaller.
    """
    factors, scale, bias, _ = weights
    most = 127.0 if reduce_range else 255.0
    low, high = x.amin().double().clamp(max=0.0), x.amax().double().clamp(min=0.0)
    step = (high - low) / most
    # Of the two ends the one that is farther from zero in steps says which whole number stands for zero.
    nought = torch.where((low / step).abs() > most - (high / step).abs(), -low / step, most - high / step)
    nought = torch.clamp(torch.round(nought), 0.0, most).to(x.dtype)
    step = step.to(x.dtype)
    rounded = torch.clamp(torch.round(x * (1.0 / step)) + nought, 0.0, most) - nought
    product: Tensor = rounded @ factors * (step * scale)
    return product if bias is None else product + bias


STAND_INS: dict[str, Callable[..., Any]] = {
    "fake_quantize_per_tensor_affine_cachemask": _round_to_steps,
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": _by_tensors,
    "fake_quantize_per_channel_affine_cachemask": _by_channel,
}
QUANTIZED: dict[str, Callable[..., Any]] = {"linear_dynamic": _linear_dynamic}
