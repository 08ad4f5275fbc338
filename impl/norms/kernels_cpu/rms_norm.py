"""CPU kernels of RMS norm: ATen has none, so they are composed of its sums and products, in the dtype of sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...operator import sums
from ...operator.precision import raised
from ..layout import rows_of

Outputs = tuple[Tensor, Tensor | None, Tensor]
Gradients = tuple[Tensor | None, Tensor | None]


def rms_norm(x: Tensor, residual: Tensor | None, weight: Tensor | None, row_ndim: int, eps: float) -> Outputs:
    """(out, total, rstd), where total is x + residual, rounded to their dtype, and is normalised in place of x.

    Args:
        x: (*lead, *row).
        residual: as x, or None.
        weight: (*row) in x's dtype, or float32 with a half-precision x; None for ones.
        row_ndim: the number of dims of a row.
        eps: added to the mean of squares.

    Returns:
        out and total as x, total None without a residual; rstd (*lead, 1, ..., 1), float32 for the half types.
    """
    total = None if residual is None else (x + residual).contiguous()
    rows = raised(x if total is None else total).contiguous()
    rstd = sums.mean(rows * rows, rows_of(row_ndim).dims(x.dim()), keepdim=True).add_(eps).sqrt_().reciprocal_()
    out = rows * rstd
    return (out if weight is None else out.mul_(weight)).to(x.dtype), total, rstd


class RmsBackward(NamedTuple):
    """The arguments of `rms_norm_backward`.

    Attributes:
        grad_out: shaped as x, in its dtype.
        grad_total: the cotangent of x itself, which is added to d_input; None for zero.
        grad_rstd: the cotangent of rstd, shaped as it is; None for zero.
        x: (*batch, *lead, *row).
        rstd: (*batch, *lead, 1, ..., 1), float32 for a half-precision x.
        weight: (*row), or (*batch, *row) where each batch dim is full or 1; None for ones.
        row_ndim, batch_ndim: the numbers of dims of a row and of the batch.
        eps: not read; the derivatives of this op need it.
        output_mask: which of d_input and d_weight to compute.
    """

    grad_out: Tensor
    grad_total: Tensor | None
    grad_rstd: Tensor | None
    x: Tensor
    rstd: Tensor
    weight: Tensor | None
    row_ndim: int
    eps: float | None
    batch_ndim: int
    output_mask: Sequence[bool]


def rms_norm_backward(args: RmsBackward) -> Gradients:
    """(d_input, d_weight) from the given rstd; None where masked or without a weight.

    Returns:
        d_input as x; d_weight (*batch, *row), in the weight's dtype. Each is rounded once.
    """
    grad_out, grad_total, grad_rstd, x, r, weight, row_ndim, _, batch_ndim, output_mask = args
    layout, dims = rows_of(row_ndim, batch_ndim), rows_of(row_ndim).dims(x.dim())
    dy, xh = raised(grad_out).contiguous(), raised(x).contiguous() * r
    d_input = d_weight = None
    if output_mask[0]:
        g = dy if weight is None else dy * layout.spread(raised(weight), x.dim())
        slope = sums.mean(g * xh, dims, keepdim=True)
        if grad_rstd is not None:
            # One factor r at a time: r^2 alone underflows long before r ds / N does.
            slope += r * (grad_rstd / torch.Size([x.shape[dim] for dim in dims]).numel())
        d_input = (g - xh * slope).mul_(r)
        d_input = (d_input if grad_total is None else d_input.add_(grad_total)).to(x.dtype)
    if output_mask[1] and weight is not None:
        d_weight = layout.collect(dy * xh).to(weight.dtype)
    return d_input, d_weight
