"""Batch normalisation with the statistics of all ranks' batches together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import sums
from ...function import Function
from ...normalization import batch_norm as local
from ...normalization.batch_norm_update import update
from ...precision import compute_dtype
from .base import Comm
from .collective import all_reduce
from .process_group import default_comm


def sync_batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    comm: Comm | None = None,
) -> Tensor:
    """`batch_norm` of the batches of all ranks, concatenated; every rank gets its part.

    One all_reduce of 2C + 1 float64 numbers forward (two, of C + 1 and C, of a float64 input), one of 2C backward, and
    one of 2C in forward mode, whatever the number of ranks.
    Every rank takes part in both, whether or not its own input needs a gradient, and with a batch of no elements.
    Gradients of weight and bias are those of this rank's loss, as in torch: averaging them is the trainer's affair.

    Args:
        input: (N, C, ...), N may differ between ranks and be zero; the other arguments as in `batch_norm`.
        comm: this rank's end of the group; by default that of torch.distributed's default group, where there is one.
            Without training, or with one rank, nothing is sent.

    Returns:
        As `batch_norm`. The variance of a float32 or half input is taken from float64 sums of squares: where the mean
        is 2^k standard deviations, 53 − 2k of its bits are right.

    Raises:
        As `batch_norm`; ValueError on every rank where all ranks together have one element per channel.
        CommError: the ranks do not make the same calls.

    Source: S. Ioffe, C. Szegedy, Batch Normalization, arXiv:1502.03167, algorithm 1; sums of squares from a two-pass
    variance: T. Chan, G. Golub, R. LeVeque, Am. Stat. 37, 1983.
    """
    comm = default_comm() if comm is None and training else comm
    if not training or comm is None or comm.size == 1:
        return local.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not local.fits(input, weight, bias, running_mean, running_var, training, momentum, eps):
        local.check("sync_batch_norm", input, weight, bias, running_mean, running_var, training, momentum, eps)
    if eps <= 0.0:
        raise ValueError(f"sync_batch_norm: got eps={eps}, need a positive number with training.")
    # In the graph of every rank or of none: what a rank's own input needs must not decide who takes part in backward.
    anchor = torch.zeros((), dtype=torch.float64, device=input.device, requires_grad=torch.is_grad_enabled())
    # Half types are computed with in float32 from end to end, so that sums of derivatives are rounded once.
    wide = [t if t is None else t.to(compute_dtype(t.dtype)) for t in (input, weight, bias)]
    out, mean, var, count = Normalization.apply(*wide, anchor, eps, comm)
    # Only where every rank has at most one element can all together have one, or none: no other rank asks the device.
    elements = float(count) if input.numel() <= input.shape[1] else 2.0
    if elements == 1:
        raise ValueError(
            "sync_batch_norm: got one element per channel on all ranks, need more than 1 value per channel."
        )
    if running_mean is not None and elements:
        update(running_mean, running_var, mean.detach(), (var * (count / (count - 1))).detach(), momentum)
    part: Tensor = out.to(input.dtype)
    return part


class Normalization(Function):
    """(out, mean, biased variance, count) of the batches of all ranks; all but out are float64, (C,) and ().

    Input (N, C, ...), weight and bias (C,) are float32 or float64, all alike.
    `anchor` is a zero in the graph. The mean and the variance are differentiable outputs, for `backward` is a function
    of them, and it is differentiated again.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Any, bias: Any, anchor: Tensor, eps: float, comm: Comm) -> tuple[Tensor, ...]:
        mean, var, total = _moments(x, comm)
        out = _deviation(x, mean) * _along(_scale(var, weight, eps), x)
        return out if bias is None else out + _along(bias, x), mean, var, total

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, bias, _, ctx.eps, ctx.comm = inputs
        _, mean, var, total = output
        ctx.save_for_backward(x, weight, mean, var, total)
        ctx.save_for_forward(x, weight, mean, var, total)
        ctx.has_bias = bias is not None
        ctx.mark_non_differentiable(total)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, g: Any, g_mean: Any, g_var: Any, g_total: Any) -> Any:
        x, weight, mean, var, total = ctx.saved_tensors
        g = torch.zeros_like(x) if g is None else g
        scale, invstd, deviation = _scale(var, weight, ctx.eps), (var + ctx.eps).rsqrt(), _deviation(x, mean)
        sums, products = _sum(g), _sum(g * deviation)
        # Cotangents of the mean and the variance come in higher orders alone, and then on every rank.
        higher = g_mean is not None or g_var is not None
        inner = [torch.zeros_like(mean) if part is None else part for part in (g_mean, g_var)] if higher else []
        reduced = all_reduce(torch.cat([sums, products, *inner]), ctx.comm, "batch norm, vjp")
        of_sum, of_product, *of_inner = (part / total for part in reduced.split(x.shape[1]))
        d_input = (g - _along(of_sum, x)) - deviation * _along(invstd.square() * of_product, x)
        d_input = d_input * _along(scale, x)
        if higher:
            of_mean, of_var = (_along(part, x) for part in of_inner)
            d_input = d_input + (of_mean + 2 * deviation * of_var)
        d_weight = None if weight is None else (invstd * products).to(x.dtype)
        return d_input, d_weight, sums.to(x.dtype) if ctx.has_bias else None, None, None, None

    @staticmethod
    def jvp(ctx: Any, t: Any, t_weight: Any, t_bias: Any, *rest: Any) -> Any:
        x, weight, mean, var, total = ctx.saved_tensors
        t = torch.zeros_like(x) if t is None else t
        scale, invstd, deviation = _scale(var, weight, ctx.eps), (var + ctx.eps).rsqrt(), _deviation(x, mean)
        local_sums = torch.cat([_sum(t), 2 * _sum(t * deviation)])
        reduced = all_reduce(local_sums, ctx.comm, "batch norm, jvp")
        t_mean, t_var = (reduced / total).chunk(2)
        t_scale = -0.5 * scale * invstd.square() * t_var
        t_scale = t_scale if t_weight is None else t_scale + invstd * t_weight
        moved = (t - _along(t_mean, x)) * _along(scale, x) + deviation * _along(t_scale, x)
        return moved if t_bias is None else moved + _along(t_bias, x), t_mean, t_var, None


