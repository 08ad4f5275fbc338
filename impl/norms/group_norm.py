"""Group normalisation: the public functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..operator import arguments as checks
from ..operator.precision import FLOATING, HALF, compute_dtype
from . import operators as ops


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
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
        RuntimeError: shapes, dtypes or devices do not fit each other, or num_groups does not divide C.
        NotImplementedError: input is not of a floating dtype named above.

    Source: Y. Wu, K. He, Group Normalization, arXiv:1803.08494, eq. 1, 2, 6 and 7.
    """
    # A call that is right pays for cheap comparisons alone; a wrong one for finding out which rule it
    # breaks.
    if not _fits(input, num_groups, weight, bias, eps):
        _check("group_norm", "num_groups", input, num_groups, weight, bias, eps)
    return ops.group_norm(input, weight, bias, num_groups, eps)[0]


def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
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
    if not _fits(x, group, weight, bias, eps):
        _check(name, "group", x, group, weight, bias, eps)
    out, mean, rstd = ops.native_group_norm(x, weight, bias, group, eps)
    return out if x is input else out.reshape(input.shape), mean, rstd


def native_group_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
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
    if not _fits(x, group, weight, None, 0.0):
        _check(name, "group", x, group, weight, None, 0.0)
    _check_backward(name, grad_out, input, (N, group), mean, rstd, output_mask)
    if x is not input:
        grad_out = grad_out.reshape(x.shape)
    d_input, d_weight, d_bias = ops.group_norm_backward(
        grad_out, None, None, x, mean, rstd, weight, (input if weight is None else weight).dtype, group, None,
        list(output_mask),
    )  # fmt: skip
    if d_input is not None and x is not input:
        d_input = d_input.reshape(input.shape)
    return d_input, d_weight, d_bias


def _fits(x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float) -> bool:
    """Whether the arguments are right, the short way. `_check` says what is wrong.

    Args:
        x, groups, weight, bias, eps: as for `group_norm`, of any type.
    """
    if not isinstance(x, Tensor) or type(groups) is not int or type(eps) is not float:
        return False
    dtype = x.dtype
    if dtype not in FLOATING or x.dim() < 2 or groups <= 0:
        return False
    channels = x.shape[1]
    if channels % groups != 0:
        return False
    for parameter in (weight, bias):
        if parameter is None:
            continue
        if not isinstance(parameter, Tensor) or parameter.dim() != 1 or parameter.shape[0] != channels:
            return False
        if parameter.dtype is not dtype and not (parameter.dtype is torch.float32 and dtype in HALF):
            return False
        if parameter.device != x.device:
            return False
    return True


def _is_int(value: object) -> bool:
    # A bool is an int to Python, but True is no number of groups.
    return isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool)


def _check(
    name: str,
    label: str,
    x: Tensor,
    groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> None:
    """Raises what is wrong with the arguments; returns when they are right after all (eps given as an int).

    Args:
        name, label: the function, and what it calls the number of groups, for messages.
        x, groups, weight, bias, eps: as for `group_norm`, of any type.
    """
    checks.require_tensor(name, "input", x)
    if not _is_int(groups):
        raise TypeError(f"{name}: got {label}={groups!r}, need an int.")
    if not isinstance(eps, (float, int, torch.SymFloat)):
        raise TypeError(f"{name}: got eps={eps!r}, need a float.")
    checks.require_floating(name, "input", x)
    if x.dim() < 2:
        raise RuntimeError(f"{name}: got input of shape={list(x.shape)}, need (N, C, *).")
    if groups <= 0 or x.shape[1] % groups != 0:
        raise RuntimeError(
            f"{name}: got {label}={groups} and input of shape={list(x.shape)},"
            f" need {label} > 0 that divides the {x.shape[1]} channels."
        )
    for parameter_label, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None:
            _check_parameter(name, parameter_label, parameter, x)


def _check_parameter(name: str, label: str, parameter: Tensor, x: Tensor) -> None:
    checks.require_tensor(name, label, parameter)
    checks.require_shape(name, label, parameter, x.shape[1:2], "the input's channels")
    checks.require_parameter(name, label, parameter, x)


def _as_channels(name: str, label: str, t: Tensor, n: int, channels: int, positions: int) -> Tensor:
    """t as (N, C, *): itself where it has that shape, else reshaped to (N, C, HxW).

    Args:
        name, label: the function, and what it calls t, for messages.
        t: of n * channels * positions elements.
        n, channels, positions: N, C and HxW.
    """
    checks.require_tensor(name, label, t)
    for size_label, size in (("N", n), ("C", channels), ("HxW", positions)):
        if not _is_int(size):
            raise TypeError(f"{name}: got {size_label}={size!r}, need an int.")
    shape = t.shape
    if len(shape) >= 2 and shape[0] == n and shape[1] == channels and math.prod(shape[2:]) == positions:
        return t
    if n < 0 or channels < 0 or positions < 0 or t.numel() != n * channels * positions:
        raise RuntimeError(
            f"{name}: got {label} of shape={list(shape)} and N={n}, C={channels}, HxW={positions},"
            f" need {label} to have N * C * HxW elements."
        )
    return t.reshape(n, channels, positions)


def _check_backward(
    name: str,
    grad_out: Tensor,
    x: Tensor,
    expected: tuple[int, int],
    mean: Tensor,
    rstd: Tensor,
    output_mask: Sequence[bool],
) -> None:
    """Raises where an operand of the backward function does not fit the input.

    Args:
        name: the function that messages speak of.
        grad_out, x: of one shape and dtype.
        expected: the shape of the statistics.
        mean, rstd: of that shape, float32 for a half-precision x.
        output_mask: three bools.
    """
    for label, value in (("grad_out", grad_out), ("mean", mean), ("rstd", rstd)):
        checks.require_tensor(name, label, value)
        checks.require_device(name, label, value, "input", x)
    if grad_out.shape != x.shape or grad_out.dtype is not x.dtype:
        raise RuntimeError(
            f"{name}: got grad_out of shape={list(grad_out.shape)}, dtype={grad_out.dtype},"
            f" need the input's shape={list(x.shape)}, dtype={x.dtype}."
        )
    for label, value in (("mean", mean), ("rstd", rstd)):
        if tuple(value.shape) != expected or value.dtype is not compute_dtype(x.dtype):
            raise RuntimeError(
                f"{name}: got {label} of shape={list(value.shape)}, dtype={value.dtype},"
                f" need shape={list(expected)}, dtype={compute_dtype(x.dtype)}."
            )
    if len(output_mask) != 3:
        raise RuntimeError(f"{name}: got output_mask={list(output_mask)}, need three bools.")
