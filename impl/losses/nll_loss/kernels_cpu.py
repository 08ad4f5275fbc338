"""Kernels of the negative log likelihood: ATen where it is accurate, float32 accumulation for the half types.

An input is (*batch, C) or (*batch, N, C, d1, ..., dk), its target the same without C; `batch_ndim` counts the batch
dims. Each batch index is a loss of its own. A weight is (*batch, C), in the dtype of sums: float32 for the half types.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ...operator.precision import HALF, compute_dtype
from ...operator.torch_private import without_wrapper

NONE, MEAN, SUM = 0, 1, 2
"""Reductions, as ATen numbers them."""

_BLOCK = 1024
"""Terms that `ordered_sum` adds at a time."""

_aten_rows = without_wrapper(torch.ops.aten.nll_loss_forward.default)
_aten_grid = without_wrapper(torch.ops.aten.nll_loss2d_forward.default)
_aten_rows_backward: Callable[..., Tensor] = without_wrapper(torch.ops.aten.nll_loss_backward.default)


class Loss(NamedTuple):
    """The arguments of a loss.

    Attributes:
        x: scores, (*batch, C) or (*batch, N, C, d1, ..., dk).
        target: int64 or uint8 classes, shaped as x without C.
        weight: (*batch, C), in the dtype of sums; None for ones.
        reduction: NONE, MEAN or SUM.
        ignore_index: the target whose positions count for nothing.
        batch_ndim: the number of batch dims.
    """

    x: Tensor
    target: Tensor
    weight: Tensor | None
    reduction: int
    ignore_index: int
    batch_ndim: int


class LossBackward(NamedTuple):
    """The arguments of the backward op.

    Attributes:
        grad_output: (*batch), or of the target's shape; for a mean divided by the total weight already.
        target, weight, ignore_index, batch_ndim: as of a `Loss`.
        classes: C.
        dtype: of the result.
    """

    grad_output: Tensor
    target: Tensor
    weight: Tensor | None
    classes: int
    ignore_index: int
    batch_ndim: int
    dtype: torch.dtype


def class_dim(ndim: int, batch_ndim: int) -> int:
    """The dim of the classes in an input of `ndim` dims."""
    return batch_ndim if ndim == batch_ndim + 1 else batch_ndim + 1


def aten_name(direction: str, positions: int) -> str:
    """The name, for messages, of torch's op for targets of `positions` dims, without batch dims."""
    return f"nll_loss{'2d' * (positions == 3)}_{direction}"


def nll_loss(args: Loss, op: str = "nll_loss") -> tuple[Tensor, Tensor]:
    """(output, total_weight); total_weight in float32 for the half types, and 0 without a reduction.

    Args:
        args: the arguments. op: the name that messages speak of.

    Raises:
        IndexError: a target is neither a class nor ignore_index.
    """
    x, target, weight, reduction, ignore_index, batch_ndim = args
    # ATen's kernel takes no batch dims, and would not sum the half types in float32 and round them once.
    if batch_ndim == 0 and x.is_cpu and x.dtype not in HALF:
        return _forward_aten(args, op)
    dim = class_dim(x.dim(), batch_ndim)
    index, ignored = check_index(op, target, x.shape[dim], ignore_index)
    up = compute_dtype(x.dtype)
    # One element per position is picked before anything is widened, so no float32 copy of the whole input
    # is made.
    loss = pick(x, index, dim).to(up).neg_()
    weights = None if weight is None else weights_at(weight, index, batch_ndim)
    if weights is not None:
        loss.mul_(weights)
    if ignored is not None:  # after the product: what an ignored position holds may not be finite
        loss.masked_fill_(ignored, 0.0)
    out, total_weight = reduce_losses(loss, weights, ignored, reduction, batch_ndim)
    return out.to(x.dtype), total_weight


def _forward_aten(args: Loss, op: str) -> tuple[Tensor, Tensor]:
    """ATen's kernel, which checks every target as it reads it; without batch dims. `op` is for messages."""
    x, target, weight, reduction, ignore_index, _ = args
    try:
        if x.dim() <= 2:
            out, total_weight = _aten_rows(x, target, weight, reduction, ignore_index)
            if reduction == NONE:
                total_weight.zero_()  # of a single row, ATen gives its weight
            return out, total_weight
        shape, (rows, classes) = target.shape, x.shape[:2]
        if x.dim() != 4:
            length = math.prod(x.shape[2:])
            # ATen's kernel takes two dims of positions. Any number of them goes into one, with a second of
            # size 1 beside it.
            x, target = x.reshape(rows, classes, length, 1), target.reshape(rows, length, 1)
        out, total_weight = _aten_grid(x, target.long(), weight, reduction, ignore_index)
        return (out.reshape(shape) if reduction == NONE else out), total_weight
    except IndexError:
        # ATen's message names a target and no rule, so the error of all other ways through this module is raised.
        raise out_of_range(op, target, x.shape[class_dim(x.dim(), 0)], ignore_index) from None


