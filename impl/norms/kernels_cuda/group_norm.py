"""Kernels of group norm on CUDA: ATen's values, by the kernels of the CPU, whose signatures they have.

ATen's CUDA kernels take no float32 parameters with a half-precision input and keep its statistics in half precision, so
half-precision operands are taken to float32 around them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...operator.precision import HALF
from ..kernels_cpu import group_norm as cpu
from ..kernels_cpu.operands import MaskedOutputs, Outputs

_Others = tuple[Tensor, Tensor, Tensor | None, torch.dtype | None, int, float | None, Sequence[bool]]


def group_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float) -> Outputs:
    """(out, mean, rstd) with statistics in float32 for the half types.

    Args:
        x, weight, bias, groups, eps: as for the CPU's.
    """
    out, mean, rstd = cpu.group_norm(*_in_float32(x, weight, bias), groups, eps)
    return out.to(x.dtype), mean, rstd


def native_group_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float) -> Outputs:
    """`group_norm`, with the mean of a group that holds an infinity as mathematics has it.

    Args:
        x, weight, bias, groups, eps: as for the CPU's.
    """
    out, mean, rstd = cpu.native_group_norm(*_in_float32(x, weight, bias), groups, eps)
    return out.to(x.dtype), mean, rstd


def group_norm_backward(
    grad_out: Tensor, grad_mean: Tensor | None, grad_rstd: Tensor | None, x: Tensor, *others: *_Others
) -> MaskedOutputs:
    """(d_input, d_weight, d_bias) from the given mean and rstd; None where masked or without such a parameter.

    Args:
        grad_out, grad_mean, grad_rstd, x: as for the CPU's.
        others: its mean, rstd, weight, bias_dtype, groups, eps and output_mask.
    """
    dtype = x.dtype
    if dtype in HALF:
        grad_out, x = grad_out.float(), x.float()
    # The parameters' gradients come back in the parameters' dtypes, which the kernel knows from weight and
    # bias_dtype. It takes x for float32, so only d_input is left to be rounded.
    d_input, d_weight, d_bias = cpu.group_norm_backward(grad_out, grad_mean, grad_rstd, x, *others)
    return None if d_input is None else d_input.to(dtype), d_weight, d_bias


def _in_float32(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
    if x.dtype not in HALF:
        return x, weight, bias
    return x.float(), None if weight is None else weight.float(), None if bias is None else bias.float()
