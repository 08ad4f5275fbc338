"""Batch normalisation with the statistics of all ranks' batches together.

What is hard here: each derivative of it is a collective call, which every rank has to make, with or without a use for
the result. The mean and the variance depend on the inputs of all ranks, so the gradient of one rank's input depends on
all ranks' cotangents. And `backward` is differentiated again: for that the mean and the variance are outputs of the
function, through which derivatives of higher order come back.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from ...function import Function
from ...function.static_types import Ctx, Leaf, Leaves
from ...norms import batch_norm as local
from ...norms import modules
from ...norms.running import update
from ...operator import sums
from ...operator.precision import compute_dtype
from .base import Comm
from .collective import all_reduce
from .process_group import default_comm


def sync_batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
    comm: Comm | None = None,
) -> Tensor:  # fmt: skip
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
    arguments = local.Arguments(input, weight, bias, running_mean, running_var, training, momentum, eps)
    if not training or comm is None or comm.size == 1:
        return local.normalize(arguments, "sync_batch_norm")
    local.check("sync_batch_norm", arguments)
    if eps <= 0.0:
        raise ValueError(f"sync_batch_norm: got eps={eps}, need a positive number with training.")
    # `backward` is a collective call. If only those ranks took part whose own input needs a gradient, they would wait
    # for the others for ever. A zero that needs a gradient puts the function into the graph of every rank, or of none
    # where gradients are off.
    anchor = torch.zeros((), dtype=torch.float64, device=input.device, requires_grad=torch.is_grad_enabled())
    # Half types are computed with in float32 from end to end, so that sums of derivatives are rounded once.
    wide = [t if t is None else t.to(compute_dtype(t.dtype)) for t in (input, weight, bias)]
    out, mean, var, count = Normalization.apply(*wide, anchor, eps, comm)
    # The count is on the device, and to read it makes the host wait. A rank that has two elements per channel or more
    # knows without it that all ranks together have more than one, and any number above 1 will do for the test below. If
    # the total is 1 or 0, every rank has at most that many, so all of them read it and all of them come to one
    # conclusion.
    elements = float(count) if input.numel() <= input.shape[1] else 2.0
    if elements == 1:
        raise ValueError(
            "sync_batch_norm: got one element per channel on all ranks, need more than 1 value per channel."
        )
    if running_mean is not None and elements:
        update(running_mean, running_var, mean, var * (count / (count - 1)), momentum)
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
    def forward(
        x: Tensor, weight: Tensor | None, bias: Tensor | None, anchor: Tensor, eps: float, comm: Comm
    ) -> tuple[Tensor, ...]:
        mean, var, total = _moments(x, comm)
        out = _deviation(x, mean) * _along_channels(_weight_over_std(var, weight, eps), x)
        return out if bias is None else out + _along_channels(bias, x), mean, var, total

    @staticmethod
    def setup_context(ctx: Ctx, inputs: Leaves, output: tuple[Tensor, ...]) -> None:
        x, weight, bias, _, ctx.eps, ctx.comm = inputs
        _, mean, var, total = output
        ctx.save_for_backward(x, weight, mean, var, total)
        ctx.save_for_forward(x, weight, mean, var, total)
        ctx.has_bias = bias is not None
        ctx.mark_non_differentiable(total)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Ctx, g: Tensor | None, g_mean: Tensor | None, g_var: Tensor | None, g_total: None
    ) -> tuple[Tensor | None, ...]:
        x, weight, mean, var, total = ctx.saved_tensors
        g = torch.zeros_like(x) if g is None else g
        scale, invstd = _weight_over_std(var, weight, ctx.eps), (var + ctx.eps).rsqrt()
        deviation = _deviation(x, mean)
        sums, products = _channel_sums(g), _channel_sums(g * deviation)
        # d_x = s (g − mean(g) − δ invstd² mean(g δ)) with the deviation δ and s = w invstd, as on one device; but the
        # means are over all ranks, and one call sends both sums. Cotangents of the mean and the variance come in higher
        # orders alone, and then on every rank, so that what is sent has one length everywhere.
        inner = [part for part in (g_mean, g_var) if part is not None]
        reduced = all_reduce(torch.cat([sums, products, *inner]), ctx.comm, "batch norm, vjp")
        of_sum, of_product, *of_inner = (reduced / total).reshape(2 + len(inner), x.shape[1])
        d_input = (g - _along_channels(of_sum, x)) - deviation * _along_channels(invstd.square() * of_product, x)
        d_input = d_input * _along_channels(scale, x)
        if inner:
            of_mean, of_var = (_along_channels(part, x) for part in of_inner)
            d_input = d_input + (of_mean + 2 * deviation * of_var)
        d_weight = None if weight is None else (invstd * products).to(x.dtype)
        return d_input, d_weight, sums.to(x.dtype) if ctx.has_bias else None, None, None, None

    @staticmethod
    def jvp(
        ctx: Ctx, t: Tensor | None, t_weight: Tensor | None, t_bias: Tensor | None, *rest: Leaf
    ) -> tuple[Tensor | None, ...]:
        x, weight, mean, var, total = ctx.saved_tensors
        t = torch.zeros_like(x) if t is None else t
        scale, invstd = _weight_over_std(var, weight, ctx.eps), (var + ctx.eps).rsqrt()
        deviation = _deviation(x, mean)
        # ẏ = s (ẋ − mean(ẋ)) + δ ṡ with ṡ = invstd ẇ − s invstd² v̇ / 2 and v̇ = 2 mean(δ ẋ), the means over all ranks.
        local_sums = torch.cat([_channel_sums(t), 2 * _channel_sums(t * deviation)])
        reduced = all_reduce(local_sums, ctx.comm, "batch norm, jvp")
        t_mean, t_var = (reduced / total).chunk(2)
        t_scale = -0.5 * scale * invstd.square() * t_var
        t_scale = t_scale if t_weight is None else t_scale + invstd * t_weight
        moved = (t - _along_channels(t_mean, x)) * _along_channels(scale, x) + deviation * _along_channels(t_scale, x)
        return moved if t_bias is None else moved + _along_channels(t_bias, x), t_mean, t_var, None


def _moments(x: Tensor, comm: Comm) -> tuple[Tensor, Tensor, Tensor]:
    """(mean, biased variance, count) per channel over all ranks.

    Sums of float64 numbers hold those of shorter ones with digits to spare, so one call does. Where x is float64 itself
    there are none to spare: squares are taken of deviations from the mean of all, which is a call more.
    """
    channels, count = x.shape[1], x.numel() // max(x.shape[1], 1)
    wide = x.to(torch.float64)
    mean = _channel_sums(wide) / max(count, 1)
    own = [count * mean, mean.new_full((1,), count)]
    if x.dtype == torch.float64:
        sums = all_reduce(torch.cat(own), comm, "batch norm, mean")
        total = sums[-1]
        mean = sums[:-1] / total
        squares = all_reduce(_channel_sums((wide - _along_channels(mean, wide)).square()), comm, "batch norm, variance")
        return mean, squares / total, total
    squares = _channel_sums((wide - _along_channels(mean, wide)).square()) + count * mean.square()
    sums = all_reduce(torch.cat([*own, squares]), comm, "batch norm")
    total = sums[channels]
    mean = sums[:channels] / total
    return mean, (sums[channels + 1 :] / total - mean.square()).clamp(min=0), total


def _deviation(x: Tensor, mean: Tensor) -> Tensor:
    """(x − hi) − lo: hi + lo is the mean to twice the digits of the input's dtype."""
    high = mean.to(x.dtype)
    return (x - _along_channels(high, x)) - _along_channels(mean - high, x)


