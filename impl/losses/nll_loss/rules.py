"""The negative log likelihood as torch sees it: one forward op, under two names, and its adjoint in the input.

`nll_loss` and `nll_loss_forward` differ in autocast alone. Both return the total weight, which is a differentiable
function of the weight. Shapes and batch dims are those of losses_cpu. The backward op takes the cotangent of every
position's loss (divided by the total weight already, for a mean): it is linear in that and in the weight.

The weight comes in float32 for the half types: it has a part in both outputs and in the backward op, and its cotangents
from all of them sum in float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...operator import positional as dispatch
from ...operator.precision import HALF, compute_dtype
from . import kernels_cpu as kernels
from .expressions import Form
from .kernels_cpu import MEAN, NONE, SUM, class_dim

Needs = tuple[bool, ...]

_library = torch.library.Library("opassay", "FRAGMENT")


def _forward_fake(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int, batch_ndim: int
) -> tuple[Tensor, Tensor]:
    batch = x.shape[:batch_ndim]
    total = x.new_empty(batch, dtype=compute_dtype(x.dtype))
    return x.new_empty(target.shape if reduction == NONE else batch), total


def _forward_save(args: dispatch.Args, outputs: dispatch.Args, needs: Needs) -> Any:
    """Not the input, unless the weight needs a gradient: the input's does not read it."""
    x, target, weight, reduction, ignore_index, batch_ndim = args
    given = outputs[1] if reduction == MEAN else None
    classes = x.shape[class_dim(x.dim(), batch_ndim)]
    return (x if needs[2] else None, target, weight, given), (
        classes, x.dtype, reduction, ignore_index, batch_ndim
    )  # fmt: skip


def _forward_backward(tensors: Any, extras: dispatch.Args, needs: Needs, cotangents: dispatch.Args) -> dispatch.Grads:
    """d_input by the backward op; d_weight from l = -w_t x_t and, for a mean, through the total weight."""
    x, target, weight, given = tensors
    classes, dtype, reduction, ignore_index, batch_ndim = extras
    g, g_total = cotangents
    d_input = d_weight = None
    form = form_of(target, classes, ignore_index, batch_ndim)
    if g is not None:
        g = cotangent(form, g, weight, given, needs[2])
    if needs[0] and g is not None:
        d_input = backward(g, target, weight, classes, ignore_index, batch_ndim, dtype)
    if needs[2] and x is not None:
        d_weight = weight_gradient(form, x.to(compute_dtype(dtype)), weight, reduction, g, g_total)
    return d_input, None, d_weight, None, None, None


def form_of(target: Tensor, classes: int, ignore_index: int, batch_ndim: int, smoothing: float = 0.0) -> Form:
    """The form of the losses of a target, on the ops of this module."""
    return Form(_plain, backward, total_weight, target, classes, ignore_index, batch_ndim, smoothing)


def cotangent(form: Form, g: Tensor, weight: Tensor | None, given: Tensor | None, twice: bool) -> Tensor:
    """The cotangent of every position's loss, for a mean from the total weight that is given with it.

    In float32 where it is divided, or used twice and so summed over.
    """
    if given is not None:
        return g.to(given.dtype) / form.total(weight, given)
    return g.to(compute_dtype(g.dtype)) if twice else g


def weight_gradient(
    form: Form, y: Tensor, weight: Tensor, reduction: int, g: Tensor | None, g_total: Tensor | None
) -> Tensor | None:
    """The weight's gradient for g, the cotangent of every position's loss, and g_total, that of the total weight."""
    out = None if g is None else form.to_weight(g, y)
    if reduction == MEAN and g is not None:
        through = -g * form.value(y, weight.to(y.dtype), MEAN)
        g_total = through if g_total is None else g_total + through
    if reduction != NONE and g_total is not None:
        ones = kernels.spread(g_total, form.target).expand(form.target.shape)
        counted = form.at_targets(ones)
        out = counted if out is None else out + counted
    return None if out is None else out.sum_to_size(weight.shape).to(weight.dtype)


