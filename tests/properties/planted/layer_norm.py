"""Faults of layer norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opassay.impl import layer_norm

from .fault import Fault

Tensor = torch.Tensor
Shape = tuple[int, ...]


def _dims(shape: Shape) -> tuple[int, ...]:
    return tuple(range(-len(shape), 0))


def _affine(y: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
    y = y if w is None else y * w
    return y if b is None else y + b


def _moments(x: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    centred = x - x.mean(_dims(shape), keepdim=True)
    return centred, centred.square().mean(_dims(shape), keepdim=True)


def eps_off_by_one_percent(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    return layer_norm(x, shape, w, b, eps * 1.01)


def weight_off_by_a_millionth(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    return layer_norm(x, shape, None if w is None else w * (1 + 1e-6), b, eps)


def variance_over_n_minus_one(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    centred, variance = _moments(x, shape)
    n = max(int(torch.Size(shape).numel()), 2)
    return _affine(centred / (variance * (n / (n - 1)) + eps).sqrt(), w, b)


def eps_outside_the_root(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    centred, variance = _moments(x, shape)
    return _affine(centred / (variance.sqrt() + eps), w, b)


def mean_detached(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    centred = x - x.mean(_dims(shape), keepdim=True).detach()
    return _affine(centred / (centred.square().mean(_dims(shape), keepdim=True) + eps).sqrt(), w, b)


def nan_becomes_zero(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    return torch.nan_to_num(layer_norm(x, shape, w, b, eps), nan=0.0, posinf=torch.inf, neginf=-torch.inf)


class _Affine(torch.autograd.Function):
    """y w + b with hand-written gradients: the place for faults of d_weight and d_bias."""

    @staticmethod
    def forward(y: Tensor, w: Tensor, b: Tensor, fault: str) -> Tensor:
        return (y.float() * w.float() + b.float()).to(y.dtype) if y.dtype.itemsize == 2 else y * w + b

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.fault = inputs[3]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        y, w = ctx.saved_tensors
        rows = (-1, *w.shape)
        if ctx.fault == "bf16 sum":
            d_w = torch.zeros_like(w)
            for row in (g * y).reshape(rows):
                d_w = d_w + row  # rounds to the half type at every step
        else:
            d_w = (g.float() * y.float()).reshape(rows).sum(0).to(w.dtype)
        g_rows = g.reshape(rows)
        if ctx.fault == "neighbour" and g_rows.shape[0] > 1:
            g_rows = torch.cat([g_rows[:-1], g_rows[-2:-1]])
        return g * w, d_w, g_rows.sum(0, dtype=torch.float32).to(w.dtype), None


def _through(fault: str) -> Callable[..., Tensor]:
    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        if w is None or b is None or w.dtype != x.dtype:
            return layer_norm(x, shape, w, b, eps)
        applied: Tensor = _Affine.apply(layer_norm(x, shape, None, None, eps), w, b, fault)  # type: ignore[no-untyped-call]
        return applied

    return op


class _SwapUnderVmap(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor) -> Any:
        return x.movedim(in_dims[0], 0).flip(0), 0


def slices_swapped_under_vmap(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    out: Tensor = _SwapUnderVmap.apply(layer_norm(x, shape, w, b, eps))  # type: ignore[no-untyped-call]
    return out


def statistics_constant_in_second_order(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    """First derivatives right: rstd is its own linearisation, so that its second derivative is lost."""
    centred, variance = _moments(x, shape)
    r = (1.0 / (variance + eps).sqrt()).detach()
    slope = (-(r**3) * centred / torch.Size(shape).numel()).detach()
    linear = r + ((x - x.detach()) * slope).sum(_dims(shape), keepdim=True)
    return _affine(centred * linear, w, b)


FAULTS = (
    Fault("layer_norm", "eps 1.01e-5 for 1e-5", eps_off_by_one_percent, "FWD"),
    Fault("layer_norm", "weight x (1 + 1e-6)", weight_off_by_a_millionth, "FWD"),
    Fault("layer_norm", "variance over n - 1", variance_over_n_minus_one, "FWD"),
    Fault("layer_norm", "eps outside the root", eps_outside_the_root, "FWD"),
    Fault("layer_norm", "mean detached in the gradient", mean_detached, "VJP"),
    Fault("layer_norm", "batch slices swapped under vmap", slices_swapped_under_vmap, "VMAP"),
    Fault("layer_norm", "bf16 accumulation of d_weight", _through("bf16 sum"), "VJP", "bfloat16"),
    Fault("layer_norm", "d_bias from a neighbouring row", _through("neighbour"), "VJP"),
    Fault("layer_norm", "statistics constant in second order", statistics_constant_in_second_order, "ORD2"),
    Fault("layer_norm", "NaN turned into 0", nan_becomes_zero, "SPECIAL"),
)