def nll_loss_backward(args: LossBackward) -> Tensor:
    """-grad_output * weight at the targets, else zero, in `dtype`; grad_output is (*batch) or of the target's shape.

    Raises:
        IndexError: a target is neither a class nor ignore_index.
    """
    grad_output, target, weight, classes, ignore_index, batch_ndim, dtype = args
    if (
        batch_ndim == 0
        and grad_output.is_cpu
        and grad_output.dtype is dtype
        and dtype not in HALF
        and target.dim() <= 1
    ):
        return _backward_aten(grad_output, target, weight, classes, ignore_index)
    op = aten_name("backward", target.dim() - batch_ndim)
    index, ignored = check_index(op, target, classes, ignore_index)
    dim = class_dim(target.dim() + 1, batch_ndim)
    out = torch.zeros((*target.shape[:dim], classes, *target.shape[dim:]), dtype=dtype, device=target.device)
    if not out.numel():
        return out
    # Every target gets the same number, for which scatter_ needs no tensor of values.
    if ignored is None and weight is None and not grad_output.dim() and out.is_cpu and dtype not in HALF:
        return out.scatter_(dim, index.unsqueeze(dim), -grad_output.item())
    value = spread(grad_output.to(compute_dtype(dtype)), index).neg()
    if weight is not None:
        value = value * weights_at(weight, index, batch_ndim)
    if ignored is not None:
        # Filled, not multiplied by 0: after a mean over a total weight of 0 the cotangent is not finite,
        # and the gradient of an ignored position is 0 even then.
        value = value.expand(index.shape).masked_fill(ignored, 0.0)
    placed = value.to(dtype).expand(index.shape).unsqueeze(dim)
    # Bits are moved: ATen's scatter takes a half tensor to float32 and back, a hundred times as long.
    bits = torch.int16 if dtype in HALF else dtype
    out.view(bits).scatter_(dim, index.unsqueeze(dim), placed.contiguous().view(bits))
    return out


def _backward_aten(
    grad_output: Tensor, target: Tensor, weight: Tensor | None, classes: int, ignore_index: int
) -> Tensor:
    """ATen's kernel for rows. It checks targets where it reduces; else it writes wherever a target points.

    Args:
        grad_output, target, weight, classes, ignore_index: as for `nll_loss_backward`; target of no dims or one.
    """
    like = grad_output.new_empty(()).expand(*target.shape, classes)  # ATen reads its shape
    one = grad_output.new_ones(())
    if target.dim() and grad_output.dim():
        # With reduction none ATen writes at every target unseen. One out of range would write outside the
        # output, so all are checked before.
        check_index("nll_loss_backward", target, classes, ignore_index)
        return _aten_rows_backward(grad_output, like, target, weight, NONE, ignore_index, one)
    # With a reduction ATen checks targets itself. SUM serves for a mean, too, whose cotangent comes divided
    # by the total weight already.
    try:
        return _aten_rows_backward(grad_output, like, target, weight, SUM, ignore_index, one)
    except IndexError:
        raise out_of_range("nll_loss_backward", target, classes, ignore_index) from None


def total_weight(weight: Tensor, target: Tensor, ignore_index: int, batch_ndim: int) -> Tensor:
    """The sum of the weights of the targets per batch index, in the dtype of the weights."""
    index, ignored = check_index("nll_loss", target, weight.shape[-1], ignore_index)
    weights = weights_at(weight, index, batch_ndim)
    return ordered_sum(weights if ignored is None else weights.masked_fill(ignored, 0.0), batch_ndim)


def reduce_losses(
    loss: Tensor, weights: Tensor | None, ignored: Tensor | None, reduction: int, batch_ndim: int
) -> tuple[Tensor, Tensor]:
    """(output, total_weight) from the loss and the weight of every target; `loss` is zero where ignored.

    Args:
        loss: of the target's shape, in the dtype of the sums.
        weights: the weight of every target, or None for ones.
        ignored: which targets are; None where none is.
        reduction: NONE, MEAN or SUM.
        batch_ndim: the number of batch dims, each index of which is a loss of its own.
    """
    batch = loss.shape[:batch_ndim]
    if reduction == NONE:
        return loss, loss.new_zeros(batch)
    if weights is not None:
        total_weight = ordered_sum(weights if ignored is None else weights.masked_fill(ignored, 0.0), batch_ndim)
    else:
        count = math.prod(loss.shape[batch_ndim:])
        # Without weights the total weight is a count, in the dtype of the loss. float32 holds counts
        # exactly up to 2^24.
        total_weight = loss.new_full(batch, count)
        if ignored is not None:
            total_weight = total_weight - ignored.reshape(*batch, count).sum(-1)
    total = ordered_sum(loss, batch_ndim)
    return (total / total_weight if reduction == MEAN else total), total_weight


