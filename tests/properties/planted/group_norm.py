"""Faults of group norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from opassay.impl import group_norm, native_group_norm, native_group_norm_backward

from .fault import Fault

Tensor = torch.Tensor


def _rows(x: Tensor, groups: int) -> Tensor:
    return x.reshape(x.shape[0], groups, x.shape[1] // groups * math.prod(x.shape[2:]))


def _per_channel(t: Tensor, x: Tensor) -> Tensor:
    return t.reshape(-1, *(1,) * (x.dim() - 2))


def _affine(y: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
    y = y if w is None else y * _per_channel(w, y)
    return y if b is None else y + _per_channel(b, y)


def one_pass_variance(x: Tensor, groups: int, w: Any, b: Any, eps: float) -> Tensor:
    rows = _rows(x, groups)
    mean = rows.mean(-1, keepdim=True)
    variance = (rows.square().mean(-1, keepdim=True) - mean.square()).clamp(min=0)
    return _affine(((rows - mean) * (variance + eps).rsqrt()).reshape(x.shape), w, b)


def unbiased_variance(x: Tensor, groups: int, w: Any, b: Any, eps: float) -> Tensor:
    rows = _rows(x, groups)
    variance = rows.var(-1, keepdim=True, correction=1 if rows.shape[-1] > 1 else 0)
    return _affine(((rows - rows.mean(-1, keepdim=True)) / (variance + eps).sqrt()).reshape(x.shape), w, b)


def eps_outside_the_root(x: Tensor, groups: int, w: Any, b: Any, eps: float) -> Tensor:
    rows = _rows(x, groups)
    root = rows.var(-1, keepdim=True, correction=0).sqrt()
    return _affine(((rows - rows.mean(-1, keepdim=True)) / (root + eps)).reshape(x.shape), w, b)


def groups_interleaved(x: Tensor, groups: int, w: Any, b: Any, eps: float) -> Tensor:
    """Channel c in group c mod groups, as in a shuffled convolution."""
    channels = x.shape[1]
    shuffled = x.unflatten(1, (channels // groups, groups)).transpose(1, 2).flatten(1, 2)
    out = group_norm(shuffled, groups, None, None, eps)
    return _affine(out.unflatten(1, (groups, channels // groups)).transpose(1, 2).flatten(1, 2), w, b)


def statistics_over_the_batch(x: Tensor, groups: int, w: Any, b: Any, eps: float) -> Tensor:
    rows = _rows(x, groups)
    mean = rows.mean((0, 2), keepdim=True)
    variance = (rows - mean).square().mean((0, 2), keepdim=True)
    return _affine(((rows - mean) / (variance + eps).sqrt()).reshape(x.shape), w, b)


def half_accumulation(x: Tensor, groups: int, w: Any, b: Any, eps: float) -> Tensor:
    """Every step rounds to the input's dtype."""
    rows = _rows(x, groups)
    centred = rows - rows.mean(-1, keepdim=True)
    return _affine((centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()).reshape(x.shape), w, b).to(
        x.dtype
    )


def variance_detached(x: Tensor, groups: int, w: Any, b: Any, eps: float) -> Tensor:
    rows = _rows(x, groups)
    centred = rows - rows.mean(-1, keepdim=True)
    root = (centred.square().mean(-1, keepdim=True) + eps).sqrt().detach()
    return _affine((centred / root).reshape(x.shape), w, b)


def statistics_constant_in_second_order(x: Tensor, groups: int, w: Any, b: Any, eps: float) -> Tensor:
    """First derivatives right: rstd is its own linearisation, so that its second derivative is lost."""
    rows = _rows(x, groups)
    centred = rows - rows.mean(-1, keepdim=True)
    r = (1.0 / (centred.square().mean(-1, keepdim=True) + eps).sqrt()).detach()
    slope = (-(r**3) * centred / rows.shape[-1]).detach()
    linear = r + ((rows - rows.detach()) * slope).sum(-1, keepdim=True)
    return _affine((centred * linear).reshape(x.shape), w, b)


