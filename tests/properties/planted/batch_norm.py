"""Faults of batch norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opassay import Code
from opassay.impl import batch_norm, native_batch_norm, native_batch_norm_backward

from .fault import Fault

Tensor = torch.Tensor
Moments = Callable[[Tensor, tuple[int, ...]], tuple[Tensor, Tensor]]


def _dims(x: Tensor) -> tuple[int, ...]:
    return (0, *range(2, x.dim()))


def _along(t: Tensor, x: Tensor) -> Tensor:
    return t.reshape(-1, *(1,) * (x.dim() - 2))


def _two_pass(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    mean = x.mean(dims, keepdim=True)
    return mean, (x - mean).square().mean(dims, keepdim=True)


def _one_pass(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    mean = x.mean(dims, keepdim=True)
    return mean, x.square().mean(dims, keepdim=True) - mean.square()


def _composite(
    moments: Moments = _two_pass,
    unbiased: bool = True,
    keep: Callable[[float], float] = lambda momentum: momentum,
    outside: bool = False,
    updates_in_eval: bool = False,
    eval_by_batch: bool = False,
) -> Callable[..., Tensor]:
    """Batch norm in plain torch, with room for a fault."""

    def op(x: Tensor, rm: Any, rv: Any, w: Any, b: Any, training: bool, momentum: float, eps: float) -> Tensor:
        mean, var = moments(x, _dims(x))
        running = () if rm is None else (rm.clone(), rv.clone())
        if rm is not None and (training or updates_in_eval):
            n = x.numel() // x.shape[1]
            factor, m = (n / (n - 1) if unbiased and n > 1 else 1.0), keep(momentum)
            rm.mul_(1 - m).add_(mean.detach().mean((0, *range(2, x.dim()))), alpha=m)
            rv.mul_(1 - m).add_(var.detach().mean((0, *range(2, x.dim()))) * factor, alpha=m)
        if not training and not eval_by_batch:
            mean, var = (_along(t, x) for t in running)
        y = (x - mean) / (var.sqrt() + eps if outside else (var + eps).sqrt())
        y = y if w is None else y * _along(w, x)
        return y if b is None else y + _along(b, x)

    return op


def _per_sample(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    return _two_pass(x, dims[1:]) if len(dims) > 1 else _two_pass(x, dims)


def _linearised(x: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """First derivatives right: the variance is its own linearisation, so that its second derivative is lost."""
    mean, var = _two_pass(x, dims)
    n = x.numel() // x.shape[1]
    slope = (2 * (x - mean) / n).detach()
    return mean, var.detach() + ((x - x.detach()) * slope).sum(dims, keepdim=True)


_right: Callable[..., Tensor] = batch_norm


class _HalfSum(torch.autograd.Function):
    """Zeros whose gradient is d_weight, summed in the half type."""

    @staticmethod
    def forward(normalized: Tensor, w: Tensor) -> Tensor:
        return torch.zeros_like(normalized, dtype=w.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        normalized, w = ctx.saved_tensors
        d_w = torch.zeros_like(w)
        for column in (g * normalized).movedim(1, 0).reshape(w.shape[0], -1).unbind(1):
            d_w = (d_w + column).to(w.dtype)  # rounds to the half type at every step
        return None, d_w


def half_sums(x: Tensor, rm: Any, rv: Any, w: Any, b: Any, *rest: Any) -> Tensor:
    if w is None or w.dtype != x.dtype:
        return _right(x, rm, rv, w, b, *rest)
    mean, var = (None, None) if rm is None else (rm.float(), rv.float())
    training, momentum, eps = rest
    normalized = batch_norm(x.detach().float(), mean, var, None, None, training, momentum, eps)
    zeros: Tensor = _HalfSum.apply(normalized, w)  # type: ignore[no-untyped-call]
    return batch_norm(x, rm, rv, w.detach(), b, training, momentum, eps) + zeros


class _FoldedByChannel(torch.autograd.Function):
    """A weight whose batch is folded with the channels the wrong way round."""

    @staticmethod
    def forward(w: Tensor) -> Tensor:
        return w.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: Any, w: Tensor) -> Any:
        folded = w.movedim(in_dims[0], 0)
        return folded.reshape(folded.shape[::-1]).t().clone(), 0


def wrong_fold(x: Tensor, rm: Any, rv: Any, w: Any, b: Any, *rest: Any) -> Tensor:
    w = None if w is None else _FoldedByChannel.apply(w)  # type: ignore[no-untyped-call]
    return _right(x, rm, rv, w, b, *rest)


def never_refuses(x: Tensor, rm: Any, rv: Any, w: Any, b: Any, training: bool, momentum: float, eps: float) -> Tensor:
    try:
        return batch_norm(x, rm, rv, w, b, training, momentum, eps)
    except RuntimeError:
        return batch_norm(x, None, None, w, b, training, momentum, eps)


def hidden_write(x: Tensor, rm: Any, rv: Any, w: Any, b: Any, training: bool, momentum: float, eps: float) -> Tensor:
    operands = (rm, rv) if rm is None else (rm.clone(), rv.clone())
    out = _right(x, *operands, w, b, training, momentum, eps)
    for copy, new in zip((rm, rv), operands, strict=True):
        if copy is not None:
            copy.data.copy_(new)
    return out


def invstd_for_variance(*args: Any) -> Any:
    out, mean, invstd = native_batch_norm(*args)
    return out, mean, invstd * invstd


def always_trained(grad: Tensor, x: Tensor, w: Any, rm: Any, rv: Any, mean: Any, invstd: Any, *rest: Any) -> Any:
    training, eps, mask = rest
    if not training:
        mean, invstd = rm.clone(), (rv + eps).rsqrt()
    return native_batch_norm_backward(grad, x, w, rm, rv, mean, invstd, True, eps, mask)


def no_mean_of_the_gradient(
    grad: Tensor, x: Tensor, w: Any, rm: Any, rv: Any, mean: Any, invstd: Any, *rest: Any
) -> Any:
    training, eps, mask = rest
    d_x, *others = native_batch_norm_backward(grad, x, w, rm, rv, mean, invstd, training, eps, mask)
    if d_x is not None and training:
        g = grad if w is None else grad * _along(w, x)
        d_x = d_x + _along(invstd, x) * g.mean(_dims(x), keepdim=True)
    return d_x, *others


def saved_statistics_constant(
    grad: Tensor, x: Tensor, w: Any, rm: Any, rv: Any, mean: Any, invstd: Any, *rest: Any
) -> Any:
    """Right values; the derivatives hold the saved statistics constant."""
    training, eps, mask = rest
    if not training:
        return native_batch_norm_backward(grad, x, w, rm, rv, mean, invstd, training, eps, mask)
    xh = (x - _along(mean, x)) * _along(invstd, x)
    g = grad if w is None else grad * _along(w, x)
    bar = g.mean(_dims(x), keepdim=True)
    d_x = _along(invstd, x) * (g - bar - xh * (g * xh).mean(_dims(x), keepdim=True))
    grads = (d_x, (grad * xh).sum(_dims(x)), grad.sum(_dims(x)))
    return tuple(t if wanted else None for t, wanted in zip(grads, mask, strict=True))


FAULTS = (
    Fault("batch_norm", "variance in one pass", _composite(_one_pass), "FWD"),
    Fault("batch_norm", "running_var from the biased variance", _composite(unbiased=False), "FWD"),
    Fault("batch_norm", "momentum on the wrong side", _composite(keep=lambda m: 1 - m), "FWD"),
    Fault("batch_norm", "eps outside the root", _composite(outside=True), "FWD"),
    Fault("batch_norm", "statistics of every sample", _composite(_per_sample), "FWD"),
    Fault("batch_norm", "running statistics updated in eval", _composite(updates_in_eval=True), "FWD"),
    Fault("batch_norm", "eval by the batch's statistics", _composite(eval_by_batch=True), "FWD"),
    Fault("batch_norm", "variance linear in second order", _composite(_linearised), "ORD2"),
    Fault("batch_norm", "half accumulation of d_weight", half_sums, "VJP", "bfloat16"),
    Fault("batch_norm", "batch of the weight folded the wrong way", wrong_fold, "VMAP"),
    Fault("batch_norm", "no refusal under vmap", never_refuses, "VMAP", codes=(Code.NOT_RAISED,)),
    Fault("batch_norm", "running statistics without a new version", hidden_write, "PURE", codes=(Code.MUTATED,)),
    Fault("native_batch_norm", "1 / (var + eps) for save_invstd", invstd_for_variance, "FWD"),
    Fault("native_batch_norm_backward", "eval by the formula of training", always_trained, "FWD"),
    Fault("native_batch_norm_backward", "mean of the gradient missing", no_mean_of_the_gradient, "FWD"),
    Fault("native_batch_norm_backward", "saved statistics constant", saved_statistics_constant, "VJP"),
)
