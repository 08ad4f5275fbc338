"""Checks of arguments that the backward functions of the norms share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..operator.arguments import require_device, require_tensor
from ..operator.precision import compute_dtype


def checked_mask(op: str, output_mask: Sequence[bool]) -> tuple[bool, bool, bool]:
    """The mask as a tuple; RuntimeError unless it has three entries."""
    if len(output_mask) != 3:
        raise RuntimeError(f"{op}: got output_mask={list(output_mask)}, need three bools.")
    return output_mask[0], output_mask[1], output_mask[2]


def require_backward_operands(
    op: str, grad_out: Any, x: Tensor, mean: Any, rstd: Any, statistics_shape: tuple[int, ...]
) -> None:
    """TypeError or RuntimeError unless they fit the input.

    Args:
        op: the name of the function that was called, for the message.
        grad_out: of x's shape and dtype.
        x: the input.
        mean, rstd: of `statistics_shape`, float32 for a half-precision x.
        statistics_shape: as the forward function returns them.
    """
    for label, value in (("grad_out", grad_out), ("mean", mean), ("rstd", rstd)):
        require_tensor(op, label, value)
        require_device(op, label, value, "input", x)
    if grad_out.shape != x.shape or grad_out.dtype is not x.dtype:
        raise RuntimeError(
            f"{op}: got grad_out of shape={list(grad_out.shape)}, dtype={grad_out.dtype},"
            f" need the input's shape={list(x.shape)}, dtype={x.dtype}."
        )
    for label, value in (("mean", mean), ("rstd", rstd)):
        if tuple(value.shape) != statistics_shape or value.dtype is not compute_dtype(x.dtype):
            raise RuntimeError(
                f"{op}: got {label} of shape={list(value.shape)}, dtype={value.dtype},"
                f" need shape={list(statistics_shape)}, dtype={compute_dtype(x.dtype)}."
            )
