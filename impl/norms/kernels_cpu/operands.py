"""What the kernels of the norms share: single elements, infinite means, gradients through statistics, affine maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from ...operator.precision import HALF, compute_dtype
from ..layout import Layout

Outputs = tuple[Tensor, Tensor, Tensor]
"""out, mean and rstd."""
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
"""Of input, weight and bias; None where the mask leaves one out."""
Moved = tuple[Tensor, Tensor | None, Tensor | None]
"""Tangents of out, mean and rstd; None where the call does not ask for one, or where it is zero."""
ForwardKernel = Callable[[Tensor, Tensor | None, Tensor | None, int, float], Outputs]
"""(x, weight, bias, row_ndim or groups, eps) -> (out, mean, rstd)."""

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


def normalize_single(x: Tensor, weight: Tensor | None, bias: Tensor | None, layout: Layout, eps: float) -> Outputs:
    """(out, mean, rstd) where each element has statistics of its own, centred before it is scaled: zero, or NaN.

    Such an element is its own mean, so the exact result is the bias, or 0 without one. ATen computes x scale − mean
    scale, which leaves the rounding error of both products.

    Args:
        x, weight, bias, eps: as of the forward op. layout: the norm's.
    """
    statistics = x.reshape(layout.statistics_shape(x.shape))
    mean = statistics.to(compute_dtype(x.dtype), copy=True, memory_format=torch.contiguous_format)
    # The difference is 0 for a finite element and NaN for an infinity or a NaN, as (x - mean) is in the formula. Zeros
    # written directly would hide the infinity.
    centred = mean - mean
    # This is 1 / sqrt(eps), and infinite for eps = 0; the product with a centred 0 is NaN then, as the formula reads.
    rstd = centred.square().add_(eps).sqrt_().reciprocal_()
    out = centred.mul_(rstd).view(x.shape)
    view = layout.view(out)  # of the same memory
    if weight is not None:
        view.mul_(layout.spread(weight.to(out.dtype), view.dim()))
    if bias is not None:
        view.add_(layout.spread(bias.to(out.dtype), view.dim()))
    return out.to(x.dtype), mean, rstd


def gradients_of_single(operands: Operands[L], weight: Tensor | None) -> Gradients:
    """The gradients of a norm of single elements, centred before they are scaled, as `normalize_single` does.

    Args:
        operands: in the dtype of the sums. weight: the same.
    """
    layout, mask = operands.layout, operands.mask
    x, dy = layout.view(operands.x), layout.view(operands.grad_out)
    r = layout.view_statistics(operands.rstd)
    normalized = (x - layout.view_statistics(operands.mean)).mul_(r)
    d_input = d_bias = None
    if mask[0]:
        # A difference has the strides of its operands, and the shape rule promises a contiguous result of any of them.
        g = dy.contiguous()
        g = g if weight is None else g * layout.spread(weight, g.dim())
        # In r (g - bar(g) - xh bar(g xh)), taken over one element, bar(g) is g and bar(g xh) is g xh. The term g - g is
        # written out because it is NaN where g is not finite, and 0 elsewhere.
        d_input = (g - g).sub_(normalized * g * normalized).mul_(r).view(operands.x.shape)
    if mask[2]:
        d_bias = layout.collect(dy)
        if d_bias is dy:  # nothing to sum over, and outputs alias no input
            d_bias = dy.clone(memory_format=torch.contiguous_format)
    return d_input, layout.collect(normalized.mul_(dy)) if mask[1] else None, d_bias


def with_infinite_means(norm: ForwardKernel, layout_of: Callable[[int], Layout]) -> ForwardKernel:
    """A forward kernel, where the mean of what holds an infinity is that infinity; ATen returns NaN.

    Args:
        norm: the kernel. layout_of: (its number of dims of a row, or of groups) -> the norm's layout.
    """

    def native(x: Tensor, weight: Tensor | None, bias: Tensor | None, number: int, eps: float) -> Outputs:
        out, mean, rstd = norm(x, weight, bias, number, eps)
        # On CUDA this test waits for the device. Only the native ops pay for it, because only there the mean is a
        # result that users see; in the others it is there for the backward, where such a row is NaN anyway.
        if bool(torch.isnan(mean).any()):
            layout = layout_of(number)
            view = layout.view(x)
            exact = view.mean(layout.dims(view.dim()), keepdim=True, dtype=mean.dtype)
            mean = torch.where(torch.isnan(mean), layout.flat_statistics(exact), mean)
        return out, mean, rstd

    return native


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


def find_out_of_range(scale: Tensor, weight: Tensor) -> Tensor | None:
    """Where a product of the weight and rstd, which ATen multiplies its input by, has left the range of its dtype.

    Args:
        scale: the products, overwritten: (C,), or (N, groups, C / groups). weight: as it broadcasts against them.

    Returns:
        A mask shaped as the products; None where all are in the range.
    """
    least, largest = torch.aminmax(scale.abs_())
    info = torch.finfo(scale.dtype)
    if least.item() >= info.tiny and largest.item() <= info.max:
        return None
    # A product of 0 from a weight of 0 is exact. Only a tiny product of other weights has lost digits. A NaN
    # compares false with everything, so the test is written in such a way that it counts as beyond the range.
    mask = ((scale >= info.tiny) & (scale <= info.max) | (weight == 0) & (scale == 0)).logical_not_()
    return mask if bool(mask.any()) else None


def scale_and_shift(centred: Tensor, weight: Tensor | None, bias: Tensor | None, invstd: Tensor) -> Tensor:
    """centred * invstd * weight + bias; overwrites `centred`.

    Args:
        centred: (N, C, *). weight, bias, invstd: (C,).
    """
    out = centred.mul_(per_channel(invstd, centred))
    out = out if weight is None else out.mul_(per_channel(weight, out))
    return out if bias is None else out.add_(per_channel(bias, out))


def replace_out_of_range(
    out: Tensor, x: Tensor, operands: tuple[Tensor | None, Tensor | None, Tensor, Tensor], apart: Tensor | None
) -> Tensor:
    """out with some channels computed in the formula's order, so that no channel's bits depend on its neighbours.

    Args:
        out: ATen's, overwritten. x: the input, (N, C, *) as out is. operands: weight, bias, mean and invstd, (C,).
        apart: (C,), which channels; None for none.
    """
    if apart is None:
        return out
    weight, bias, mean, invstd = operands
    anew = scale_and_shift(x.to(mean.dtype) - per_channel(mean, x), weight, bias, invstd).to(out.dtype)
    # What is computed from x has the strides of x. The output keeps those of ATen's.
    return out.copy_(torch.where(per_channel(apart, x), anew, out))


def per_channel(t: Tensor, x: Tensor) -> Tensor:
    """t (C,), viewed to broadcast against x (N, C, *)."""
    return t.view(-1, *(1,) * (x.dim() - 2))