class _FoldedTheWrongWay(torch.autograd.Function):
    """group_norm whose vmap rule reads the folded batch back as if N had been in front."""

    @staticmethod
    def forward(x: Tensor, groups: int, eps: float) -> Tensor:
        return group_norm(x, groups, None, None, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, groups: int, eps: float) -> Any:
        out = group_norm(x.movedim(in_dims[0], 0).flatten(0, 1), groups, None, None, eps)
        return out.unflatten(0, (-1, info.batch_size)), 1


def wrong_fold_under_vmap(x: Tensor, groups: int, w: Any, b: Any, eps: float) -> Tensor:
    out: Tensor = _FoldedTheWrongWay.apply(x, groups, eps)  # type: ignore[no-untyped-call]
    return _affine(out, w, b)


def strides_ignored(x: Tensor, groups: int, w: Any, b: Any, eps: float) -> Tensor:
    """The parameters' memory read as if it were dense, as torch 2.13's own CPU kernel does."""
    dense = [None if t is None else torch.as_strided(t, t.shape, (1,)) for t in (w, b)]
    return group_norm(x, groups, dense[0], dense[1], eps)


def rstd_without_eps(x: Tensor, w: Any, b: Any, n: int, c: int, l: int, groups: int, eps: float) -> Any:  # noqa: E741
    out, mean, rstd = native_group_norm(x, w, b, n, c, l, groups, eps)
    return out, mean, (rstd.pow(-2) - eps).pow(-0.5)


def mean_of_nothing_is_zero(x: Tensor, w: Any, b: Any, n: int, c: int, l: int, groups: int, eps: float) -> Any:  # noqa: E741
    out, mean, rstd = native_group_norm(x, w, b, n, c, l, groups, eps)
    return out, mean if x.numel() else mean.nan_to_num(), rstd


def _backward(change: Callable[..., Any]) -> Callable[..., Any]:
    """The backward op with its gradients changed: `change(grads, grad_out, input, mean, rstd)`, operands per group."""

    def op(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Any, n: int, c: int, l: int, g: int, mask: Any) -> Any:  # noqa: E741
        grads = native_group_norm_backward(dy, x, mean, rstd, w, n, c, l, g, mask)
        return change(grads, dy.reshape(n, g, c // g, l), x.reshape(n, g, c // g, l), mean, rstd)

    return op


def _sum_over_groups(grads: Any, dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> Any:
    """d_weight summed over the groups too: one sum for every channel of a group."""
    if grads[1] is None:
        return grads
    product = dy * (x - mean[..., None, None]) * rstd[..., None, None]
    total = product.float().sum((0, 1, 3)) if x.dtype.itemsize == 2 else product.sum((0, 1, 3))
    return grads[0], total.repeat(x.shape[1]).to(grads[1].dtype), grads[2]


def _last_sample_left_out(grads: Any, dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor) -> Any:
    if grads[2] is None or dy.shape[0] < 2:
        return grads
    return (*grads[:2], dy[:-1].sum((0, 3)).flatten().to(grads[2].dtype))


FAULTS = (
    Fault("group_norm", "one-pass variance", one_pass_variance, "FWD"),
    Fault("group_norm", "unbiased variance", unbiased_variance, "FWD"),
    Fault("group_norm", "eps outside the root", eps_outside_the_root, "FWD"),
    Fault("group_norm", "groups interleaved", groups_interleaved, "FWD"),
    Fault("group_norm", "statistics over the batch", statistics_over_the_batch, "LAW"),
    Fault("group_norm", "half accumulation", half_accumulation, "FWD", "bfloat16"),
    Fault("group_norm", "variance detached in the gradient", variance_detached, "VJP"),
    Fault("group_norm", "statistics constant in second order", statistics_constant_in_second_order, "ORD2"),
    Fault("group_norm", "wrong fold under vmap", wrong_fold_under_vmap, "VMAP"),
    Fault("group_norm", "strides of the parameters ignored", strides_ignored, "LAYOUT"),
    Fault("native_group_norm", "mean of nothing is 0", mean_of_nothing_is_zero, "EMPTY"),
    Fault("native_group_norm", "rstd without eps", rstd_without_eps, "FWD", "float64"),
    Fault("native_group_norm_backward", "d_weight summed over groups", _backward(_sum_over_groups), "FWD"),
    Fault("native_group_norm_backward", "d_bias without a sample", _backward(_last_sample_left_out), "DATA"),
)
