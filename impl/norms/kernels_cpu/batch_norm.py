"""CPU kernels of batch norm: statistics from ATen's group norm where that is faster, float32 sums for the half types.

Memory formats: results are channels_last where the input is (and not contiguous besides), else contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...operator import sums
from ...operator.precision import HALF, compute_dtype
from ...operator.torch_private import without_wrapper
from ..layout import memory_format
from .operands import Gradients, find_out_of_range, per_channel, replace_out_of_range, scale_and_shift

_FEW = 8
"""The most elements per channel for which x is centred before it is scaled; ATen computes x a + (b - mean a)."""

_BLOCK = 1 << 17
"""Elements whose moments are taken at a time by a thread: a block and the result that comes with it stay in cache."""

_aten_out = without_wrapper(torch.ops.aten.native_batch_norm.out)
_aten_backward = without_wrapper(torch.ops.aten.native_batch_norm_backward.default)

Mask = tuple[bool, bool, bool]
Trained = tuple[Tensor, Tensor, Tensor, Tensor]
"""out, mean, invstd, and moments (2, C): mean and unbiased variance, for the running statistics."""


def _laid(t: Tensor, memory: torch.memory_format) -> Tensor:
    """t in a memory format: dense as (N, C, L), or channels_last with the strides that ATen writes."""
    if memory is torch.contiguous_format:
        t = t.contiguous()
        # An input (N, C) has no positions. The product over no dims is 1, so it becomes (N, C, 1).
        return t if t.dim() == 3 else t.view(t.shape[0], t.shape[1], t.shape[2:].numel())
    return t if memory_format(t) is memory else torch.empty_like(t, memory_format=memory).copy_(t)


def batch_norm_training(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Trained:
    """Normalises by the statistics of the batch."""
    dtype, channels = compute_dtype(x.dtype), x.shape[1]
    # The mean of nothing is 0 / 0, so all statistics of an empty batch are NaN.
    if x.numel() == 0:
        moments = torch.full((2, channels), torch.nan, dtype=dtype, device=x.device)
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        return out, moments[0].clone(), moments[1].clone(), moments
    memory = memory_format(x)
    weight, bias = _parameters(weight, bias, dtype=dtype)
    batch, length = x.shape[0], x.shape[2:].numel()
    # The error of x a + (b - mean a) grows with |mean| / std. Among a few elements a standard deviation
    # that is small beside the mean is a matter of chance, so they are centred first.
    if batch * length <= _FEW:
        return _training_few(x, weight, bias, eps)
    if torch.are_deterministic_algorithms_enabled() and (length == 1 or memory is not torch.contiguous_format):
        # ATen sums such inputs per thread; one long row per channel it does not.
        rows = x.movedim(1, 0).reshape(1, channels, batch * length).contiguous()
        out, *statistics = _training_rows(rows, weight, bias, eps)
        out = out.view(channels, batch, *x.shape[2:]).movedim(0, 1).contiguous(memory_format=memory)
    # With eps = 0 ATen takes 1 / sqrt(0) for 0, and a constant channel would come out as the bias where the
    # formula says NaN. The way by rows has no such case, at the price of a copy for channels_last.
    elif memory is torch.contiguous_format or eps == 0.0:
        out, *statistics = _training_rows(_laid(x, torch.contiguous_format), weight, bias, eps)
        out = out.view(x.shape)
    else:
        out, *statistics = _training_aten(x, weight, bias, eps)
    mean, invstd, moments = statistics
    # ATen forms weight * invstd before it meets x. Where that product leaves the range of the dtype
    # although (x - mean) invstd weight does not, the output is computed again in the formula's order.
    if weight is not None:
        out = replace_out_of_range(out, x, (weight, bias, mean, invstd), find_out_of_range(weight * invstd, weight))
    if out.dtype is not x.dtype or memory_format(out) is not memory:
        out = out.to(x.dtype).contiguous(memory_format=memory)
    return out, mean, invstd, moments


def _parameters(*parameters: Tensor | None, dtype: torch.dtype) -> list[Tensor | None]:
    """Parameters in the dtype of the sums and dense: ATen reads the memory of some whatever their strides say."""
    return [
        t if t is None or (t.dtype is dtype and t.is_contiguous()) else t.to(dtype).contiguous() for t in parameters
    ]


def _training_rows(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Trained:
    """x (N, C, L), contiguous: by blocks where these are faster, and with eps = 0, where ATen takes 1 / sqrt(0) for 0.

    Blocks are no faster than ATen's kernel for the half types, nor for short rows or small inputs.
    """
    if eps == 0.0 or (x.shape[2] >= 32 and x.numel() >= 1 << 16 and x.dtype not in HALF):
        return _training_blocks(x, weight, bias, eps)
    return _training_aten(x, weight, bias, eps)


def _training_few(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Trained:
    """The training forward for few elements per channel, in the formula's order of operations."""
    dims = (0, *range(2, x.dim()))
    mean = x.mean(dims, dtype=compute_dtype(x.dtype))
    centred = x - per_channel(mean, x)
    # For a half-precision x the mean is float32, and so is `centred`: its squares neither overflow float16,
    # which ends at 65504, nor are they rounded to it.
    total = (centred * centred).sum(dims)
    count = x.numel() // x.shape[1]
    invstd = (total / count).add_(eps).sqrt_().reciprocal_()
    # The running variance takes the unbiased variance. For one element per channel that is 0 / 0, NaN, as
    # in torch.
    moments = torch.stack((mean, total / (count - 1)))
    out = scale_and_shift(centred, weight, bias, invstd).to(x.dtype)
    return out.contiguous(memory_format=memory_format(x)), mean, invstd, moments


