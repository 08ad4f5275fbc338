"""Batch norm with constant statistics: (x - mean) / sqrt(var + eps) * weight + bias is an affine map per channel.

Letters: r = 1/sqrt(var + eps), xh = (x - mean) r, w the weight, dy = grad_out, v and vw, vb the cotangents of the
backward op's outputs. The statistics take no gradient, as in torch. Sums and products are float32 for the half types,
and each result is rounded once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..operator import operator as dispatch
from ..operator.precision import compute_dtype
from . import batch_norm_cpu as cpu
from . import batch_norm_cuda as cuda
from .batch_norm_cpu import memory_format
from .batch_norm_ops import bias_gradient, fold_channels, fold_input, layout_of, masked_fake, rows_of, unfolded

Needs = tuple[bool, ...]

_library = torch.library.Library("opassay", "FRAGMENT")


def _up(t: Tensor | None, x: Tensor) -> Tensor | None:
    """t, of x's shape or (C,), in the dtype of the formulas and as `rows_of` x is."""
    if t is None:
        return None
    t = t.to(compute_dtype(t.dtype))
    return t.unsqueeze(-1).unsqueeze(-1) if t.dim() == 1 else rows_of(t)


def _scale(x: Tensor, mean: Tensor, var: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(xh, r)."""
    dtype = compute_dtype(x.dtype)
    r = (var.detach().to(dtype) + eps).sqrt().reciprocal()[:, None, None]
    return (rows_of(x).to(dtype) - mean.detach().to(dtype)[:, None, None]) * r, r


def _sum(terms: list[Tensor], like: Tensor) -> Tensor:
    """The terms, broadcast to `rows_of(like)`, added, rounded and shaped as `like`; contiguous."""
    rows = rows_of(like)
    total = torch.zeros(rows.shape, dtype=compute_dtype(like.dtype), device=like.device) if not terms else terms[0]
    for term in terms[1:]:
        total = total + term
    return total.expand(rows.shape).to(like.dtype).contiguous().reshape(like.shape)


def _collect(terms: list[Tensor], like: Tensor, dtype: torch.dtype) -> Tensor:
    """The terms added, summed per channel and rounded; zeros for no terms."""
    if not terms:
        return torch.zeros(like.shape[1], dtype=dtype, device=like.device)
    total = terms[0] if len(terms) == 1 else terms[0] + terms[1]
    return layout_of(like).collect(total.expand(rows_of(like).shape)).to(dtype)


# ---------------------------------------------------------------------------------------------- forward


def _forward_fake(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor, eps: float
) -> Tensor:
    return torch.empty_like(x, memory_format=memory_format(x))


def _forward_save(args: dispatch.Args, outputs: dispatch.Args, needs: Needs) -> Any:
    """Input for the weight's gradient, weight for the input's, and copies of the statistics: a later call in training
    mode writes to the originals."""
    x, weight, bias, mean, var, eps = args
    dtypes = tuple(x.dtype if t is None else t.dtype for t in (weight, bias))
    if not (needs[0] or needs[1]):
        return (), (*dtypes, eps)
    return (x, weight if needs[0] else None, mean.detach().clone(), var.detach().clone()), (*dtypes, eps)


def _forward_backward(tensors: Any, extras: dispatch.Args, needs: Needs, cotangents: dispatch.Args) -> dispatch.Grads:
    weight_dtype, bias_dtype, eps = extras
    if not tensors:
        return None, None, bias_gradient(cotangents[0], bias_dtype) if needs[2] else None, None, None, None
    x, weight, mean, var = tensors
    grads = backward(cotangents[0], x, mean, var, weight, weight_dtype, bias_dtype, eps, needs[:3])
    return *grads, None, None, None


def _forward_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    """tx r w + xh tw + tb."""
    x, weight, _, mean, var, eps = args
    tx, tw, tb = (_up(t, x) for t in tangents[:3])
    terms = []
    if tx is not None or tw is not None:
        xh, r = _scale(x, mean, var, eps)
        w = _up(weight, x)
        if tx is not None:
            terms.append(tx * (r if w is None else r * w))
        if tw is not None:
            terms.append(xh * tw)
    if tb is not None:
        terms.append(tb)
    return (_sum(terms, x),)


def _forward_vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    """Folds the batch into the channels."""
    x, *parameters, eps = args
    size, dtype, up = info.batch_size, x.dtype, compute_dtype(x.dtype)
    if in_dims[0] is None:
        x = x.to(up)  # the derivative of expanding is a sum
    folded = [
        None if t is None else fold_channels(t.to(up), dim, size)
        for t, dim in zip(parameters, in_dims[1:5], strict=True)
    ]
    x = fold_input(x, in_dims[0], size)
    return forward(x, *folded, eps).unflatten(1, (size, x.shape[1] // size)).to(dtype), 1


# ---------------------------------------------------------------------------------------------- backward


def _backward_fake(
    grad_out: Tensor,
    x: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor | None,
    weight_dtype: torch.dtype,
    bias_dtype: torch.dtype,
    eps: float,
    output_mask: list[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    return masked_fake(x, weight_dtype, bias_dtype, output_mask)


def _backward_save(args: dispatch.Args, outputs: dispatch.Args, needs: Needs) -> Any:
    """grad_out for the gradients of input and weight, input for d_weight's, weight for d_input's."""
    grad_out, x, mean, var, weight, *others = args
    extras = (others[2], x.shape, x.dtype)
    kept = (
        grad_out if needs[1] or needs[4] else None,
        x if outputs[1] is not None else None,
        mean.detach().clone(),
        var.detach().clone(),
        weight if outputs[0] is not None else None,
    )
    return (kept if outputs[0] is not None or outputs[1] is not None else ()), extras


def _backward_backward(tensors: Any, extras: dispatch.Args, needs: Needs, cotangents: dispatch.Args) -> dispatch.Grads:
    """d_dy = v r w + vw xh + vb, d_x = vw dy r, d_w = sum(v r dy)."""
    eps, shape, dtype = extras
    given = next(t for t in cotangents if t is not None)
    d_dy = d_x = d_w = None
    grad_out, x, mean, var, weight = tensors or (None,) * 5
    like = torch.zeros((), dtype=dtype, device=given.device).expand(shape)
    v, vw, vb = (_up(t, like) for t in cotangents)
    dy, w = _up(grad_out, like), _up(weight, like)
    terms = [] if vb is None else [vb]
    if mean is not None and var is not None and (v is not None or vw is not None):
        xh, r = _scale(like if x is None else x, mean, var, eps)
        if v is not None:
            terms.append(v * (r if w is None else r * w))
        if vw is not None:
            terms.append(vw * xh)
        if needs[1] and vw is not None and dy is not None:
            d_x = _sum([vw * dy * r], like)
        if needs[4] and v is not None and dy is not None and weight is not None:
            d_w = _collect([v * r * dy], like, weight.dtype)
    if needs[0]:
        d_dy = _sum(terms, like)
    return d_dy, d_x, None, None, d_w, None, None, None, None


def _backward_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    """(tdy w + dy tw) r, sum(tdy xh + dy tx r), sum(tdy)."""
    grad_out, x, mean, var, weight, weight_dtype, bias_dtype, eps, mask = args
    t_dy, t_x, t_w = (_up(tangents[i], x) for i in (0, 1, 4))
    xh, r = _scale(x, mean, var, eps)
    dy, w = _up(grad_out, x), _up(weight, x)
    assert dy is not None
    d_input = d_weight = d_bias = None
    if mask[0]:
        terms = [] if t_dy is None else [t_dy * (r if w is None else r * w)]
        d_input = _sum([*terms, dy * t_w * r] if t_w is not None else terms, x)
    if mask[1]:
        terms = [] if t_dy is None else [t_dy * xh]
        d_weight = _collect([*terms, dy * t_x * r] if t_x is not None else terms, x, weight_dtype)
    if mask[2]:
        d_bias = _collect([] if t_dy is None else [t_dy], x, bias_dtype)
    return d_input, d_weight, d_bias


def _backward_vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    """Folds the batch into the channels."""
    grad_out, x, *parameters = args[:5]
    size, dtype, up = info.batch_size, x.dtype, compute_dtype(x.dtype)
    if in_dims[0] is None or in_dims[1] is None:
        grad_out, x = grad_out.to(up), x.to(up)
    grad_out, x = fold_input(grad_out, in_dims[0], size), fold_input(x, in_dims[1], size)
    folded = [
        None if t is None else fold_channels(t.to(up), dim, size)
        for t, dim in zip(parameters, in_dims[2:5], strict=True)
    ]
    return unfolded(backward(grad_out, x, *folded, *args[5:]), size, x.shape[1] // size, dtype)


backward = dispatch.define(
    _library,
    "batch_norm_evaluation_backward(Tensor grad_out, Tensor input, Tensor running_mean, Tensor running_var,"
    " Tensor? weight, ScalarType weight_dtype, ScalarType bias_dtype, float eps, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)",
    dispatch.Kernels(cpu.evaluation_backward, cuda.evaluation_backward, _backward_fake),
    _backward_vmap,
    dispatch.Derivatives(_backward_save, _backward_backward, _backward_jvp),
)

forward = dispatch.define(
    _library,
    "batch_norm_evaluation(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var,"
    " float eps) -> Tensor",
    dispatch.Kernels(cpu.evaluation, cuda.evaluation, _forward_fake),
    _forward_vmap,
    dispatch.Derivatives(_forward_save, _forward_backward, _forward_jvp),
)