def _forward_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    x, target, weight, reduction, ignore_index, batch_ndim = args
    t, _, t_weight = tangents[:3]
    up = compute_dtype(x.dtype)
    if t_weight is None:
        out, total = _plain(t, target, weight, reduction, ignore_index, batch_ndim)
        return out, torch.zeros_like(total)
    form = form_of(target, x.shape[class_dim(x.dim(), batch_ndim)], ignore_index, batch_ndim)
    out, t_total = moved(form, x.to(up), weight.to(up), None if t is None else t.to(up), t_weight.to(up), reduction)
    return out.to(x.dtype), t_total


def moved(
    form: Form, y: Tensor, weight: Tensor | None, t: Tensor | None, t_weight: Tensor | None, reduction: int
) -> tuple[Tensor, Tensor]:
    """Tangents of the loss and of the total weight, where y moves along t and the weight along t_weight."""
    inner = SUM if reduction == MEAN else reduction
    constant = y.new_zeros(form.target.shape[: form.batch_ndim])
    if t_weight is None:
        return form.value(y if t is None else t, weight, reduction), constant
    out = form.value(y, t_weight, inner)
    if t is not None:
        out = form.value(t, weight, inner) + out
    if reduction == NONE:
        return out, constant
    t_total = form.of_weight(t_weight)
    if reduction == MEAN and weight is not None:
        out = (out - form.value(y, weight, MEAN) * t_total) / form.of_weight(weight)
    return out, t_total


def batched(t: Tensor, dim: int | None, size: int, dtype: torch.dtype | None = None) -> Tensor:
    """`t` with its batch in front; expanded where it has none, in `dtype`, which the gradient then sums in."""
    if dim is not None:
        return t.movedim(dim, 0)
    return (t if dtype is None else t.to(dtype)).expand(size, *t.shape)


def batched_weight(weight: Tensor | None, dim: int | None, size: int, batch_ndim: int) -> Tensor | None:
    """The same for a weight, which may stay without batch dims where nothing in it is batched."""
    if weight is None or (dim is None and weight.dim() == 1):
        return weight
    if dim is None:
        return weight.unsqueeze(0)
    weight = weight.movedim(dim, 0)
    return weight.reshape(size, *(1,) * batch_ndim, weight.shape[-1]) if weight.dim() == 2 else weight


def output_dtype(x: Tensor, autocast: bool) -> torch.dtype:
    """The dtype of a loss of x without vmap: float32 where autocast is on, for an op that it applies to."""
    autocast = autocast and x.dtype in HALF and torch.is_autocast_enabled(x.device.type)
    return torch.float32 if autocast else x.dtype