def _training_aten(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Trained:
    """ATen's kernel; with momentum 1 its running statistics are those of the batch."""
    # ATen writes (1 - momentum) running + momentum statistic. From zeros and with momentum 1 this is the
    # statistic itself, so the unbiased variance needs no pass of its own over x.
    moments = torch.zeros((2, x.shape[1]), dtype=compute_dtype(x.dtype), device=x.device)
    batch_mean, batch_var = moments.unbind()
    out, mean, invstd = torch.native_batch_norm(x, weight, bias, batch_mean, batch_var, True, 1.0, eps)
    return out, mean, invstd, moments


def _training_blocks(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Trained:
    """Moments of every row of x (N, C, L) from ATen's group norm, combined over N; two to three times as fast.

    Group norm is called with eps = 0, so that rstd^-2 is the variance whatever its size. Equal counts combine as
    var = mean(var_n + (mean_n - mean)^2). Source: T. F. Chan, G. H. Golub, R. J. LeVeque, Updating formulae and a
    pairwise algorithm for computing sample variances, COMPSTAT 1982.
    """
    batch, channels, length = x.shape
    out = torch.empty_like(x)  # before all small tensors, which would split the memory that the last result has freed
    means, variances = _row_moments(x.view(1, batch * channels, length))
    means, variances = means.view(batch, channels), variances.view(batch, channels)
    # rstd = 1 / sqrt(var) without eps, so its inverse square is the variance. A constant row has rstd =
    # inf, which gives its variance 0 back.
    variances.reciprocal_().square_()
    mean = sums.mean(means, (0,))
    if bool(torch.isnan(mean).any()):  # the mean of a row that holds an infinity is that infinity; ATen says NaN
        means = x.mean(2, dtype=means.dtype)
        mean = sums.mean(means, (0,))
    # The variance of the channel is the mean of the rows' variances plus the variance of the rows' means.
    # No term is negative, so nothing cancels, however large the mean is.
    deviations = means.sub_(mean)
    variance = sums.mean(variances.addcmul_(deviations, deviations), (0,))
    nothing = x.new_empty((2, 0), dtype=mean.dtype).unbind()
    # Without training ATen normalises by statistics that it is given, which are those of the batch here. It
    # does not read the momentum then.
    _aten_out(x, weight, bias, mean, variance, False, 0.0, eps, out=out, save_mean=nothing[0], save_invstd=nothing[1])
    count = batch * length
    moments = torch.stack((mean, variance * (count / (count - 1))))
    return out, mean, variance.add_(eps).sqrt_().reciprocal_(), moments


def _row_moments(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and rstd, without eps, of each row of (1, R, L)."""
    length, threads = rows.shape[2], torch.get_num_threads()
    half = rows.dtype in HALF
    # Group norm hands whole rows to its threads. So many rows make about _BLOCK elements per thread, and
    # never fewer rows than threads.
    step = max(threads, threads * _BLOCK // length)
    moments = []
    for block in rows.split(step, 1):
        size = block.shape[1]
        ones = zeros = None
        if half:  # ATen keeps its statistics in the parameters' dtype
            ones, zeros = rows.new_ones(size, dtype=torch.float32), rows.new_zeros(size, dtype=torch.float32)
        # With as many groups as channels every row is a group of its own. The normalised values are not
        # needed; [1:] is mean and rstd.
        moments.append(torch.native_group_norm(block, ones, zeros, 1, size, length, size, 0.0)[1:])
    means, scales = (torch.cat(parts, 1) for parts in zip(*moments, strict=True))
    return means, scales


def batch_norm_evaluation(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor, eps: float
) -> Tensor:
    """out from constant statistics, x a + (b - mean a) with a = weight / sqrt(var + eps).

    Args:
        x: (N, C, *).
        weight, bias: (C,), or None for ones and zeros.
        running_mean, running_var: (C,), constants.
        eps: added to the variance.
    """
    memory = memory_format(x)
    if x.numel() == 0:
        return torch.empty_like(x, memory_format=torch.contiguous_format)
    dtype = compute_dtype(x.dtype)
    weight, bias, mean, var = _parameters(weight, bias, running_mean, running_var, dtype=dtype)
    assert mean is not None
    assert var is not None
    out: Tensor = torch.native_batch_norm(_laid(x, memory), weight, bias, mean, var, False, 0.0, eps)[0]
    out = out.view(x.shape) if out.dim() == 3 else out
    if weight is not None:  # as in training
        invstd = (var + eps).sqrt_().reciprocal_()
        out = replace_out_of_range(out, x, (weight, bias, mean, invstd), find_out_of_range(weight * invstd, weight))
    return out if memory_format(out) is memory else out.contiguous(memory_format=memory)


class BatchBackward(NamedTuple):
    """The arguments of `batch_norm_backward`.

    Attributes:
        grad_out: shaped as x, in its dtype.
        grad_mean, grad_invstd: cotangents of mean and invstd, (C,); None for zero.
        x: (N, C, *).
        mean, invstd: (C,), of the batch.
        weight: (C,), or None for ones.
        weight_dtype, bias_dtype: of d_weight and d_bias, which are returned without parameters, too.
        eps: not read; the derivatives of this op need it.
        output_mask: which of the three to compute.
    """

    grad_out: Tensor
    grad_mean: Tensor | None
    grad_invstd: Tensor | None
    x: Tensor
    mean: Tensor
    invstd: Tensor
    weight: Tensor | None
    weight_dtype: torch.dtype
    bias_dtype: torch.dtype
    eps: float | None
    output_mask: Sequence[bool]


def batch_norm_backward(args: BatchBackward) -> Gradients:
    """(d_input, d_weight, d_bias) from the given batch statistics; None where masked."""
    return _masked_gradients(args, None)


def batch_norm_evaluation_backward(args: BatchBackward) -> Gradients:
    """(d_input, d_weight, d_bias) from constant mean and variance, `mean` and `invstd` of the record; None where
    masked.
    """
    return _masked_gradients(args, args.eps)


def by_constants(kernel: Callable[[BatchBackward], Gradients]) -> Callable[..., Gradients]:
    """A kernel as a function of the arguments of the op, which has no cotangents of constants."""
    return lambda grad_out, *rest: kernel(BatchBackward(grad_out, None, None, *rest))


Statistics = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
"""Mean and invstd of the batch with cotangents of both; or running mean and variance, where eps is given."""


def _masked_gradients(args: BatchBackward, eps: float | None) -> Gradients:
    """The backward of both kinds of statistics; lays out the operands. `eps`: of constant ones, see `Statistics`."""
    grad_out, x, weight, output_mask = args.grad_out, args.x, args.weight, args.output_mask
    mask = (output_mask[0], output_mask[1], output_mask[2])
    dtype, memory, channels = compute_dtype(x.dtype), memory_format(x), x.shape[1]
    d_input: Tensor | None
    if x.numel() == 0:
        # A sum over no elements is 0, in contrast to the statistics, which are NaN.
        d_input = torch.empty_like(x, memory_format=torch.contiguous_format) if mask[0] else None
        sums = [x.new_zeros(channels, dtype=dtype) if needed else None for needed in mask[1:]]
    else:
        weight, mean, scale = _parameters(weight, args.mean, args.invstd, dtype=dtype)
        assert mean is not None
        assert scale is not None
        inner = (mean, scale, args.grad_mean, args.grad_invstd)
        run = _backward_half if x.dtype in HALF else _backward_wide
        deterministic = torch.are_deterministic_algorithms_enabled()
        if deterministic and (x.shape[2:].numel() == 1 or memory is not torch.contiguous_format):
            # ATen sums such inputs per thread; one long row per channel it does not.
            rows = [t.movedim(1, 0).reshape(1, channels, -1).contiguous() for t in (grad_out, x)]
            d_input, *sums = run(rows[0], rows[1], weight, inner, eps, mask)
            if d_input is not None:
                d_input = d_input.view(channels, x.shape[0], *x.shape[2:]).movedim(0, 1)
        else:
            d_input, *sums = run(_laid(grad_out, memory), _laid(x, memory), weight, inner, eps, mask)
            d_input = d_input if d_input is None or d_input.dim() != 3 else d_input.view_as(x)
    d_weight, d_bias = sums
    return (
        None if d_input is None else d_input.contiguous(memory_format=memory),
        None if d_weight is None else d_weight.to(args.weight_dtype),
        None if d_bias is None else d_bias.to(args.bias_dtype),
    )


def _backward_wide(
    grad_out: Tensor, x: Tensor, weight: Tensor | None, statistics: Statistics, eps: float | None, mask: Mask
) -> Gradients:
    """ATen's kernel on float32 or float64.

    Args:
        grad_out, x, weight, statistics, eps: as in `_masked_gradients`, laid out. mask: which gradients to compute.
    """
    mean, scale, grad_mean, grad_invstd = statistics
    # eps comes only with constant statistics, where `scale` is the variance. With those of the batch
    # `scale` is 1 / sqrt(var + eps) already, and ATen needs no eps.
    if eps is not None:
        grads: Gradients = _aten_backward(grad_out, x, weight, mean, scale, None, None, False, eps, mask)
        return grads
    grads = _aten_backward(grad_out, x, weight, None, None, mean, scale, True, 0.0, mask)
    d_input, count = grads[0], x.numel() // x.shape[1]
    if d_input is not None and grad_invstd is not None:  # d invstd / dx = -invstd^2 xh / n
        # The cotangent goes in first. invstd^3 alone leaves the range of float32 where the standard
        # deviation exceeds about 4e12, and the product with the cotangent need not.
        slope = scale * (scale * (scale * grad_invstd / count))
        d_input.sub_((x - per_channel(mean, x)).mul_(per_channel(slope, x)))
    if d_input is not None and grad_mean is not None:
        d_input.add_(per_channel(grad_mean / count, x))
    return grads


def _backward_half(
    grad_out: Tensor, x: Tensor, weight: Tensor | None, statistics: Statistics, eps: float | None, mask: Mask
) -> Gradients:
    """ATen computes in float32 and rounds once, if its parameters are float32; what is added to that must be, too.

    Args:
        grad_out, ..., mask: as for `_backward_wide`.
    """
    if statistics[2] is None and statistics[3] is None:
        # Ones change no value. They are float32, as the statistics are, and so choose ATen's kernel with
        # float32 sums.
        weight = torch.ones_like(statistics[0]) if weight is None else weight
        return _backward_wide(grad_out, x, weight, statistics, eps, mask)
    d_input, *sums = _backward_wide(grad_out.float(), x.float(), weight, statistics, eps, mask)
    return None if d_input is None else d_input.to(x.dtype), sums[0], sums[1]