def _weight_over_std(var: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """weight / sqrt(var + eps), float64."""
    invstd = (var + eps).rsqrt()
    return invstd if weight is None else invstd * weight


def _channel_sums(x: Tensor) -> Tensor:
    """The sum of each channel, (C,), float64."""
    return sums.total(x, [0, *range(2, x.dim())], dtype=torch.float64)


def _along_channels(channels: Tensor, x: Tensor) -> Tensor:
    """`channels`, (C,), in the dtype of x and viewed to broadcast to x."""
    return channels.to(x.dtype).reshape(1, -1, *(1,) * (x.dim() - 2))


class SyncBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    """Batch norm over all ranks, as `sync_batch_norm`; parameters, buffers and state_dict of torch.nn.SyncBatchNorm.

    Args:
        num_features, eps, momentum, affine, track_running_stats, device, dtype: as torch.nn.SyncBatchNorm.
        process_group: of torch.distributed; by default that of all processes, or none where there are no others.
        comm: a `Comm` instead of a process group.
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, process_group: Any = None, device: Any = None, dtype: Any = None,
        *, comm: Comm | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self.process_group, self.comm = process_group, comm

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm: got input of shape={list(input.shape)}, need at least 2 dims.")

    def forward(self, input: Tensor) -> Tensor:
        """This rank's part of the normalised batch, as `sync_batch_norm`."""
        # Looked up anew: a process group in the module could be neither copied nor pickled.
        comm = default_comm(self.process_group) if self.comm is None else self.comm
        return modules.normalize(self, input, functools.partial(sync_batch_norm, comm=comm))


def convert_sync_batchnorm(
    module: torch.nn.Module, process_group: Any = None, *, comm: Comm | None = None
) -> torch.nn.Module:
    """The module with every batch norm layer in it, of torch or ours, replaced by a `SyncBatchNorm`, in place.

    Parameters and buffers are the very tensors of the layers that are replaced. A module that is a batch norm layer
    itself is not changed; the new layer is returned.
    """
    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
        new = SyncBatchNorm(
            module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group,
            comm=comm,
        )  # fmt: skip
        # The very tensors, and no copies: an optimizer may have been given them before.
        new.weight, new.bias = module.weight, module.bias
        new.running_mean, new.running_var = module.running_mean, module.running_var
        new.num_batches_tracked = module.num_batches_tracked
        new.train(module.training)
        return new
    for name, child in module.named_children():
        module.add_module(name, convert_sync_batchnorm(child, process_group, comm=comm))
    return module