def _forward_vmap(op: Any, autocast: bool, info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    x, target, weight, reduction, ignore_index, batch_ndim = args
    size = info.batch_size
    out, total = op(
        batched(x, in_dims[0], size, compute_dtype(x.dtype)), batched(target, in_dims[1], size),
        batched_weight(weight, in_dims[2], size, batch_ndim), reduction, ignore_index, batch_ndim + 1,
    )  # fmt: skip
    return (out.to(output_dtype(x, autocast)), total), (0, 0)


def _backward_fake(
    grad_output: Tensor, target: Tensor, weight: Tensor | None, classes: int, ignore_index: int, batch_ndim: int,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    dim = class_dim(target.dim() + 1, batch_ndim)
    return grad_output.new_empty((*target.shape[:dim], classes, *target.shape[dim:]), dtype=dtype)


def _backward_save(args: dispatch.Args, outputs: dispatch.Args, needs: Needs) -> Any:
    grad_output, target, weight, *rest = args
    g = grad_output if needs[2] else None
    return (g, target, weight), (*rest[:3], grad_output.dtype, grad_output.dim())


def _backward_backward(tensors: Any, extras: dispatch.Args, needs: Needs, cotangents: dispatch.Args) -> dispatch.Grads:
    """<v, d_input> is the loss of the scores v, summed with grad_output: both gradients are that of a loss."""
    g, target, weight = tensors
    classes, ignore_index, batch_ndim, dtype, ndim = extras
    v = cotangents[0]
    up = compute_dtype(v.dtype)
    if v.dtype is not dtype or needs[2]:
        v = v.to(up)
    d_grad = d_weight = None
    if needs[0]:
        reduction = NONE if ndim == target.dim() else SUM
        d_grad = _plain(v, target, weight, reduction, ignore_index, batch_ndim)[0].to(dtype)
    if needs[2]:
        form = form_of(target, classes, ignore_index, batch_ndim)
        d_weight = form.to_weight(g.to(up), v).sum_to_size(weight.shape).to(weight.dtype)
    return d_grad, None, d_weight, None, None, None, None


def _backward_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    g, target, weight, *rest, dtype = args
    t, _, t_weight = tangents[:3]
    if t_weight is None:
        return (backward(t, target, weight, *rest, dtype),)
    if t is None:
        return (backward(g, target, t_weight, *rest, dtype),)
    up = compute_dtype(dtype)
    both = backward(t, target, weight, *rest, up) + backward(g, target, t_weight, *rest, up)
    return (both.to(dtype),)


def _backward_vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    g, target, weight, classes, ignore_index, batch_ndim, dtype = args
    size = info.batch_size
    out = backward(
        batched(g, in_dims[0], size, compute_dtype(g.dtype)), batched(target, in_dims[1], size),
        batched_weight(weight, in_dims[2], size, batch_ndim), classes, ignore_index, batch_ndim + 1, dtype,
    )  # fmt: skip
    return out, 0


def _total_fake(weight: Tensor, target: Tensor, ignore_index: int, batch_ndim: int) -> Tensor:
    return weight.new_empty(target.shape[:batch_ndim], dtype=compute_dtype(weight.dtype))


def _total_save(args: dispatch.Args, outputs: dispatch.Args, needs: Needs) -> Any:
    weight, target, *settings = args
    return (target,), (weight.shape, weight.dtype, *settings)


def _total_backward(tensors: Any, extras: dispatch.Args, needs: Needs, cotangents: dispatch.Args) -> dispatch.Grads:
    (target,), (shape, dtype, ignore_index, batch_ndim) = tensors, extras
    form = form_of(target, shape[-1], ignore_index, batch_ndim)
    g = kernels.spread(cotangents[0], target).expand(target.shape)
    return form.at_targets(g).sum_to_size(shape).to(dtype), None, None, None


def _total_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    return (total_weight(tangents[0], *args[1:]),)


def _total_vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    weight, target, ignore_index, batch_ndim = args
    weight = batched_weight(weight, in_dims[0], info.batch_size, batch_ndim)
    return total_weight(weight, batched(target, in_dims[1], info.batch_size), ignore_index, batch_ndim + 1), 0


AUTOCAST = (("cpu", torch.float32), ("cuda", torch.float32))
"""As torch: losses autocast to float32 on both."""


def _define_forward(name: str, autocast: Any) -> Any:
    op: Any = None

    def vmap(*args: Any) -> tuple[Any, Any]:
        return _forward_vmap(op, bool(autocast), *args)

    op = dispatch.define(
        _library,
        f"{name}(Tensor input, Tensor target, Tensor? weight, int reduction, SymInt ignore_index, int batch_ndim)"
        " -> (Tensor, Tensor)",
        dispatch.Kernels(kernels.forward, kernels.forward, _forward_fake, autocast),
        vmap,
        dispatch.Derivatives(_forward_save, _forward_backward, _forward_jvp),
    )
    return op


forward = _define_forward("nll_loss", AUTOCAST)
_plain = forward_with_total_weight = _define_forward("nll_loss_forward", ())
backward = dispatch.define(
    _library,
    "nll_loss_backward(Tensor grad_output, Tensor target, Tensor? weight, SymInt classes, SymInt ignore_index,"
    " int batch_ndim, ScalarType dtype) -> Tensor",
    dispatch.Kernels(kernels.backward, kernels.backward, _backward_fake),
    _backward_vmap,
    dispatch.Derivatives(_backward_save, _backward_backward, _backward_jvp),
)
total_weight = dispatch.define(
    _library,
    "nll_loss_total_weight(Tensor weight, Tensor target, SymInt ignore_index, int batch_ndim) -> Tensor",
    dispatch.Kernels(kernels.total_weight, kernels.total_weight, _total_fake),
    _total_vmap,
    dispatch.Derivatives(_total_save, _total_backward, _total_jvp),
)
