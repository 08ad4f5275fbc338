"""CPU kernels of layer norm: ATen where it is accurate, float32 accumulation for the half types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...operator.precision import HALF
from ...operator.records import new
from ...operator.torch_private import without_wrapper
from ..layout import Rows, rows_of
from .operands import (
    Gradients,
    Operands,
    Outputs,
    complete_gradients,
    gradients_of_single,
    normalize_single,
    with_infinite_means,
)

_CHUNK = 1 << 18
"""Elements of a half-precision operand that are taken to float32 at a time: the copies stay in cache."""

_aten_backward: Callable[..., Gradients] = without_wrapper(torch.ops.aten.native_layer_norm_backward.default)

RowOperands = Operands[Rows]
"""grad_out and x are (*batch, *lead, *row), mean and rstd (*batch, *lead, 1, ..., 1)."""


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, row_ndim: int, eps: float) -> Outputs:
    """(out, mean, rstd) with statistics in float32 for the half types.

    Args:
        x: (*lead, *row).
        weight, bias: (*row) in x's dtype, or float32 with a half-precision x; None for ones and zeros.
        row_ndim: the number of dims of a row.
        eps: added to the variance.

    Returns:
        out as x; mean and rstd (*lead, 1, ..., 1).
    """
    row = x.shape[-row_ndim:]
    # A row of one element is its own mean, so the exact result is the bias, or 0 without one. ATen's
    # difference of two rounded products misses it by an error that grows with |x| rstd.
    length = row.numel()
    if length == 1:
        return normalize_single(x, weight, bias, rows_of(row_ndim), eps)
    if x.dtype in HALF:
        # With float32 parameters ATen keeps its statistics in float32, with half ones it rounds
        # them to half.
        weight = x.new_ones(row, dtype=torch.float32) if weight is None else weight.float()
        bias = x.new_zeros(row, dtype=torch.float32) if bias is None else bias.float()
    # ATen's forward kernel updates mean and variance as it goes (Welford). The error of that grows with
    # |mean| / std, that of E[x^2] - E[x]^2 with its square, so no second pass over x is needed here.
    out, mean, rstd = torch.native_layer_norm(x, row, weight, bias, eps)
    if length == 0:
        mean.fill_(torch.nan)  # the mean of nothing; ATen says 0
    return out, mean, rstd


native_layer_norm = with_infinite_means(layer_norm, rows_of)


class LayerBackward(NamedTuple):
    """The arguments of `layer_norm_backward`.

    Attributes:
        grad_out: shaped as x, in its dtype.
        grad_mean, grad_rstd: cotangents of mean and rstd, shaped as they are; None for zero.
        x: (*batch, *lead, *row).
        mean, rstd: (*batch, *lead, 1, ..., 1), float32 for a half-precision x.
        weight: (*row), or (*batch, *row) where each batch dim is full or 1; None for ones.
        bias_dtype: the dtype of d_bias; None without a bias.
        row_ndim, batch_ndim: the numbers of dims of a row and of the batch.
        eps: not read; the derivatives of this op need it.
        output_mask: which of the three to compute.
    """

    grad_out: Tensor
    grad_mean: Tensor | None
    grad_rstd: Tensor | None
    x: Tensor
    mean: Tensor
    rstd: Tensor
    weight: Tensor | None
    bias_dtype: torch.dtype | None
    row_ndim: int
    eps: float | None
    batch_ndim: int
    output_mask: Sequence[bool]

    def operands(self) -> RowOperands:
        """What the gradients are computed from."""
        grad_out, _, _, x, mean, rstd, weight, bias_dtype, row_ndim, _, batch_ndim, output_mask = self
        mask = (output_mask[0], output_mask[1] and weight is not None, output_mask[2] and bias_dtype is not None)
        operands: RowOperands = new(Operands, (grad_out, x, mean, rstd, weight, rows_of(row_ndim, batch_ndim), mask))
        return operands


def layer_norm_backward(args: LayerBackward) -> Gradients:
    """(d_input, d_weight, d_bias) from the given mean and rstd; None where masked or without such a parameter.

    Returns:
        d_input as x; d_weight and d_bias (*batch, *row), in the dtypes of the parameters.
    """
    _, grad_mean, grad_rstd, x, _, _, weight, bias_dtype, row_ndim, _, batch_ndim, _ = args
    operands, dtype = args.operands(), x.dtype
    if (  # by far the most frequent call, on its own for speed
        grad_mean is None
        and grad_rstd is None
        and batch_ndim == 0
        and dtype not in HALF
        and (weight is None or weight.dtype is dtype)
        and (bias_dtype is None or bias_dtype is dtype)
    ):
        return _gradients_by_aten(operands)
    mask = operands.mask
    statistics = mask[0] and (grad_mean is not None or grad_rstd is not None)
    # ATen's kernel takes one weight for all rows and sums parameter gradients over all rows. So it cannot be used where
    # each batch index has its own weight, or needs its own gradient of a parameter.
    sliced = batch_ndim > 0 and (mask[1] or mask[2] or (weight is not None and weight.dim() > row_ndim))
    if statistics or sliced:  # round once, after the last term
        operands = operands.raised()
    if sliced:
        gradients = _gradients_per_slice(operands)
    elif operands.x.dtype in HALF:
        gradients = _gradients_by_chunks(operands)
    else:
        gradients = _gradients_by_aten(operands)
    return complete_gradients(gradients, operands, (grad_mean, grad_rstd), dtype, bias_dtype)


def _gradients_by_aten(operands: RowOperands) -> Gradients:
    """ATen's kernel on float32 or float64, one weight (*row) for all; parameter gradients come back in that dtype.

    ATen sums parameter gradients per thread, so their last bits depend on the number of threads. Under
    `torch.use_deterministic_algorithms(True)` they are summed without it, at about twice the time.
    """
    grad_out, x, mean, rstd, weight, layout, mask = operands
    row = x.shape[-layout.row_ndim :]
    if weight is not None and weight.dtype is not x.dtype:
        weight = weight.to(x.dtype)
    if row.numel() == 1:
        return gradients_of_single(operands, weight)
    # ATen takes the statistics' memory to be dense whatever their strides say.
    mean, rstd = mean.contiguous(), rstd.contiguous()
    if torch.are_deterministic_algorithms_enabled() and (mask[1] or mask[2]):
        d_input = None
        if mask[0]:
            d_input = _aten_backward(grad_out, x, row, mean, rstd, weight, None, (True, False, False))[0]
        return d_input, *_parameter_sums(operands, rows_of(layout.row_ndim))
    # ATen reads only shape and dtype of the bias, and needs one to return its gradient.
    bias = x.new_empty(row) if mask[2] and weight is None else weight
    return _aten_backward(grad_out, x, row, mean, rstd, weight, bias, mask)


def _gradients_by_chunks(operands: RowOperands) -> Gradients:
    """The float32 kernel on a few half-precision rows at a time: d_input rounded once, parameter gradients summed in
    float32. ATen's own half kernel rounds parameter gradients along the way.
    """
    grad_out, x, mean, rstd, _, layout, mask = operands
    row = x.shape[-layout.row_ndim :]
    length = row.numel()
    rows = x.numel() // length if length else 0
    step = max(1, _CHUNK // max(length, 1))
    if rows <= step:
        return _gradients_by_aten(operands.raised())
    grad_out, x = grad_out.reshape(rows, *row), x.reshape(rows, *row)
    mean, rstd = (t.reshape(rows, *(1,) * layout.row_ndim) for t in (mean, rstd))
    d_input = operands.x.new_empty(operands.x.shape) if mask[0] else None
    d_rows = None if d_input is None else d_input.view(rows, *row)
    d_weight = d_bias = None
    for start in range(0, rows, step):
        part = slice(start, start + step)
        some = operands._replace(grad_out=grad_out[part], x=x[part], mean=mean[part], rstd=rstd[part])
        some_x, some_weight, some_bias = _gradients_by_aten(some.raised())
        # The assignment rounds float32 to the half type. It is the only rounding, and no float32 gradient of the whole
        # input is ever in memory.
        if d_rows is not None and some_x is not None:
            d_rows[part] = some_x
        # The gradients of a chunk are float32 and stay so while they are added. The caller rounds the sum
        # once.
        if some_weight is not None:
            d_weight = some_weight if d_weight is None else d_weight.add_(some_weight)
        if some_bias is not None:
            d_bias = some_bias if d_bias is None else d_bias.add_(some_bias)
    return d_input, d_weight, d_bias


def _gradients_per_slice(operands: RowOperands) -> Gradients:
    """One weight, d_weight and d_bias per batch index: d_input by the kernel without affine, the others by sums."""
    d_input, weight = None, operands.weight
    if operands.mask[0]:
        # The weight enters d_input only in g = dy w. So a weight per batch index goes into the cotangent
        # beforehand, and the kernel runs without one.
        g = operands.grad_out
        if weight is not None:
            g = g * operands.layout.spread(weight.to(operands.x.dtype), operands.x.dim())
        d_input = _gradients_by_aten(operands._replace(grad_out=g, weight=None, mask=(True, False, False)))[0]
    return d_input, *_parameter_sums(operands, operands.layout)


def _parameter_sums(operands: RowOperands, layout: Rows) -> tuple[Tensor | None, Tensor | None]:
    """(d_weight, d_bias) per batch index of a layout as plain sums, in an order that no thread count changes."""
    d_weight = d_bias = None
    if operands.mask[1]:
        # d_weight = sum(dy xh). The normalised rows xh are computed again from mean and rstd, because
        # keeping them in the forward would cost one more tensor of the input's size.
        d_weight = layout.collect((operands.x - operands.mean).mul_(operands.rstd).mul_(operands.grad_out))
    if operands.mask[2]:
        d_bias = layout.collect(operands.grad_out)
        if d_bias is operands.grad_out:  # nothing to sum over, and outputs alias no input
            d_bias = operands.grad_out.clone(memory_format=torch.contiguous_format)
    return d_weight, d_bias
