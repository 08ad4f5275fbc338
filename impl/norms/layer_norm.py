"""Layer normalisation: the public functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..operator import arguments
from ..operator.precision import FLOATING
from . import operators as ops
from .layout import Rows

_INTS = (int, torch.SymInt)


def layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Rows normalised to mean 0 and variance 1, scaled and shifted: (x - mean) / sqrt(var + eps) * weight + bias.

    Args:
        input: (*lead, *normalized_shape), float64, float32, bfloat16 or float16, any strides, cpu or cuda.
        normalized_shape: the trailing dims that form a row; at least one.
        weight, bias: (*normalized_shape), in the input's dtype, or float32 with a bfloat16 or float16 input.
        eps: added to the (biased) variance.

    Returns:
        A contiguous tensor of the input's shape and dtype. Statistics and sums of half-precision
        inputs are float32 and the result is rounded once. A row with a NaN or an infinity is NaN.

    Raises:
        TypeError: an operand is not a tensor, normalized_shape not ints, eps not a number.
        RuntimeError: shapes, dtypes or devices do not fit each other.
        NotImplementedError: input is not of a floating dtype named above.

    Source: J. L. Ba, J. R. Kiros, G. E. Hinton, Layer Normalization, arXiv:1607.06450, eq. 3-4.
    """
    shape = check_rows("layer_norm", input, normalized_shape, (("weight", weight), ("bias", bias)), eps)
    return ops.layer_norm(input, weight, bias, len(shape), eps)[0]


def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """`layer_norm` with its statistics, which are differentiable outputs.

    Args:
        input, normalized_shape, weight, bias, eps: as for `layer_norm`.

    Returns:
        out, mean, rstd. mean and rstd = 1 / sqrt(var + eps) have shape (*lead, 1, ..., 1) with a 1
        per dim of normalized_shape; float32 for bfloat16 and float16 inputs, else the input's
        dtype. For rows of length 0 both are NaN.

    Raises:
        As `layer_norm`.
    """
    shape = check_rows("native_layer_norm", input, normalized_shape, (("weight", weight), ("bias", bias)), eps)
    return ops.native_layer_norm(input, weight, bias, len(shape), eps)


def native_layer_norm_backward(
    grad_out: Tensor, input: Tensor, normalized_shape: Sequence[int], mean: Tensor, rstd: Tensor, weight: Tensor | None,
    bias: Tensor | None, output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients of input, weight and bias from the gradient of out.

    The values use the given mean and rstd. The derivatives of this function treat both as what
    they are, functions of input: mean = mean(input), rstd = 1 / sqrt(var(input) + eps) with the
    eps that the given rstd implies, held constant. So no gradient flows to the arguments mean and
    rstd.

    Args:
        grad_out: shape and dtype of input, any strides.
        input, normalized_shape, weight, bias: as for `layer_norm`.
        mean, rstd: as `native_layer_norm` returns them.
        output_mask: which of the three gradients to compute.

    Returns:
        d_input (shape and dtype of input), d_weight, d_bias (of weight and bias), contiguous; None
        where the mask is False or there is no such parameter. Parameter gradients of
        half-precision inputs are summed in float32 and rounded once.

    Raises:
        As `layer_norm`, and RuntimeError when grad_out, mean, rstd or output_mask do not fit.
    """
    name = "native_layer_norm_backward"
    # This op has no argument eps, so 0 takes its place in the checks, which are those of the forward op.
    shape = check_rows(name, input, normalized_shape, (("weight", weight), ("bias", bias)), 0.0)
    arguments.require_backward_operands(
        name, grad_out, input, (("mean", mean), ("rstd", rstd)), Rows(len(shape)).statistics_shape(input.shape)
    )
    return ops.layer_norm_backward(
        grad_out, None, None, input, mean, rstd, weight, None if bias is None else bias.dtype,
        len(shape), None, 0, arguments.checked_mask(name, output_mask),
    )  # fmt: skip


def check_rows(name: str, x: Any, normalized_shape: Any, parameters: arguments.Labelled, eps: Any) -> tuple[int, ...]:
    """The normalized shape as a tuple; raises the exception for the first wrong argument.

    Messages are made on failure alone, to save right calls time.

    Args:
        name: the function that messages speak of.
        x, normalized_shape, eps: as for `layer_norm`, of any type.
        parameters: weight and bias, as far as the function has them.
    """
    arguments.require_tensors(name, x, parameters)
    # Only a list is converted. A torch.Size is a tuple already, and anything else is refused.
    shape: tuple[int, ...] = tuple(normalized_shape) if type(normalized_shape) is list else normalized_shape
    right = isinstance(shape, tuple)
    for size in shape if right else ():
        right = right and isinstance(size, _INTS)  # 4.0 == 4, and torch takes no floats here
    if not right:
        raise TypeError(f"{name}: got normalized_shape={shape!r}, need a tuple of ints.")
    if type(eps) is not float:
        arguments.require_number(name, "eps", eps)
    if not shape:
        raise RuntimeError(f"{name}: got normalized_shape={list(shape)}, need at least one dim.")
    if x.dtype not in FLOATING:
        arguments.require_floating(name, "input", x)
    if x.shape[-len(shape) :] != shape:
        raise RuntimeError(
            f"{name}: got normalized_shape={list(shape)} and input of shape={list(x.shape)},"
            " need the input's trailing dims to be normalized_shape."
        )
    arguments.require_parameters(name, parameters, x, shape, _require_row)
    return shape


def _require_row(name: str, label: str, parameter: Any, x: Tensor, shape: Any) -> None:
    """RuntimeError unless a weight or bias is one row, in a dtype that goes with the input's, on its device.

    Args:
        name, label: the function, and what it calls the parameter, for messages.
        parameter: a tensor.
        x, shape: the input and its normalized_shape.
    """
    arguments.require_shape(name, label, parameter, shape, "normalized_shape")
    arguments.require_parameter(name, label, parameter, x)
