"""Group normalisation: the public functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..operator import arguments
from ..operator.precision import FLOATING
from . import operators as ops


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Groups of channels normalised to mean 0 and variance 1, then scaled and shifted per channel.

    out[n, c] = (x[n, c] - mean) / sqrt(var + eps) * weight[c] + bias[c], with mean and (biased) variance over the
    channels of c's group and all positions of sample n. Groups are contiguous runs of C / num_groups channels.

    Args:
        input: (N, C, *), float64, float32, bfloat16 or float16, any strides, cpu or cuda.
        num_groups: divides C.
        weight, bias: (C,), in the input's dtype, or float32 with a bfloat16 or float16 input.
        eps: added to the variance.

    Returns:
        A contiguous tensor of the input's shape and dtype, for channels-last input too. Statistics and sums of
        half-precision inputs are float32 and the result is rounded once. A group with a NaN or an infinity is NaN. A
        group of one element gives the bias; torch refuses it where N = 1 and takes it otherwise.

    Raises:
        TypeError: an operand is not a tensor, num_groups not an int, eps not a number.
        RuntimeError: shapes, dtypes or devices do not fit each other, or num_groups does not divide C; or there is no
            channel or no position, and torch refuses that, which is a matter of its version.
        NotImplementedError: input is not of a floating dtype named above.

    Source: Y. Wu, K. He, Group Normalization, arXiv:1803.08494, eq. 1, 2, 6 and 7.
    """
    _check_groups("group_norm", "num_groups", input, num_groups, weight, bias, eps)
    if not input.numel() and (refusal := _refusal_of_torch(*(min(n, 1) for n in input.shape))):
        raise RuntimeError(refusal)
    return ops.group_norm(input, weight, bias, num_groups, eps)[0]


def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`group_norm` with its statistics, which are differentiable outputs.

    Args:
        input: N * C * HxW elements, read as (N, C, HxW).
        weight, bias, group, eps: as for `group_norm`, where `group` is called num_groups.

    Returns:
        out, mean, rstd. out has the input's shape. mean and rstd = 1 / sqrt(var + eps) have shape (N, group); float32
        for bfloat16 and float16 inputs, else the input's dtype. For groups of no elements both are NaN.

    Raises:
        As `group_norm`, and RuntimeError when the input does not have N * C * HxW elements.
    """
    name = "native_group_norm"
    x = _as_channels(name, "input", input, N, C, HxW)
    _check_groups(name, "group", x, group, weight, bias, eps)
    out, mean, rstd = ops.native_group_norm(x, weight, bias, group, eps)
    return out if x is input else out.reshape(input.shape), mean, rstd


def native_group_norm_backward(
    grad_out: Tensor, input: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, N: int, C: int, HxW: int,
    group: int, output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients of input, weight and bias from the gradient of out.

    The values use the given mean and rstd. The derivatives of this function treat both as what they are, functions of
    input: mean = mean(input), rstd = 1 / sqrt(var(input) + eps) with the eps that the given rstd implies, held
    constant. So no gradient flows to the arguments mean and rstd.

    Args:
        grad_out: shape and dtype of input, any strides.
        input, weight, N, C, HxW, group: as for `native_group_norm`.
        mean, rstd: as `native_group_norm` returns them.
        output_mask: which of the three gradients to compute.

    Returns:
        d_input (shape and dtype of input), d_weight and d_bias ((C,), dtype of weight, or of input without a weight),
        contiguous; None where the mask is False, and d_weight where there is no weight. Parameter gradients of
        half-precision inputs are summed in float32 and rounded once.

    Raises:
        As `native_group_norm`, and RuntimeError when grad_out, mean, rstd or output_mask do not fit.
    """
    name = "native_group_norm_backward"
    x = _as_channels(name, "input", input, N, C, HxW)
    # aten's signature has neither bias nor eps here, so None and 0 stand in for them in the checks.
    _check_groups(name, "group", x, group, weight, None, 0.0)
    arguments.require_backward_operands(name, grad_out, input, (("mean", mean), ("rstd", rstd)), (N, group))
    mask = arguments.checked_mask(name, output_mask)
    if x is not input:
        grad_out = grad_out.reshape(x.shape)
    d_input, d_weight, d_bias = ops.group_norm_backward(
        grad_out, None, None, x, mean, rstd, weight, (input if weight is None else weight).dtype, group, None, mask,
    )  # fmt: skip
    if d_input is not None and x is not input:
        d_input = d_input.reshape(input.shape)
    return d_input, d_weight, d_bias


@functools.cache
def _refusal_of_torch(*extents: int) -> str:
    """What the torch at hand says to an input of these extents, 0 or 1 each; empty where it takes it."""
    try:
        torch.group_norm(torch.empty(extents), 1)
    except RuntimeError as err:
        return str(err)
    return ""


def _check_groups(name: str, label: str, x: Any, groups: Any, weight: Any, bias: Any, eps: Any) -> None:
    """Raises the exception for the first wrong argument. Messages are made on failure alone, to save right calls time.

    Args:
        name, label: the function, and what it calls the number of groups, for messages.
        x, groups, weight, bias, eps: as for `group_norm`, of any type.
    """
    if not isinstance(x, Tensor):
        arguments.require_tensor(name, "input", x)
    if type(groups) is not int:
        arguments.require_int(name, label, groups)
    if type(eps) is not float:
        arguments.require_number(name, "eps", eps)
    if x.dtype not in FLOATING:
        arguments.require_floating(name, "input", x)
    shape = x.shape
    if len(shape) < 2:
        raise RuntimeError(f"{name}: got input of shape={list(shape)}, need (N, C, *).")
    if groups <= 0 or shape[1] % groups != 0:
        raise RuntimeError(
            f"{name}: got {label}={groups} and input of shape={list(shape)},"
            f" need {label} > 0 that divides the {shape[1]} channels."
        )
    parameters = (("weight", weight), ("bias", bias))
    arguments.require_parameters(name, parameters, x, shape[1:2], _require_channels)


def _require_channels(name: str, label: str, parameter: Any, x: Tensor, shape: Any) -> None:
    """Unless a weight or bias is (C,), in a dtype that goes with the input's, on its device: TypeError or RuntimeError.

    Args:
        name, label: the function, and what it calls the parameter, for messages.
        parameter: of any type.
        x, shape: the input, and (C,).
    """
    arguments.require_tensor(name, label, parameter)
    arguments.require_shape(name, label, parameter, shape, "the input's channels")
    arguments.require_parameter(name, label, parameter, x)


def _as_channels(name: str, label: str, t: Tensor, n: int, channels: int, positions: int) -> Tensor:
    """t as (N, C, *): itself where it has that shape, else reshaped to (N, C, HxW).

    Args:
        name, label: the function, and what it calls t, for messages.
        t: of n * channels * positions elements.
        n, channels, positions: N, C and HxW.
    """
    arguments.require_tensor(name, label, t)
    for size_label, size in (("N", n), ("C", channels), ("HxW", positions)):
        arguments.require_int(name, size_label, size)
    shape = t.shape
    if len(shape) >= 2 and shape[0] == n and shape[1] == channels and math.prod(shape[2:]) == positions:
        return t
    if n < 0 or channels < 0 or positions < 0 or t.numel() != n * channels * positions:
        raise RuntimeError(
            f"{name}: got {label} of shape={list(shape)} and N={n}, C={channels}, HxW={positions},"
            f" need {label} to have N * C * HxW elements."
        )
    return t.reshape(n, channels, positions)
