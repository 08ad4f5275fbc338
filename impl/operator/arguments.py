"""Checks of arguments that all ops share, with their messages: what was given, and the rule it broke."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .precision import FLOATING, HALF, compute_dtype


def require_tensor(op: str, label: str, value: Any) -> None:
    """TypeError unless `value` is a Tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{op}: got {label}={value!r}, need a Tensor.")


_NUMBERS = (float, int, torch.SymFloat)

Labelled = tuple[tuple[str, Any], ...]
"""(label, value) of arguments of one kind, of any type."""


def require_tensors(op: str, x: Any, parameters: Labelled) -> None:
    """TypeError unless the input is a Tensor, and each of the parameters a Tensor or None."""
    if not isinstance(x, Tensor):
        require_tensor(op, "input", x)
    for label, value in parameters:
        if value is not None and not isinstance(value, Tensor):
            require_tensor(op, label, value)


def require_number(op: str, label: str, value: Any) -> None:
    """TypeError unless `value` is a float or an int."""
    # The comparison of types is quick, and decides nearly every call.
    if type(value) is not float and not isinstance(value, _NUMBERS):
        raise TypeError(f"{op}: got {label}={value!r}, need a float.")


def require_floating(op: str, label: str, tensor: Tensor) -> None:
    """NotImplementedError (a RuntimeError) unless `tensor` is of a dtype that the ops take."""
    if tensor.dtype not in FLOATING:
        raise NotImplementedError(
            f"{op}: got {label} of dtype={tensor.dtype}, need float64, float32, bfloat16 or float16."
        )


def require_floating_tensor(op: str, label: str, value: Any) -> None:
    """TypeError unless `value` is a Tensor, NotImplementedError unless it is of a dtype that the ops take."""
    if not isinstance(value, Tensor):
        require_tensor(op, label, value)
    if value.dtype not in FLOATING:
        require_floating(op, label, value)


def require_device(op: str, label: str, tensor: Tensor, other_label: str, other: Tensor) -> None:
    """RuntimeError unless both tensors are on one device.

    Args:
        op, label, other_label: the names of the function that was called and of the arguments, for the message.
        tensor, other: the arguments.
    """
    if tensor.device != other.device:
        raise RuntimeError(
            f"{op}: got {label} on device={tensor.device} and {other_label} on device={other.device}, need one device."
        )


def require_shape(op: str, label: str, tensor: Tensor, shape: tuple[int, ...], rule: str) -> None:
    """RuntimeError unless `tensor` has `shape`.

    Args:
        op, label: the names of the function that was called and of the argument, for the message.
        tensor: the argument.
        shape: what its shape must be, a tuple.
        rule: where that shape comes from, for the message.
    """
    if tensor.shape != shape:
        raise RuntimeError(f"{op}: got {label} of shape={list(tensor.shape)}, need {rule}={list(shape)}.")


def require_like(op: str, label: str, value: Any, other_label: str, other: Tensor) -> None:
    """Unless `value` is a Tensor on the device, of the shape and of the dtype of `other`: TypeError or RuntimeError.

    Args:
        op, label, other_label: the names of the function that was called and of the arguments, for the message.
        value: the argument, of any type.
        other: the tensor that it must be like.
    """
    require_tensor(op, label, value)
    require_device(op, label, value, other_label, other)
    require_shape(op, label, value, other.shape, f"the {other_label}'s shape")
    if value.dtype is not other.dtype:
        raise RuntimeError(
            f"{op}: got {label} of dtype={value.dtype} and {other_label} of dtype={other.dtype}, need one dtype."
        )


def require_parameter(op: str, label: str, parameter: Tensor, x: Tensor) -> None:
    """RuntimeError unless a weight, a bias or a statistic is on the input's device, in a dtype that goes with it."""
    require_parameter_dtype(op, label, parameter, x)
    require_device(op, label, parameter, "input", x)


def require_parameter_dtype(op: str, label: str, parameter: Tensor, x: Tensor) -> None:
    """RuntimeError unless a parameter has the input's dtype, or float32 beside a half type."""
    if parameter.dtype is not x.dtype and not (parameter.dtype is torch.float32 and x.dtype in HALF):
        raise RuntimeError(
            f"{op}: got {label} of dtype={parameter.dtype} and input of dtype={x.dtype},"
            " need the input's dtype, or float32 with a bfloat16 or float16 input."
        )


def require_int(op: str, label: str, value: object) -> None:
    """TypeError unless `value` is an int or a torch.SymInt; a bool is refused."""
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):
        raise TypeError(f"{op}: got {label}={value!r}, need an int.")


def require_parameters(
    op: str, parameters: Labelled, x: Tensor, shape: Any, require: Callable[[str, str, Any, Tensor, Any], None]
) -> None:
    """Unless each parameter is None, or a Tensor that goes with the input: what `require` raises.

    Args:
        op: the name of the function that was called, for the message.
        parameters: weights, biases and statistics.
        x: the input.
        shape: what their shape must be.
        require: (op, label, parameter, x, shape) -> None, or an exception that says what is wrong.
    """
    # Nearly every parameter is a tensor of the input's dtype, device and the right shape, and passes this quick test.
    # `require` allows more, so only the other parameters are given to it.
    dtype, device = x.dtype, x.device
    for label, value in parameters:
        if value is not None and not (
            isinstance(value, Tensor) and value.shape == shape and value.dtype is dtype and value.device == device
        ):
            require(op, label, value, x, shape)


def checked_mask(op: str, output_mask: Sequence[bool]) -> tuple[bool, bool, bool]:
    """The mask as a tuple; RuntimeError unless it has three entries."""
    if len(output_mask) != 3:
        raise RuntimeError(f"{op}: got output_mask={list(output_mask)}, need three bools.")
    return output_mask[0], output_mask[1], output_mask[2]


def require_backward_operands(
    op: str, grad_out: Any, x: Tensor, statistics: Labelled, statistics_shape: tuple[int, ...]
) -> None:
    """TypeError or RuntimeError unless cotangent and statistics fit the input.

    Args:
        op: the name of the function that was called, for the message.
        grad_out: of x's shape and dtype.
        x: the input.
        statistics: mean and rstd, or rstd, of `statistics_shape`, float32 for a half-precision x.
        statistics_shape: as the forward function returns them.
    """
    for label, value in (("grad_out", grad_out), *statistics):
        require_tensor(op, label, value)
        require_device(op, label, value, "input", x)
    if grad_out.shape != x.shape or grad_out.dtype is not x.dtype:
        raise RuntimeError(
            f"{op}: got grad_out of shape={list(grad_out.shape)}, dtype={grad_out.dtype},"
            f" need the input's shape={list(x.shape)}, dtype={x.dtype}."
        )
    for label, value in statistics:
        if tuple(value.shape) != statistics_shape or value.dtype is not compute_dtype(x.dtype):
            raise RuntimeError(
                f"{op}: got {label} of shape={list(value.shape)}, dtype={value.dtype},"
                f" need shape={list(statistics_shape)}, dtype={compute_dtype(x.dtype)}."
            )
