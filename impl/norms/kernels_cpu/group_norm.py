"""CPU kernels of group norm: ATen where it is accurate, float32 accumulation for the half types.

ATen has a second kernel for channels-last memory. It takes the variance as E[x^2] - E[x]^2, which loses every digit
where the mean is large, so every operand is made contiguous and that kernel never runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...operator import sums
from ...operator.precision import HALF, compute_dtype
from ...operator.records import new
from ...operator.torch_private import without_wrapper
from ..layout import Groups
from .operands import (
    Gradients,
    Operands,
    Outputs,
    complete_gradients,
    find_out_of_range,
    gradients_of_single,
    normalize_single,
    per_channel,
    with_infinite_means,
)

_aten_backward = without_wrapper(torch.ops.aten.native_group_norm_backward.default)
_layer_norm_backward = without_wrapper(torch.ops.aten.native_layer_norm_backward.default)

GroupOperands = Operands[Groups]
"""grad_out and x are (N, C, *), mean and rstd (N, groups), the weight (C,)."""


def _dense(x: Tensor) -> Tensor:
    """x contiguous, with the strides of a new tensor: dims of size 1 can make contiguous memory look channels-last."""
    x, shape = x.contiguous(), x.shape
    if len(shape) > 3 and (shape[1] == 1 or math.prod(shape[2:]) == 1):
        # The values are copied into new memory, because contiguous() returns a tensor that counts as
        # contiguous as it is, with the strides that mislead ATen.
        return torch.empty(shape, dtype=x.dtype, device=x.device).copy_(x)
    return x


def group_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float) -> Outputs:
    """(out, mean, rstd) with statistics in float32 for the half types.

    Args:
        x: (N, C, *).
        weight, bias: (C,) in x's dtype, or float32 with a half-precision x; None for ones and zeros.
        groups: a divisor of C.
        eps: added to the variance.

    Returns:
        out as x, contiguous; mean and rstd (N, groups).
    """
    n, channels, *lengths = x.shape
    positions = math.prod(lengths)
    if x.numel() == 0:  # The mean of nothing is NaN. Versions of ATen say other things of it, and some refuse it.
        up = compute_dtype(x.dtype)
        mean, rstd = (torch.full((n, groups), torch.nan, dtype=up, device=x.device) for _ in range(2))
        return torch.empty(x.shape, dtype=x.dtype, device=x.device), mean, rstd
    if channels * positions == groups:
        return normalize_single(x, weight, bias, Groups(groups), eps)
    x = _dense(x)
    if x.dtype in HALF:
        # With float32 parameters ATen keeps its statistics in float32, with half ones it rounds them to half.
        weight = x.new_ones(channels, dtype=torch.float32) if weight is None else weight.float()
        bias = x.new_zeros(channels, dtype=torch.float32) if bias is None else bias.float()
    # ATen takes the parameters' memory to be dense whatever their strides say.
    weight = None if weight is None else weight.contiguous()
    bias = None if bias is None else bias.contiguous()
    out, mean, rstd = torch.native_group_norm(x, weight, bias, n, channels, positions, groups, eps)
    # ATen's output is x scale + (bias - mean scale) with scale = rstd weight. Where that product leaves the range of
    # the dtype, as with an infinite weight, the output is computed again in the formula's order.
    if weight is not None and x.is_cpu:
        per_group = weight.view(groups, channels // groups)
        apart = find_out_of_range(per_group * rstd.unsqueeze(2), per_group)
        if apart is not None:  # of these channels alone, so that no channel's bits depend on its neighbours
            apart = apart.view(n, channels, *(1,) * len(lengths))
            out = torch.where(apart, _normalize_then_scale(x, weight, bias, groups, eps), out)
    return out, mean, rstd


def _normalize_then_scale(x: Tensor, weight: Tensor, bias: Tensor | None, groups: int, eps: float) -> Tensor:
    """All of the output, as x, with the weight applied to the normalised input, not to rstd; it is rounded once.

    Args:
        x, weight, bias, groups, eps: as for `group_norm`, x as `_dense` gives it.
    """
    up = x.to(compute_dtype(x.dtype))
    # Without parameters ATen's scale is rstd alone, so its output is the normalised input, and the affine
    # map follows it.
    n, channels, *lengths = x.shape
    normalized = torch.native_group_norm(up, None, None, n, channels, math.prod(lengths), groups, eps)[0]
    out = normalized.mul_(per_channel(weight.to(up.dtype), x))
    return (out if bias is None else out.add_(per_channel(bias.to(up.dtype), x))).to(x.dtype)


native_group_norm = with_infinite_means(group_norm, Groups)


class GroupBackward(NamedTuple):
    """The arguments of `group_norm_backward`.

    Attributes:
        x: (N, C, *). grad_out: shaped as x, in its dtype.
        weight: (C,), or None for ones. bias_dtype: the dtype of d_bias; None without a bias.
        mean, rstd: (N, groups), float32 for a half-precision x.
        grad_mean, grad_rstd: cotangents of these; None for zero.
        groups: a divisor of C. eps: not read; the derivatives of this op need it.
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
    groups: int
    eps: float | None
    output_mask: Sequence[bool]

    def operands(self) -> GroupOperands:
        """What the gradients are computed from."""
        grad_out, _, _, x, mean, rstd, weight, bias_dtype, groups, _, output_mask = self
        mask = (output_mask[0], output_mask[1] and weight is not None, output_mask[2] and bias_dtype is not None)
        operands: GroupOperands = new(Operands, (grad_out, x, mean, rstd, weight, Groups(groups), mask))
        return operands


