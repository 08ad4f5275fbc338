"""Faults of the losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import log_softmax

from opassay import Code
from opassay.impl import cross_entropy, nll_loss, nll_loss_backward

from .fault import Fault

Tensor = torch.Tensor


def _axis(x: Tensor) -> int:
    return 0 if x.ndim == 1 else 1


def _pick(x: Tensor, index: Tensor) -> Tensor:
    axis = _axis(x)
    if not x.shape[axis]:
        return x.new_zeros(index.shape)
    return x.gather(axis, index.unsqueeze(axis)).squeeze(axis)


def _spread_weight(w: Tensor, x: Tensor) -> Tensor:
    return w.reshape(-1, *(1,) * (x.ndim - 1 - _axis(x)))


def _composite(x: Tensor, t: Tensor, w: Any, ignore: int, reduction: str, fault: str = "") -> Tensor:
    """The negative log likelihood in plain torch, with one fault."""
    t = t.long()
    ignored = t == ignore
    index = t.clamp(0, max(x.shape[_axis(x)] - 1, 0)) if fault == "clamped" else t.masked_fill(ignored, 0)
    wide = x.float() if x.dtype.itemsize == 2 and fault != "half sum" else x
    weights = torch.ones_like(index, dtype=wide.dtype) if w is None else w.to(wide.dtype)[index]
    if fault != "counted":
        weights = torch.where(ignored, 0.0, weights)
    loss = -_pick(wide, index) * weights
    if fault not in ("counted", "clamped"):
        loss = torch.where(ignored, 0.0, loss)
    if reduction == "none":
        return loss.to(x.dtype)
    if fault == "half sum":
        total = torch.zeros_like(loss.flatten()[:1].sum())
        for one in loss.flatten():
            total = total + one  # rounds to the half type at every step
    else:
        total = loss.sum()
    if reduction == "sum":
        return total.to(x.dtype)
    return (total / (loss.numel() if fault == "over N" else weights.sum())).to(x.dtype)


def _nll(fault: str) -> Callable[..., Tensor]:
    def op(x: Tensor, t: Tensor, w: Any, ignore: int, reduction: str) -> Tensor:
        return _composite(x, t, w, ignore, reduction, fault)

    return op


def _smoothed(sign: float, over: int) -> Callable[..., Tensor]:
    """Cross entropy in plain torch: the smoothing term times `sign`, over C - `over` classes."""

    def op(x: Tensor, t: Tensor, w: Any, ignore: int, reduction: str, s: float) -> Tensor:
        axis = _axis(x)
        z = log_softmax(x.float() if x.dtype.itemsize == 2 else x, axis)
        hit = _composite(z, t, w, ignore, reduction)
        smooth = -(z if w is None else z * _spread_weight(w.to(z.dtype), z)).sum(axis)
        smooth = torch.where(t.long() == ignore, 0.0, smooth)
        if reduction != "none":
            smooth = smooth.sum()
        if reduction == "mean":
            smooth = smooth / -_composite(torch.ones_like(z), t, w, ignore, "sum")
        return (hit * (1 - s) + sign * smooth * (s / max(x.shape[axis] - over, 1))).to(x.dtype)

    return op


class _UngatedRows(torch.autograd.Function):
    """Cross entropy whose gradient forgets that a row was ignored: p - onehot for it as well."""

    @staticmethod
    def forward(x: Tensor, out: Tensor) -> Tensor:
        return out.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.set_materialize_grads(True)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return torch.softmax(x, _axis(x)) * g.sum(), g


def gradient_of_ignored_rows(x: Tensor, t: Tensor, w: Any, ignore: int, reduction: str, s: float) -> Tensor:
    out = cross_entropy(x, t, w, ignore, reduction, s)
    if not bool((t.long() == ignore).any()):
        return out
    rows = torch.where((t.long() == ignore).unsqueeze(_axis(x)), x, x.detach())
    leaked: Tensor = _UngatedRows.apply(rows, out)  # type: ignore[no-untyped-call]
    return leaked


class _LastDimUnderVmap(torch.autograd.Function):
    """Weights the classes along the last dim, which is right until vmap puts a batch there."""

    @staticmethod
    def forward(loss: Tensor) -> Tensor:
        return loss.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: Any, loss: Tensor) -> Any:
        return loss.movedim(in_dims[0], 0).sum(0, keepdim=True).expand(info.batch_size, *loss.shape[1:]), 0


def reduced_over_the_batch_too(x: Tensor, t: Tensor, w: Any, ignore: int, reduction: str) -> Tensor:
    out = nll_loss(x, t, w, ignore, reduction)
    summed: Tensor = _LastDimUnderVmap.apply(out)  # type: ignore[no-untyped-call]
    return summed if reduction == "sum" else out


def accepts_any_target(x: Tensor, t: Tensor, w: Any, ignore: int, reduction: str) -> Tensor:
    classes = x.shape[_axis(x)]
    inside = torch.where(t.long() == ignore, ignore, t.long().clamp(0, max(classes - 1, 0)))
    return nll_loss(x, inside, w, ignore, reduction)


def mean_in_backward_over_n(
    g: Tensor, x: Tensor, t: Tensor, w: Any, reduction: int, ignore: int, total: Tensor
) -> Tensor:
    count = torch.full_like(total, max(t.numel(), 1))
    return nll_loss_backward(g, x, t, w, reduction, ignore, count)


def total_weight_detached(
    g: Tensor, x: Tensor, t: Tensor, w: Any, reduction: int, ignore: int, total: Tensor
) -> Tensor:
    return nll_loss_backward(g, x, t, w, reduction, ignore, total.detach())


FAULTS = (
    Fault("nll_loss", "mean over N", _nll("over N"), "FWD"),
    Fault("nll_loss", "an ignored target is counted", _nll("counted"), "LAW"),
    Fault("nll_loss", "ignore_index clamped to a class", _nll("clamped"), "SPECIAL"),
    Fault("nll_loss", "sum in half precision", _nll("half sum"), "FWD", "bfloat16"),
    Fault("nll_loss", "reduced over the batch of vmap", reduced_over_the_batch_too, "VMAP"),
    Fault("nll_loss", "any target accepted", accepts_any_target, "ERROR", codes=(Code.NOT_RAISED,)),
    Fault("nll_loss_backward", "gradient of the mean over N", mean_in_backward_over_n, "FWD"),
    Fault("nll_loss_backward", "total weight detached", total_weight_detached, "VJP"),
    Fault("cross_entropy", "sign of label smoothing", _smoothed(-1.0, 0), "FWD"),
    Fault("cross_entropy", "smoothing over C - 1 classes", _smoothed(1.0, 1), "FWD"),
    Fault("cross_entropy", "gradient of ignored rows not 0", gradient_of_ignored_rows, "VJP"),
)
