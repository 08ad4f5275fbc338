"""Layer normalisation: the public functions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..operator import arguments
from ..operator.precision import FLOATING, HALF, compute_dtype
from . import operators as ops


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
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
    # Only a list is converted. A torch.Size is a tuple already, and what is neither is for `_check` to
    # refuse.
    shape = tuple(normalized_shape) if type(normalized_shape) is list else normalized_shape
    # A call that is right pays for cheap comparisons alone; a wrong one for finding out which rule it
    # breaks.
    if not _fits(input, shape, weight, bias, eps):
        _check("layer_norm", input, shape, weight, bias, eps)
    return ops.layer_norm(input, weight, bias, len(shape), eps)[0]


def native_layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
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
    shape = tuple(normalized_shape) if type(normalized_shape) is list else normalized_shape
    if not _fits(input, shape, weight, bias, eps):
        _check("native_layer_norm", input, shape, weight, bias, eps)
    return ops.native_layer_norm(input, weight, bias, len(shape), eps)


def native_layer_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
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
    shape = tuple(normalized_shape) if type(normalized_shape) is list else normalized_shape
    name = "native_layer_norm_backward"
    # This op is given no eps; 0 takes its place in the checks, which the forward op shares.
    if not _fits(input, shape, weight, bias, 0.0):
        _check(name, input, shape, weight, bias, 0.0)
    _check_backward(name, grad_out, input, shape, mean, rstd, output_mask)
    return ops.layer_norm_backward(
        grad_out, None, None, input, mean, rstd, weight, None if bias is None else bias.dtype,
        len(shape), None, 0, list(output_mask),
    )  # fmt: skip


def _fits(x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> bool:
    """Whether the arguments are right, the short way. `_check` says what is wrong.

    Args:
        x, shape, weight, bias, eps: as for `layer_norm`, of any type.
    """
    if not isinstance(x, Tensor) or not isinstance(shape, tuple) or type(eps) is not float:
        return False
    dtype = x.dtype
    if not shape or dtype not in FLOATING or x.shape[-len(shape) :] != shape:
        return False
    for size in shape:  # 4.0 == 4, and torch takes no floats here
        if type(size) is not int:
            return False
    for parameter in (weight, bias):
        if parameter is None:
            continue
        if not isinstance(parameter, Tensor) or parameter.shape != shape:
            return False
        if parameter.dtype is not dtype and not (parameter.dtype is torch.float32 and dtype in HALF):
            return False
        if parameter.device != x.device:
            return False
    return True


def _check(
    name: str,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> None:
    """Raises what is wrong with the arguments; returns when they are right after all (eps given as an int).

    Args:
        name: the function that messages speak of.
        x, shape, weight, bias, eps: as for `layer_norm`, of any type.
    """
    _check_types(name, {"input": x, "weight": weight, "bias": bias}, shape, eps)
    if not shape:
        raise RuntimeError(f"{name}: got normalized_shape={list(shape)}, need at least one dim.")
    arguments.require_floating(name, "input", x)
    if tuple(x.shape[-len(shape) :]) != tuple(shape):
        raise RuntimeError(
            f"{name}: got normalized_shape={list(shape)} and input of shape={list(x.shape)},"
            " need the input's trailing dims to be normalized_shape."
        )
    for label, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None:
            _check_parameter(name, label, parameter, x, shape)


def _check_types(name: str, tensors: dict[str, Tensor | None], shape: Sequence[int], eps: float) -> None:
    for label, value in tensors.items():
        if not isinstance(value, Tensor) and (value is not None or label == "input"):
            raise TypeError(f"{name}: got {label}={value!r}, need a Tensor.")
    if not isinstance(shape, (tuple, list)) or not all(isinstance(size, (int, torch.SymInt)) for size in shape):
        raise TypeError(f"{name}: got normalized_shape={shape!r}, need a tuple of ints.")
    if not isinstance(eps, (float, int, torch.SymFloat)):
        raise TypeError(f"{name}: got eps={eps!r}, need a float.")


def _check_parameter(name: str, label: str, parameter: Tensor, x: Tensor, shape: Sequence[int]) -> None:
    """RuntimeError unless a weight or bias fits the input.

    Args:
        name, label: the function, and what it calls the parameter, for messages.
        parameter: a tensor.
        x, shape: the input and its normalized_shape.
    """
    if tuple(parameter.shape) != tuple(shape):
        raise RuntimeError(
            f"{name}: got {label} of shape={list(parameter.shape)}, need normalized_shape={list(shape)}."
        )
    arguments.require_parameter(name, label, parameter, x)


def _check_backward(
    name: str,
    grad_out: Tensor,
    x: Tensor,
    shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    output_mask: Sequence[bool],
) -> None:
    """Raises where an operand of the backward function does not fit the input.

    Args:
        name: the function that messages speak of.
        grad_out, x: of one shape and dtype.
        shape: normalized_shape.
        mean, rstd: (*lead, 1, ..., 1), float32 for a half-precision x.
        output_mask: three bools.
    """
    for label, value in (("grad_out", grad_out), ("mean", mean), ("rstd", rstd)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: got {label}={value!r}, need a Tensor.")
        if value.device != x.device:
            raise RuntimeError(
                f"{name}: got {label} on device={value.device} and input on device={x.device}, need one device."
            )
    if grad_out.shape != x.shape or grad_out.dtype is not x.dtype:
        raise RuntimeError(
            f"{name}: got grad_out of shape={list(grad_out.shape)}, dtype={grad_out.dtype},"
            f" need the input's shape={list(x.shape)}, dtype={x.dtype}."
        )
    expected = (*x.shape[: x.dim() - len(shape)], *(1,) * len(shape))
    for label, value in (("mean", mean), ("rstd", rstd)):
        if tuple(value.shape) != expected or value.dtype is not compute_dtype(x.dtype):
            raise RuntimeError(
                f"{name}: got {label} of shape={list(value.shape)}, dtype={value.dtype},"
                f" need shape={list(expected)}, dtype={compute_dtype(x.dtype)}."
            )
    if len(output_mask) != 3:
        raise RuntimeError(f"{name}: got output_mask={list(output_mask)}, need three bools.")
