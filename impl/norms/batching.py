"""The vmap rules of the norms: a batch folds into what is independent already.

Rows are independent in layer norm, samples and groups in group norm, channels in batch norm. An operand without a batch
that must be repeated is taken to float32 first for the half types: the derivative of repeating is a sum over the batch,
which must add no half-precision contributions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..operator.batching import fold, in_front, out_dims, slice_shape, unfold
from ..operator.operator import VmapRule
from ..operator.precision import compute_dtype, raised
from ..operator.records import Record
from .layout import Rows

Batched = tuple[tuple[Tensor | None, ...], tuple[int | None, ...]]
"""Outputs and where the batch is in each."""

#: Arguments shaped as the input, statistics, and those of shape (C,).
_INPUTS = frozenset(("grad_out", "input", "t_input"))
_STATISTICS = frozenset(("mean", "rstd", "grad_mean", "grad_rstd"))
_PARAMETERS = frozenset(("weight", "bias", "t_weight", "t_bias", "running_mean", "running_var"))


def _raised_together(dims: Record, args: Record) -> list[tuple[str, Any, int | None]]:
    """(name, argument, batch dim) of all; those shaped as the input in the dtype of sums where one has no batch."""
    triples = list(zip(args._fields, args, dims, strict=True))
    if None not in [dim for name, t, dim in triples if t is not None and name in _INPUTS]:
        return triples
    return [(name, raised(t) if name in _INPUTS else t, dim) for name, t, dim in triples]


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


def layer_norm_jvp(op: Any, size: int, dims: Record, args: Record) -> Batched:
    """One more lead dim; parameters with a batch are applied outside of the kernel, in float32 for the half types."""
    dtype, row_ndim = args.input.dtype, args.row_ndim
    x, t = args.input, args.t_input
    # An operand that is repeated along the batch is raised, and the other follows it: the derivative of repeating is a
    # sum.
    if dims.input is None or (t is not None and dims.t_input is None):
        x, t = raised(x), raised(t)
    if dims.weight is None and dims.t_weight is None and dims.t_bias is None:
        x, t = in_front(x, dims.input, size), in_front(t, dims.t_input, size)
        out, *moved = op(x, args.weight, t, args.t_weight, args.t_bias, row_ndim, args.eps, args.statistics)
        outputs = (out.to(dtype), *moved)
        return outputs, out_dims(outputs)
    # Where only parameters have a batch, the normalised rows and their tangents are computed once for all slices.
    together = 1 if dims.input is None and (t is None or dims.t_input is None) else size
    x = raised(x).unsqueeze(0) if together == 1 else in_front(raised(x), dims.input, size)
    if t is not None:
        t = raised(t).unsqueeze(0) if together == 1 else in_front(raised(t), dims.t_input, size)

    def parameter(p: Tensor, dim: int | None) -> Tensor:
        """A parameter to go with x."""
        return raised(p) if dim is None else Rows(row_ndim, 1).spread(raised(p).movedim(dim, 0), x.dim())

    total, moved = x.new_zeros(()), [None, None]
    if t is not None:
        out, *moved = op(x, None, t, None, None, row_ndim, args.eps, args.statistics)
        total = out if args.weight is None else out * parameter(args.weight, dims.weight)
    if args.t_weight is not None:
        # The tangent along a weight of ones is xh.
        ones = x.new_ones(x.shape[x.dim() - row_ndim :])
        normalized = op(x, None, None, ones, None, row_ndim, args.eps, False)[0]
        total = total + normalized * parameter(args.t_weight, dims.t_weight)
    if args.t_bias is not None:
        total = total + parameter(args.t_bias, dims.t_bias)
    moved = [None if m is None else m.expand(size, *m.shape[1:]) for m in moved]
    outputs = (total.expand(size, *x.shape[1:]).to(dtype), *moved)
    return outputs, out_dims(outputs)


def one_more_slice(op: Any, size: int, dims: Record, args: Record) -> Batched:
    """The rule of a backward op of rows: one more batch dim in front, for each index of which the op keeps sums."""
    operands = []
    for name, t, dim in _raised_together(dims, args):
        if name == "batch_ndim":
            t += 1
        elif name == "weight" and t is not None:
            t = _weight_in_front(t, dim, args.row_ndim, args.batch_ndim)
        elif isinstance(t, Tensor):
            t = in_front(t, dim, size)
        operands.append(t)
    d_input, *sums = op(*operands)
    outputs = (None if d_input is None else d_input.to(args.input.dtype), *sums)
    return outputs, out_dims(outputs)


def _weight_in_front(weight: Tensor, dim: int | None, row_ndim: int, batch_ndim: int) -> Tensor:
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


def _fold(
    op: Any, size: int, dims: Record, args: Record, at: int, of_statistics: int, places: tuple[tuple[int, int], ...]
) -> Batched:
    """Outputs and out_dims of an op whose batch is folded into a dim that it has.

    Args:
        op, size, dims, args: as for every vmap rule.
        at: the dim of what is shaped as the input, into which its batch goes: 0 for samples; or 1 for channels, which
            each slice then has of its own, with parameters for them.
        of_statistics: the same of statistics.
        places: for each output the dim that holds the batch, and its length in a slice. The first output is rounded to
            the input's dtype.
    """
    operands = []
    for name, t, dim in _raised_together(dims, args):
        if name in _INPUTS:
            t = fold(t, dim, size, at)
        elif name in _STATISTICS:
            t = fold(t, dim, size, of_statistics)
        elif at == 1 and name in _PARAMETERS:
            # Parameters are raised even where they have a batch: an op takes no half ones beside a raised input.
            t = fold(raised(t), dim, size, 0)
        elif at == 1 and name == "groups":
            t = size * t
        operands.append(t)
    results = op(*operands)
    first, *others = (results,) if isinstance(results, Tensor) else results
    first = None if first is None else first.to(args.input.dtype)
    pairs = zip((first, *others), places, strict=True)
    outputs = tuple(unfold(t, dim, size, length) for t, (dim, length) in pairs)
    return outputs, out_dims(outputs, [dim for dim, _ in places])


def group_norm(op: Any, size: int, dims: Record, args: Record) -> Batched:
    """The rule of forward and tangent: folds the batch into N, or, where a parameter is batched, into the channels."""
    n, channels = slice_shape(args.input, dims.input)[:2]
    # Samples are independent and share the parameters, so the batch can become more samples. Where a parameter is
    # batched it becomes more channels, and each slice has its own parameters and groups.
    if all(dim is None for name, dim in zip(dims._fields, dims, strict=True) if name in _PARAMETERS):
        return _fold(op, size, dims, args, 0, 0, ((0, n), (0, n), (0, n)))
    return _fold(op, size, dims, args, 1, 1, ((1, channels), (1, args.groups), (1, args.groups)))


def group_norm_backward(op: Any, size: int, dims: Record, args: Record) -> Batched:
    """Folds the batch into N for d_input alone, else into the channels, where each slice has sums of its own."""
    weight, mask, shape = args.weight, args.output_mask, slice_shape(args.input, dims.input)
    sums = (mask[1] and weight is not None) or (mask[2] and args.bias_dtype is not None)
    at = 1 if sums or dims.weight is not None else 0
    (d_input, d_weight, d_bias), places = _fold(
        op, size, dims, args, at, at, ((at, shape[at]), (0, shape[1]), (0, shape[1]))
    )
    return (d_input, None if d_weight is None else d_weight.to(weight.dtype), d_bias), places


def into_channels(*places: int) -> VmapRule:
    """The rule of an op of batch norm: the batch folds into the channels. `places` has each output's batch dim."""

    def rule(op: Any, size: int, dims: Record, args: Record) -> tuple[Any, Any]:
        channels = slice_shape(args.input, dims.input)[1]
        outputs, batch_dims = _fold(op, size, dims, args, 1, 0, tuple((place, channels) for place in places))
        return (outputs, batch_dims) if len(places) > 1 else (outputs[0], places[0])

    return rule


def batch_norm_training(op: Any, size: int, dims: Record, args: Record) -> Batched:
    """Folds the batch into the channels. Moments stay unbatched where the input is: running statistics without a batch
    are then updated once.

    The other outputs are batched although equal: torch's vmap misplaces an unbatched output for out_dims=-1.
    """
    (*outputs, moments), places = into_channels(1, 0, 0, 1)(op, size, dims, args)
    if dims.input is None:
        moments, places = moments[:, 0], (*places[:-1], None)
    return (*outputs, moments), places