def _moments(x: Tensor, comm: Comm) -> tuple[Tensor, Tensor, Tensor]:
    """(mean, biased variance, count) per channel over all ranks.

    Sums of float64 numbers hold those of shorter ones with digits to spare, so one call does. Where x is float64 itself
    there are none to spare: squares are taken of deviations from the mean of all, which is a call more.
    """
    channels, count = x.shape[1], x.numel() // max(x.shape[1], 1)
    wide = x.to(torch.float64)
    mean = _sum(wide) / max(count, 1)
    own = [count * mean, mean.new_full((1,), count)]
    if x.dtype == torch.float64:
        sums = all_reduce(torch.cat(own), comm, "batch norm, mean")
        total = sums[-1]
        mean = sums[:-1] / total
        squares = all_reduce(_sum((wide - _along(mean, wide)).square()), comm, "batch norm, variance")
        return mean, squares / total, total
    squares = _sum((wide - _along(mean, wide)).square()) + count * mean.square()
    sums = all_reduce(torch.cat([*own, squares]), comm, "batch norm")
    total = sums[channels]
    mean = sums[:channels] / total
    return mean, (sums[channels + 1 :] / total - mean.square()).clamp(min=0), total


def _deviation(x: Tensor, mean: Tensor) -> Tensor:
    """(x − hi) − lo: hi + lo is the mean to twice the digits of the input's dtype."""
    high = mean.to(x.dtype)
    return (x - _along(high, x)) - _along(mean - high, x)


def _scale(var: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """weight / sqrt(var + eps), float64."""
    invstd = (var + eps).rsqrt()
    return invstd if weight is None else invstd * weight


def _sum(x: Tensor) -> Tensor:
    """Per channel, float64."""
    return sums.total(x, [0, *range(2, x.dim())], dtype=torch.float64)


def _along(channels: Tensor, x: Tensor) -> Tensor:
    """(C,) in the dtype of x, as it broadcasts to x."""
    return channels.to(x.dtype).reshape(1, -1, *(1,) * (x.dim() - 2))
