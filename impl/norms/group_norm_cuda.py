"""CUDA kernels of group norm. The seam for fused kernels: same signatures as group_norm_cpu, ATen's values for now.

ATen's CUDA kernels take no float32 parameters with a half-precision input and keep its statistics in half precision, so
half-precision operands are taken to float32 around them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..operator.precision import HALF
from . import group_norm_cpu as cpu
from .group_norm_cpu import MaskedOutputs, Outputs


def forward(x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float) -> Outputs:
    """(out, mean, rstd) with statistics in float32 for the half types."""
    out, mean, rstd = cpu.forward(*_wide(x, weight, bias), groups, eps)
    return out.to(x.dtype), mean, rstd


def forward_with_statistics(x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float) -> Outputs:
    """`forward`, with the mean of a group that holds an infinity as mathematics has it."""
    out, mean, rstd = cpu.forward_with_statistics(*_wide(x, weight, bias), groups, eps)
    return out.to(x.dtype), mean, rstd


def backward(
    grad_out: Tensor,
    grad_mean: Tensor | None,
    grad_rstd: Tensor | None,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias_dtype: torch.dtype | None,
    groups: int,
    eps: float | None,
    output_mask: list[bool],
) -> MaskedOutputs:
    """(d_input, d_weight, d_bias) from the given mean and rstd; None where masked or without such a parameter."""
    dtype = x.dtype
    if dtype in HALF:
        grad_out, x = grad_out.float(), x.float()
    d_input, d_weight, d_bias = cpu.backward(
        grad_out, grad_mean, grad_rstd, x, mean, rstd, weight, bias_dtype, groups, eps, output_mask
    )
    return None if d_input is None else d_input.to(dtype), d_weight, d_bias


def _wide(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
    if x.dtype not in HALF:
        return x, weight, bias
    return x.float(), None if weight is None else weight.float(), None if bias is None else bias.float()
