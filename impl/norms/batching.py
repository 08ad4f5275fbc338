"""The vmap rules of the norms: a batch folds into what is independent already.

Rows are independent in layer norm, samples and groups in group norm, channels in batch norm. An operand without a batch
that must be repeated is taken to float32 first for the half types: the derivative of repeating is a sum over the batch,
which must add no half-precision contributions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..operator.batching import fold, in_front, out_dims, raised_for_sum, slice_shape, unfold
from ..operator.precision import compute_dtype
from ..operator.records import Record
from .layout import Rows

Batched = tuple[tuple[Tensor | None, ...], tuple[int | None, ...]]
"""Outputs and where the batch is in each."""


# ------------------------------------------------------------------------------------------------------ layer norm


def layer_norm(op: Any, size: int, dims: Record, args: Record) -> Batched:
    """Folds the batch into the leading dims; a batched affine map is applied to normalised rows, outside the kernel.

    It is applied in float32 for the half types and rounded once, as the kernel does.
    """
    x, weight, row_ndim = args.input, args.weight, args.row_ndim
    if dims.input is not None:
        x = x.movedim(dims.input, 0)
    # Rows are independent, so a batch dim in front is one more lead dim and the op takes it as it is.
    if dims.weight is None and dims.bias is None:
        return op(x, weight, args.bias, row_ndim, args.eps), (0, 0, 0)
    up, ndim = x.to(compute_dtype(x.dtype)), x.dim() + (dims.input is None)
    # The kernel takes one weight for all rows. One without a batch stays inside; the bias is added outside
    # in any case, because a batched weight must be multiplied in before it.
    inside = None
    if weight is not None and dims.weight is None:
        inside, weight = weight.to(up.dtype), None
    out, mean, rstd = op(up, inside, None, row_ndim, args.eps)
    for parameter, dim, apply in ((weight, dims.weight, torch.mul), (args.bias, dims.bias, torch.add)):
        if parameter is None:
            continue
        parameter = parameter.to(up.dtype)
        if dim is not None:
            parameter = Rows(row_ndim, 1).spread(parameter.movedim(dim, 0), ndim)
        out = apply(out, parameter)
    if dims.input is None:
        # Batched although equal: torch's vmap reads beyond the sizes of an unbatched output for out_dims=-1.
        mean, rstd = (t.expand(size, *t.shape) for t in (mean, rstd))
    return (out.to(x.dtype), mean, rstd), (0, 0, 0)


def layer_norm_backward(op: Any, size: int, dims: Record, args: Record) -> Batched:
    """One more batch dim in front: the op itself keeps one d_weight and d_bias per batch index."""
    dtype, weight = args.input.dtype, args.weight
    grad_out, x = raised_for_sum(args.grad_out, args.input, dims=(dims.grad_out, dims.input))
    if weight is not None:
        weight = weight_in_front(weight, dims.weight, args.row_ndim, args.batch_ndim)
    d_input, *sums = op(
        in_front(grad_out, dims.grad_out, size),
        in_front(args.grad_mean, dims.grad_mean, size),
        in_front(args.grad_rstd, dims.grad_rstd, size),
        in_front(x, dims.input, size),
        in_front(args.mean, dims.mean, size),
        in_front(args.rstd, dims.rstd, size),
        weight, args.bias_dtype, args.row_ndim, args.eps, args.batch_ndim + 1, args.output_mask,
    )  # fmt: skip
    outputs = (None if d_input is None else d_input.to(dtype), *sums)
    return outputs, out_dims(outputs)


def weight_in_front(weight: Tensor, dim: int | None, row_ndim: int, batch_ndim: int) -> Tensor:
    """The weight of a backward op of rows with this batch in front of the `batch_ndim` dims of the inner ones."""
    if dim is not None:
        weight = weight.movedim(dim, 0)
        if weight.dim() == row_ndim + 1:  # inner batch dims that it does not have
            weight = weight.reshape(weight.shape[0], *(1,) * batch_ndim, *weight.shape[1:])
    # The weight has dims for other levels of vmap but none for this one. A dim of size 1 broadcasts
    # over this batch.
    elif weight.dim() > row_ndim:
        weight = weight.unsqueeze(0)
    return weight


# ------------------------------------------------------------------------------------------------------ group norm


def group_norm(op: Any, size: int, dims: Record, args: Record) -> Batched:
    """Folds the batch into N, or, where a parameter is batched, into the channels and groups."""
    x, dtype = args.input, args.input.dtype
    n, channels = slice_shape(x, dims.input)[:2]
    # Samples are independent and share the parameters, so the batch can become more samples. Where a
    # parameter is batched it becomes more channels, and each slice has its own parameters and groups.
    if dims.weight is None and dims.bias is None:
        folded = op(fold(x, dims.input, size, 0), args.weight, args.bias, args.groups, args.eps)
        return tuple(unfold(t, 0, size, n) for t in folded), (0, 0, 0)
    up, shared = compute_dtype(dtype), dims.input is None

    def parameter(t: Tensor | None, dim: int | None) -> Tensor | None:
        # A parameter that is repeated is raised for the sum that the derivative of repeating is. Where x is
        # raised, the parameters follow it, for the op takes no half-precision ones beside float32.
        return None if t is None else fold(t.to(up) if shared or dim is None else t, dim, size, 0)

    out, mean, rstd = op(
        fold(x.to(up) if shared else x, dims.input, size, 1),
        parameter(args.weight, dims.weight),
        parameter(args.bias, dims.bias),
        size * args.groups,
        args.eps,
    )
    lengths = (channels, args.groups, args.groups)
    return tuple(unfold(t, 1, size, n) for t, n in zip((out.to(dtype), mean, rstd), lengths, strict=True)), (1, 1, 1)


def group_norm_backward(op: Any, size: int, dims: Record, args: Record) -> Batched:
    """Folds the batch into N for d_input alone, else into the channels, where each slice has sums of its own."""
    dtype, weight, mask = args.input.dtype, args.weight, args.output_mask
    weight_dtype = None if weight is None else weight.dtype
    grad_out, x = raised_for_sum(args.grad_out, args.input, dims=(dims.grad_out, dims.input))
    sums = (mask[1] and weight is not None) or (mask[2] and args.bias_dtype is not None)
    at = 1 if sums or dims.weight is not None else 0
    if at == 1 and weight is not None:
        weight = fold(weight.to(compute_dtype(dtype)) if dims.weight is None else weight, dims.weight, size, 0)
    d_input, d_weight, d_bias = op(
        fold(grad_out, dims.grad_out, size, at),
        fold(args.grad_mean, dims.grad_mean, size, at),
        fold(args.grad_rstd, dims.grad_rstd, size, at),
        fold(x, dims.input, size, at),
        fold(args.mean, dims.mean, size, at),
        fold(args.rstd, dims.rstd, size, at),
        weight, args.bias_dtype, size * args.groups if at == 1 else args.groups, args.eps, mask,
    )  # fmt: skip
    shape = slice_shape(args.input, dims.input)
    d_input = None if d_input is None else unfold(d_input.to(dtype), at, size, shape[at])
    d_weight = None if d_weight is None else unfold(d_weight.to(weight_dtype), 0, size, shape[1])
    outputs = (d_input, d_weight, unfold(d_bias, 0, size, shape[1]))
    return outputs, out_dims(outputs, (at, 0, 0))


# ------------------------------------------------------------------------------------------------------ batch norm


def _channels(t: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    """t (C,), folded to (size C,)."""
    return fold(t, dim, size, 0)


def _unfolded(grads: tuple[Tensor | None, ...], size: int, dims: Record, args: Record) -> Batched:
    """Outputs and out_dims of a backward rule from (d_input, d_weight, d_bias) of folded channels."""
    d_input, *sums = grads
    channels = slice_shape(args.input, dims.input)[1]
    if d_input is not None:
        d_input = d_input.unflatten(1, (size, channels)).to(args.input.dtype)
    outputs = (d_input, *(unfold(t, 0, size, channels) for t in sums))
    return outputs, out_dims(outputs, (1, 0, 0))


def batch_norm_training(op: Any, size: int, dims: Record, args: Record) -> Batched:
    """Folds the batch into the channels. Moments stay unbatched where the input is: running statistics without a batch
    are then updated once.

    The other outputs are batched although equal: torch's vmap misplaces an unbatched output for out_dims=-1.
    """
    x, dtype, up = args.input, args.input.dtype, compute_dtype(args.input.dtype)
    channels = slice_shape(x, dims.input)[1]
    (x,) = raised_for_sum(x, dims=(dims.input,))
    # The parameters of each slice become channels of their own. They are raised even where they are
    # batched, because x may have been raised and takes no half-precision parameters then.
    weight, bias = (
        None if t is None else _channels(t.to(up), dim, size)
        for t, dim in ((args.weight, dims.weight), (args.bias, dims.bias))
    )
    out, mean, rstd, moments = op(fold(x, dims.input, size, 1), weight, bias, args.eps)
    out = out.unflatten(1, (size, channels)).to(dtype)
    mean, rstd, moments = (t.unflatten(-1, (size, channels)) for t in (mean, rstd, moments))
    if dims.input is None:
        return (out, mean, rstd, moments[:, 0]), (1, 0, 0, None)
    return (out, mean, rstd, moments), (1, 0, 0, 1)


def batch_norm_backward(op: Any, size: int, dims: Record, args: Record) -> Batched:
    """Folds the batch into the channels."""
    dtype, weight = args.input.dtype, args.weight
    grad_out, x = raised_for_sum(args.grad_out, args.input, dims=(dims.grad_out, dims.input))
    grads = op(
        fold(grad_out, dims.grad_out, size, 1),
        _channels(args.grad_mean, dims.grad_mean, size),
        _channels(args.grad_rstd, dims.grad_rstd, size),
        fold(x, dims.input, size, 1),
        _channels(args.mean, dims.mean, size),
        _channels(args.rstd, dims.rstd, size),
        None if weight is None else _channels(weight.to(compute_dtype(dtype)), dims.weight, size),
        args.weight_dtype, args.bias_dtype, args.eps, args.output_mask,
    )  # fmt: skip
    return _unfolded(grads, size, dims, args)


def _raised_channels(args: Record, dims: Record, size: int) -> list[Tensor | None]:
    """Statistics and parameters of a norm by constant statistics in the dtype of its sums, folded."""
    up = compute_dtype(args.input.dtype)
    pairs = (
        (args.running_mean, dims.running_mean), (args.running_var, dims.running_var), (args.weight, dims.weight),
    )  # fmt: skip
    return [None if t is None else _channels(t.to(up), dim, size) for t, dim in pairs]


def batch_norm_evaluation(op: Any, size: int, dims: Record, args: Record) -> tuple[Tensor, int]:
    """Folds the batch into the channels."""
    dtype = args.input.dtype
    (x,) = raised_for_sum(args.input, dims=(dims.input,))
    mean, var, weight = _raised_channels(args, dims, size)
    bias = None if args.bias is None else _channels(args.bias.to(compute_dtype(dtype)), dims.bias, size)
    out = op(fold(x, dims.input, size, 1), weight, bias, mean, var, args.eps)
    return out.unflatten(1, (size, slice_shape(args.input, dims.input)[1])).to(dtype), 1


def batch_norm_evaluation_backward(op: Any, size: int, dims: Record, args: Record) -> Batched:
    """Folds the batch into the channels."""
    grad_out, x = raised_for_sum(args.grad_out, args.input, dims=(dims.grad_out, dims.input))
    grads = op(
        fold(grad_out, dims.grad_out, size, 1), fold(x, dims.input, size, 1), *_raised_channels(args, dims, size),
        args.weight_dtype, args.bias_dtype, args.eps, args.output_mask,
    )  # fmt: skip
    return _unfolded(grads, size, dims, args)
