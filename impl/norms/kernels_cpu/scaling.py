"""The affine map of batch and group norm where weight / sqrt(var + eps), which ATen forms, leaves the dtype's range."""

from __future__ import annotations

import torch
from torch import Tensor


def beyond(scale: Tensor, weight: Tensor) -> Tensor | None:
    """Where a product of the weight and rstd, which ATen multiplies its input by, has left the range of its dtype.

    Args:
        scale: the products, overwritten. weight: as it broadcasts against them.

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


def applied(centred: Tensor, weight: Tensor | None, bias: Tensor | None, invstd: Tensor) -> Tensor:
    """centred * invstd * weight + bias; overwrites `centred`."""
    out = centred.mul_(along(invstd, centred))
    out = out if weight is None else out.mul_(along(weight, out))
    return out if bias is None else out.add_(along(bias, out))


def scaled_last(
    out: Tensor, x: Tensor, operands: tuple[Tensor | None, Tensor | None, Tensor, Tensor], apart: Tensor | None
) -> Tensor:
    """out with some channels computed in the formula's order, so that no channel's bits depend on its neighbours.

    Args:
        out: ATen's. x: the input. operands: weight, bias, mean and invstd. apart: which channels; None for none.
    """
    if apart is None:
        return out
    weight, bias, mean, invstd = operands
    anew = applied(x.to(mean.dtype) - along(mean, x), weight, bias, invstd).to(out.dtype)
    # What is computed from x has the strides of x. The output keeps those of ATen's.
    return out.copy_(torch.where(along(apart, x), anew, out))


def along(t: Tensor, x: Tensor) -> Tensor:
    """t (C,), viewed to broadcast against x (N, C, ...)."""
    return t.view(-1, *(1,) * (x.dim() - 2))
