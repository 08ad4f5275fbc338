"""The affine map of batch and group norm where weight / sqrt(var + eps), which ATen forms, leaves the dtype's range."""

from __future__ import annotations

import torch
from torch import Tensor


def find_out_of_range(scale: Tensor, weight: Tensor) -> Tensor | None:
    """Where a product of the weight and rstd, which ATen multiplies its input by, has left the range of its dtype.

    Args:
        scale: the products, overwritten: (C,), or (N, groups, C / groups). weight: as it broadcasts against them.

    Returns:
        A mask shaped as the products; None where all are in the range.
    """
    least, largest = torch.aminmax(scale.abs_())
    info = torch.finfo(scale.dtype)
    if least.item() >= info.tiny and largest.item() <= info.max:
        return None
    # A product of 0 from a weight of 0 is exact. Only a tiny product of other weights has lost digits. A NaN
    # compares false with everything, so the test is written in such a way that it counts as beyond the range.
    mask = ((scale >= info.tiny) & (scale <= info.max) | (weight == 0) & (scale == 0)).logical_not_()
    return mask if bool(mask.any()) else None


def scale_and_shift(centred: Tensor, weight: Tensor | None, bias: Tensor | None, invstd: Tensor) -> Tensor:
    """centred * invstd * weight + bias; overwrites `centred`.

    Args:
        centred: (N, C, *). weight, bias, invstd: (C,).
    """
    out = centred.mul_(per_channel(invstd, centred))
    out = out if weight is None else out.mul_(per_channel(weight, out))
    return out if bias is None else out.add_(per_channel(bias, out))


def replace_out_of_range(
    out: Tensor, x: Tensor, operands: tuple[Tensor | None, Tensor | None, Tensor, Tensor], apart: Tensor | None
) -> Tensor:
    """out with some channels computed in the formula's order, so that no channel's bits depend on its neighbours.

    Args:
        out: ATen's, overwritten. x: the input, (N, C, *) as out is. operands: weight, bias, mean and invstd, (C,).
        apart: (C,), which channels; None for none.
    """
    if apart is None:
        return out
    weight, bias, mean, invstd = operands
    anew = scale_and_shift(x.to(mean.dtype) - per_channel(mean, x), weight, bias, invstd).to(out.dtype)
    # What is computed from x has the strides of x. The output keeps those of ATen's.
    return out.copy_(torch.where(per_channel(apart, x), anew, out))


def per_channel(t: Tensor, x: Tensor) -> Tensor:
    """t (C,), viewed to broadcast against x (N, C, *)."""
    return t.view(-1, *(1,) * (x.dim() - 2))
