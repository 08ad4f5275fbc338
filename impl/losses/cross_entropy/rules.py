"""Cross entropy as torch sees it: schemas, fake and vmap rules, derivatives.

With z = log-softmax(x), p = e^z and <t> the sum of t over the classes, the loss is l(z, w), the form of
losses_formulas, and

    dz = dx - <p dx>,   d_x = D - p <D> with D the adjoint of l in z,   dp = p dz.

The backward op computes p from x, as its derivatives do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...operator import positional as dispatch
from ...operator import sums
from ...operator.precision import compute_dtype
from ..nll_loss import rules as nll
from ..nll_loss.expressions import Form, masked_scores
from ..nll_loss.kernels_cpu import MEAN, NONE, SUM, class_dim
from . import kernels_cpu as kernels

_library = torch.library.Library("opassay", "FRAGMENT")


def _form(x: Tensor, target: Tensor, ignore_index: int, smoothing: float, batch_ndim: int) -> Form:
    classes = x.shape[class_dim(x.dim(), batch_ndim)]
    return nll.form_of(target, classes, ignore_index, batch_ndim, smoothing)


def _up(t: Tensor | None) -> Tensor | None:
    return None if t is None else t.to(compute_dtype(t.dtype))


def _centred(t: Tensor, p: Tensor, dim: int) -> Tensor:
    """t - <p t>: the derivative of log-softmax."""
    return t - sums.total(p * t, (dim,), keepdim=True)


def _forward_fake(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int, smoothing: float,
    batch_ndim: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    batch = x.shape[:batch_ndim]
    out = x.new_empty(target.shape if reduction == NONE else batch)
    return out, x.new_empty(batch, dtype=compute_dtype(x.dtype))


def _forward_save(args: dispatch.Args, outputs: dispatch.Args, needs: tuple[bool, ...]) -> Any:
    x, target, weight, reduction, *settings = args
    given = outputs[1] if reduction == MEAN else None
    return (x, target, weight, given), (reduction, *settings)


def _forward_backward(
    tensors: Any, extras: dispatch.Args, needs: tuple[bool, ...], cotangents: dispatch.Args
) -> dispatch.Grads:
    x, target, weight, given = tensors
    reduction, ignore_index, smoothing, batch_ndim = extras
    g, g_total = cotangents
    d_input = d_weight = None
    form = _form(x, target, ignore_index, smoothing, batch_ndim)
    if g is not None:
        g = nll.cotangent(form, g, weight, given, needs[2])
    dtype = x.dtype
    if needs[2]:  # read twice: contributions to its cotangent add in float32
        x = x.to(compute_dtype(dtype))
    if needs[0] and g is not None:
        d_input = backward(g, x, target, weight, ignore_index, smoothing, batch_ndim).to(dtype)
    if needs[2]:
        z = masked_scores(x, form)[1]
        d_weight = nll.weight_gradient(form, z, weight, reduction, g, g_total)
    return d_input, None, d_weight, None, None, None, None


def _forward_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    x, target, weight, reduction, ignore_index, smoothing, batch_ndim = args
    t, _, t_weight = tangents[:3]
    up = compute_dtype(x.dtype)
    form = _form(x, target, ignore_index, smoothing, batch_ndim)
    p, z = masked_scores(x.to(up), form)
    t_z = None if t is None else _centred(t.to(up), p, form.dim)
    weight, t_weight = (None if w is None else w.to(up) for w in (weight, t_weight))
    out, t_total = nll.moved(form, z, weight, t_z, t_weight, reduction)
    return out.to(x.dtype), t_total


def _forward_vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    x, target, weight, reduction, ignore_index, smoothing, batch_ndim = args
    size = info.batch_size
    out, total = forward(
        nll.batched(x, in_dims[0], size, compute_dtype(x.dtype)), nll.batched(target, in_dims[1], size),
        nll.batched_weight(weight, in_dims[2], size, batch_ndim), reduction, ignore_index, smoothing, batch_ndim + 1,
    )  # fmt: skip
    return (out.to(nll.output_dtype(x, True)), total), (0, 0)


def _backward_fake(grad_output: Tensor, x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape)


def _backward_save(args: dispatch.Args, outputs: dispatch.Args, needs: tuple[bool, ...]) -> Any:
    grad_output, x, target, weight, *settings = args
    g = grad_output if needs[1] or needs[3] else None
    return (g, x, target, weight), (*settings, grad_output.dtype, grad_output.dim())


def _backward_backward(
    tensors: Any, extras: dispatch.Args, needs: tuple[bool, ...], cotangents: dispatch.Args
) -> dispatch.Grads:
    """From <v, D - p <D>> = <u, D> with u = v - <p v>: u are scores of a loss, and x moves p alone: -<D> p u."""
    g, x, target, weight = tensors
    ignore_index, smoothing, batch_ndim, dtype, ndim = extras
    up = compute_dtype(x.dtype)
    form = _form(x, target, ignore_index, smoothing, batch_ndim)
    p = masked_scores(x.to(up), form)[0]
    u = _centred(cotangents[0].to(up), p, form.dim)
    d_grad = d_x = d_weight = None
    w = _up(weight)
    if needs[0]:
        d_grad = form.value(u, w, NONE if ndim == target.dim() else SUM).to(dtype)
    if needs[1]:
        total = sums.total(form.to_scores(g.to(up), w), (form.dim,), keepdim=True)
        d_x = -(total * p * u).to(x.dtype)
    if needs[3]:
        d_weight = form.to_weight(g.to(up), u).sum_to_size(weight.shape).to(weight.dtype)
    return d_grad, d_x, None, d_weight, None, None, None


def _backward_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    g, x, target, weight, ignore_index, smoothing, batch_ndim = args
    up = compute_dtype(x.dtype)
    t, t_x, _, t_weight = (None if v is None else v.to(up) for v in tangents[:4])
    form = _form(x, target, ignore_index, smoothing, batch_ndim)
    p = masked_scores(x.to(up), form)[0]
    g, w = g.to(up), _up(weight)
    d: Tensor | None = None
    for one, other in ((t, w), (g, t_weight)):
        if one is not None and (one is t or other is not None):
            part = form.to_scores(one, other)
            d = part if d is None else d + part
    out = None if d is None else d - p * sums.total(d, (form.dim,), keepdim=True)
    if t_x is not None:
        total = sums.total(form.to_scores(g, w), (form.dim,), keepdim=True)
        through = p * _centred(t_x, p, form.dim) * total
        out = -through if out is None else out - through
    return (None if out is None else out.to(x.dtype),)


def _backward_vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    g, x, target, weight, ignore_index, smoothing, batch_ndim = args
    size, up = info.batch_size, compute_dtype(x.dtype)
    out = backward(
        nll.batched(g, in_dims[0], size, up), nll.batched(x, in_dims[1], size, up),
        nll.batched(target, in_dims[2], size), nll.batched_weight(weight, in_dims[3], size, batch_ndim),
        ignore_index, smoothing, batch_ndim + 1,
    )  # fmt: skip
    return out.to(x.dtype), 0


forward = dispatch.define(
    _library,
    "cross_entropy(Tensor input, Tensor target, Tensor? weight, int reduction, SymInt ignore_index,"
    " float label_smoothing, int batch_ndim) -> (Tensor, Tensor)",
    dispatch.Kernels(kernels.forward, kernels.forward, _forward_fake, nll.AUTOCAST),
    _forward_vmap,
    dispatch.Derivatives(_forward_save, _forward_backward, _forward_jvp),
)
backward = dispatch.define(
    _library,
    "cross_entropy_backward(Tensor grad_output, Tensor input, Tensor target, Tensor? weight,"
    " SymInt ignore_index, float label_smoothing, int batch_ndim) -> Tensor",
    dispatch.Kernels(kernels.backward, kernels.backward, _backward_fake),
    _backward_vmap,
    dispatch.Derivatives(_backward_save, _backward_backward, _backward_jvp),
)
