"""What the backward kernels of layer and group norm share: their operands, and the gradient through mean and rstd."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from ...operator.precision import HALF
from ..layout import Layout

Outputs = tuple[Tensor, Tensor, Tensor]
"""out, mean and rstd."""
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Of input, weight and bias; None where the mask leaves one out."""
Moved = tuple[Tensor, Tensor | None, Tensor | None]
"""Tangents of out, mean and rstd; None where the call does not ask for one, or where it is zero."""

L = TypeVar("L", bound=Layout)


class Operands(NamedTuple, Generic[L]):
    """What the gradients of a norm are computed from.

    Attributes:
        grad_out, x: of one shape and dtype.
        mean, rstd: as the forward op returns them, in the dtype of the sums, any strides.
        weight: as the op takes it, or None for ones.
        layout: the norm's.
        mask: which of d_input, d_weight and d_bias to compute; False for a parameter that is not there.
    """

    grad_out: Tensor
    x: Tensor
    mean: Tensor
    rstd: Tensor
    weight: Tensor | None
    layout: L
    mask: tuple[bool, bool, bool]

    def raised(self) -> Operands[L]:
        """The same with half-precision grad_out and x in float32, so that all terms are added before one rounding."""
        if self.x.dtype not in HALF:
            return self
        return self._replace(grad_out=self.grad_out.float(), x=self.x.float())


def complete_gradients(
    gradients: Gradients, operands: Operands[L], through: tuple[Tensor | None, Tensor | None], dtype: torch.dtype,
    bias_dtype: torch.dtype | None,
) -> Gradients:  # fmt: skip
    """The gradients with the part that comes through mean and rstd, each rounded once.

    ATen's kernels take no cotangents of mean and rstd, which are differentiable outputs here. The gradient through them
    is added to ATen's d_input.

    Args:
        gradients: (d_input, d_weight, d_bias) without that part, in the dtype of the sums; None where masked.
        operands: what the gradients were computed from.
        through: the cotangents of mean and rstd; None for zero.
        dtype, bias_dtype: of d_input and d_bias; d_weight is of the weight's.
    """
    d_input, d_weight, d_bias = gradients
    if d_input is not None:
        _add_statistics(d_input, operands, *through)
    return (
        None if d_input is None else d_input.to(dtype),
        None if operands.weight is None or d_weight is None else d_weight.to(operands.weight.dtype),
        None if bias_dtype is None or d_bias is None else d_bias.to(bias_dtype),
    )


def _add_statistics(d_input: Tensor, operands: Operands[L], grad_mean: Tensor | None, grad_rstd: Tensor | None) -> None:
    """d_input += (dm - r^2 ds xh) / N, the part that comes through mean and rstd; in place.

    Args:
        d_input: contiguous, in the dtype of the sums.
        operands: those of the gradients, x in that dtype.
        grad_mean, grad_rstd: cotangents of mean and rstd; None for zero.
    """
    if grad_mean is None and grad_rstd is None:
        return
    layout = operands.layout
    # d_input is contiguous, so its view shares its memory and the sums below, in place, arrive in it.
    total, x = layout.view(d_input), layout.view(operands.x)
    length = torch.Size([x.shape[dim] for dim in layout.dims(x.dim())]).numel()
    if grad_rstd is not None:
        r = layout.view_statistics(operands.rstd)
        # d rstd / dx = -rstd^2 xh / N. The factors rstd are applied one at a time, because rstd^3 on its
        # own underflows in float32 where the standard deviation exceeds about 4e12.
        slope = r * (r * layout.view_statistics(grad_rstd) / length)
        total.sub_((x - layout.view_statistics(operands.mean)).mul_(r).mul_(slope))
    if grad_mean is not None:
        total.add_(layout.view_statistics(grad_mean) / length)