def group_norm_backward(args: GroupBackward) -> Gradients:
    """(d_input, d_weight, d_bias) from the given mean and rstd; None where masked or without such a parameter.

    Returns:
        d_input as x; d_weight and d_bias (C,), in the dtypes of the parameters.
    """
    grad_out, grad_mean, grad_rstd, x, mean, rstd, weight, bias_dtype, groups, _, output_mask = args
    mask = (output_mask[0], output_mask[1] and weight is not None, output_mask[2] and bias_dtype is not None)
    dtype = x.dtype
    if (  # by far the most frequent call, on its own for speed
        grad_mean is None
        and grad_rstd is None
        and dtype not in HALF
        and weight is not None
        and weight.dtype is dtype
        and (bias_dtype is None or bias_dtype is dtype)
        and x.numel()
        and _by_aten(x, groups)
    ):
        return _gradients_by_aten(grad_out, x, mean, rstd, weight, groups, mask)
    operands = args.operands()
    statistics = mask[0] and (grad_mean is not None or grad_rstd is not None)
    if dtype in HALF and (statistics or not _by_aten(x, groups)):  # round once, after the last term
        operands = operands.raised()
    return complete_gradients(
        _gradients_without_statistics(operands), operands, (grad_mean, grad_rstd), dtype, bias_dtype
    )


def _by_aten(x: Tensor, groups: int) -> bool:
    """Whether d_input is ATen's.

    ATen rounds it in one way on one thread and in another on several, so not under
    `torch.use_deterministic_algorithms(True)`; nor for groups of one element, see `normalize_single`.
    """
    return not torch.are_deterministic_algorithms_enabled() and math.prod(x.shape[1:]) != groups


def _gradients_without_statistics(operands: GroupOperands) -> Gradients:
    """The three gradients without the part that comes through mean and rstd; those of parameters in the sums' dtype."""
    grad_out, x, mean, rstd, weight, (groups,), mask = operands
    channels, up = x.shape[1], compute_dtype(x.dtype)
    weight = None if weight is None else weight.to(up)
    if x.numel() == 0:  # no sample adds to the sums; ATen's are NaN where the statistics are
        d_input = torch.empty(x.shape, dtype=x.dtype, device=x.device) if mask[0] else None
        d_weight, d_bias = (x.new_zeros(channels, dtype=up) if needed else None for needed in mask[1:])
        return d_input, d_weight, d_bias
    if math.prod(x.shape[1:]) == groups:
        return gradients_of_single(operands, weight)
    d_input = d_bias = None
    if mask[2] and (weight is None or not (mask[0] or mask[1])):  # ATen fails on d_bias without a weight
        d_bias = _sum_per_channel(grad_out)
        mask = (mask[0], mask[1], False)
    # d_input alone depends on the number of threads in ATen's kernel for groups. Groups are rows to layer
    # norm's kernel, and a row is the work of one thread there.
    if mask[0] and not _by_aten(x, groups):
        d_input = _by_layer_norm(operands, weight)
        mask = (False, mask[1], mask[2])
    if not any(mask):
        return d_input, None, d_bias
    grads = _gradients_by_aten(grad_out, x, mean, rstd, weight, groups, mask)
    return grads[0] if d_input is None else d_input, grads[1], grads[2] if d_bias is None else d_bias


def _gradients_by_aten(
    grad_out: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, groups: int,
    mask: tuple[bool, bool, bool],
) -> Gradients:  # fmt: skip
    """ATen's kernel; with float32 statistics and weight, that for the half types sums in float32 and rounds once.

    Args:
        grad_out, ..., mask: as in `Operands`, the weight in the dtype of the sums; not without it if d_bias is asked.
    """
    n, channels, *lengths = x.shape
    # ATen takes the memory of weight and statistics to be dense whatever their strides say.
    weight = None if weight is None else weight.contiguous()
    grads: Gradients = _aten_backward(
        _dense(grad_out), _dense(x), mean.contiguous(), rstd.contiguous(), weight, n, channels, math.prod(lengths),
        groups, mask,
    )  # fmt: skip
    return grads


def _sum_per_channel(t: Tensor) -> Tensor:
    return sums.total(t, [i for i in range(t.dim()) if i != 1], dtype=compute_dtype(t.dtype))


def _by_layer_norm(operands: GroupOperands, weight: Tensor | None) -> Tensor:
    """d_input of groups as rows; the weight is per channel, not per element of a row, and goes into grad_out."""
    x, count = operands.x, operands.x.shape[0] * operands.layout.groups
    g = operands.grad_out if weight is None else operands.grad_out * per_channel(weight, x)
    rows = (count, x.numel() // count)
    statistics = (t.reshape(count, 1).contiguous() for t in (operands.mean, operands.rstd))
    d_input: Tensor = _layer_norm_backward(
        g.reshape(rows), x.reshape(rows), rows[1:], *statistics, None, None, (True, False, False)
    )[0]
    return d_input.view(x.shape)