def check_index(op: str, target: Tensor, classes: int, ignore_index: int) -> tuple[Tensor, Tensor | None]:
    """Targets as an index that is safe to follow, and which of them are ignored; None where none is.

    Raises IndexError where a target is neither a class nor `ignore_index`. An ignored one becomes class 0.
    """
    index = target.long()
    if not index.numel():
        return index, None
    ignored: Tensor | None = None
    if index.is_cuda and torch.cuda.is_current_stream_capturing():  # nothing can be read; the kernels assert
        ignored = index == ignore_index
        return index.masked_fill(ignored, 0), ignored
    # The least and the greatest target tell whether any is wrong. Only if one may be ignored are all of
    # them compared.
    low, high = _range(index)
    if low <= ignore_index <= high:
        ignored = index == ignore_index
        # Without classes there is no class 0 to follow, but targets that are all ignored are right all the
        # same.
        if not classes and bool(ignored.all()):
            return index, ignored
        # At an ignored target of -100 gather would read outside the input. Class 0 is safe to read, and the caller sets
        # the value that was read there to 0.
        index = index.masked_fill(ignored, 0)
        if low < 0 or high >= classes:
            low, high = _range(index)
    if low < 0 or high >= classes:
        raise out_of_range(op, target, classes, ignore_index)
    return index, ignored


def _range(index: Tensor) -> tuple[int, int]:
    low, high = torch.aminmax(index)
    if index.is_cuda:
        low, high = torch.stack((low, high)).cpu()  # one wait instead of two
    return int(low), int(high)


def out_of_range(op: str, target: Tensor, classes: int, ignore_index: int) -> IndexError:
    """The error where some targets are neither classes nor `ignore_index`."""
    index = target.long()
    wrong = ((index < 0) | (index >= classes)) & (index != ignore_index)
    # A kernel may have told of a wrong target where there is none, if it has a fault.
    value, rule = next(iter(index[wrong].tolist()), "none"), target_rule(classes, ignore_index)
    return IndexError(f"{op}: got target={value} at {int(wrong.sum())} of {wrong.numel()} positions, need {rule}.")


def target_rule(classes: int, ignore_index: int) -> str:
    """What a target must be, in words."""
    return f"0 <= target < {classes} (the number of classes) or target = ignore_index={ignore_index}"


def pick(x: Tensor, index: Tensor, dim: int) -> Tensor:
    """The elements of x at `index` along `dim`, a new tensor of the index's shape."""
    if not x.shape[dim]:
        return x.new_zeros(index.shape)
    return x.gather(dim, index.unsqueeze(dim)).squeeze(dim)


def weights_at(weight: Tensor, index: Tensor, batch_ndim: int) -> Tensor:
    """The weight of every target."""
    # Without classes every target is ignored, for `check_index` has let it pass, and its weight does not
    # count.
    if not weight.shape[-1]:
        return weight.new_zeros(index.shape)
    if weight.dim() == 1:
        return weight.index_select(0, index.reshape(-1)).reshape(index.shape)
    batch = index.shape[:batch_ndim]
    count = math.prod(index.shape[batch_ndim:])
    return weight.gather(-1, index.reshape(*batch, count)).reshape(index.shape)


def spread(value: Tensor, like: Tensor) -> Tensor:
    """A value per batch index, viewed to broadcast over all positions of it; one per position stays as it is."""
    missing = like.dim() - value.dim()
    return value.reshape(value.shape + (1,) * missing) if missing else value


def ordered_sum(t: Tensor, batch_ndim: int) -> Tensor:
    """The sum over all but the batch dims, in an order that no number of threads changes."""
    batch = t.shape[:batch_ndim]
    rows = t.reshape(*batch, math.prod(t.shape[batch_ndim:]))
    # Blocks have a fixed size and ATen gives each of them to one thread whole. One long sum it would divide
    # among its threads, and the last bits would depend on their number.
    while rows.shape[-1] > _BLOCK:
        blocks = rows.shape[-1] // _BLOCK
        head = rows[..., : blocks * _BLOCK].reshape(*batch, blocks, _BLOCK).sum(-1)
        rows = torch.cat((head, rows[..., blocks * _BLOCK :]), -1)
    return rows.sum(-1)
