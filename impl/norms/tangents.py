"""The tangents of the norms as torch sees them: an op each, of which CUDA has a kernel and the CPU the expression.

An op takes the input, the weight, and the tangents of input, weight and bias, each of which may be missing (zero). It
returns the tangents of out, mean and rstd; those of the statistics are None where the call does not ask for them, or
where they are zero because the input has no tangent. The forward ops' rules call it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..operator.batching import fold, in_front, out_dims, slice_shape, unfold
from ..operator.composed import Composed
from ..operator.precision import compute_dtype, raised
from ..operator.records import Record
from . import expressions
from .batching import Batched
from .kernels_cuda import batch_norm_jvp as batch_cuda
from .kernels_cuda import group_norm as group_cuda
from .kernels_cuda import layer_norm as layer_cuda
from .kernels_cuda.batch_norm_jvp import Moved
from .layout import Channels, Groups, Layout, Rows, rows_of

_OUTPUTS = ("out", "mean", "rstd")


@dataclass(frozen=True, slots=True)
class _Tangents:
    """The fake and the expression of the tangents of a norm whose statistics are functions of the input.

    Attributes:
        layout: for the arguments of an op.
    """

    layout: Callable[[Record], Layout]

    def fake(self, args: Record) -> Moved:
        x, layout = args.input, self.layout(args)
        out = layout.empty_like(x)
        if args.t_input is None or not args.statistics:
            return out, None, None
        shape, dtype = layout.statistics_shape(x.shape), compute_dtype(x.dtype)
        return out, x.new_empty(shape, dtype=dtype), x.new_empty(shape, dtype=dtype)

    def expression(self, args: Record) -> Moved:
        x, layout = args.input, self.layout(args)
        t_input = None if args.t_input is None else layout.view(args.t_input)
        out, mean, rstd = expressions.moved_outputs(
            layout.view(x), args.weight, layout, args.eps, (t_input, args.t_weight, args.t_bias)
        )
        out = out.reshape(x.shape)
        if mean is None or rstd is None or not args.statistics:
            return out, None, None
        return out, layout.flat_statistics(mean), layout.flat_statistics(rstd)


# ------------------------------------------------------------------------------------------------------------ vmap


def _pair(dims: Record, args: Record) -> tuple[Tensor, Tensor | None]:
    """The input and its tangent; in the dtype of sums where one of them is repeated along the batch, because the
    derivative of repeating is a sum."""
    x, t = args.input, args.t_input
    repeated = dims.input is None or (t is not None and dims.t_input is None)
    return (raised(x), raised(t)) if repeated else (x, t)


def _channels_of(t: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    """A tensor (C,) for each slice, folded to (size C,)."""
    return None if t is None else fold(raised(t) if dim is None else t, dim, size, 0)


def _parameters(dims: Record, args: Record, size: int) -> list[Tensor | None]:
    """Tangents of weight and bias, folded."""
    return [_channels_of(args.t_weight, dims.t_weight, size), _channels_of(args.t_bias, dims.t_bias, size)]


def _batched_rows(op: Any, size: int, dims: Record, args: Record) -> Batched:
    """One more lead dim; parameters with a batch are applied outside of the kernel, in float32 for the half types."""
    dtype, row_ndim = args.input.dtype, args.row_ndim
    x, t = _pair(dims, args)
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


def _batched_groups(op: Any, size: int, dims: Record, args: Record) -> Batched:
    """Folds the batch into N, or, where a parameter is batched, into the channels and groups."""
    dtype, (n, channels) = args.input.dtype, slice_shape(args.input, dims.input)[:2]
    x, t = _pair(dims, args)
    at = 0 if dims.weight is None and dims.t_weight is None and dims.t_bias is None else 1
    weight, t_weight, t_bias, groups = args.weight, args.t_weight, args.t_bias, args.groups
    if at == 1:
        weight, groups = _channels_of(weight, dims.weight, size), size * groups
        t_weight, t_bias = _parameters(dims, args, size)
    folded = fold(x, dims.input, size, at), fold(t, dims.t_input, size, at)
    out, mean, rstd = op(folded[0], weight, folded[1], t_weight, t_bias, groups, args.eps, args.statistics)
    lengths = (n, n, n) if at == 0 else (channels, args.groups, args.groups)
    outputs = tuple(unfold(t, at, size, length) for t, length in zip((out.to(dtype), mean, rstd), lengths, strict=True))
    return outputs, out_dims(outputs, at)


def _batched_channels(op: Any, size: int, dims: Record, args: Record) -> Batched:
    """Folds the batch into the channels."""
    dtype, channels = args.input.dtype, slice_shape(args.input, dims.input)[1]
    x, t = _pair(dims, args)
    weight = _channels_of(args.weight, dims.weight, size)
    folded = fold(x, dims.input, size, 1), fold(t, dims.t_input, size, 1)
    out, *moved = op(folded[0], weight, folded[1], *_parameters(dims, args, size), args.eps, args.statistics)
    outputs = (out.unflatten(1, (size, channels)).to(dtype), *(unfold(t, 0, size, channels) for t in moved))
    return outputs, out_dims(outputs, (1, 0, 0))


def _batched_constants(op: Any, size: int, dims: Record, args: Record) -> tuple[Tensor, int]:
    """Folds the batch into the channels."""
    dtype, channels = args.input.dtype, slice_shape(args.input, dims.input)[1]
    x, t = _pair(dims, args)
    per_channel = [
        _channels_of(p, dim, size)
        for p, dim in (
            (args.weight, dims.weight), (args.running_mean, dims.running_mean), (args.running_var, dims.running_var),
        )
    ]  # fmt: skip
    folded = fold(x, dims.input, size, 1), fold(t, dims.t_input, size, 1)
    out = op(folded[0], *per_channel, folded[1], *_parameters(dims, args, size), args.eps)
    return out.unflatten(1, (size, channels)).to(dtype), 1


# -------------------------------------------------------------------------------------------------------------- ops


def _of_rows(args: Record) -> Rows:
    return rows_of(args.row_ndim)


def _of_groups(args: Record) -> Groups:
    return Groups(args.groups)


def _of_channels(args: Record) -> Channels:
    return Channels(args.input.shape[1])


def _evaluation_fake(args: Record) -> Tensor:
    return _of_channels(args).empty_like(args.input)


def _evaluation(args: Record) -> Tensor:
    laid = _of_channels(args)
    t_input = None if args.t_input is None else laid.view(args.t_input)
    out = expressions.moved_by_constants(
        laid, laid.view(args.input), args.weight, args.running_mean, args.running_var, args.eps,
        (t_input, args.t_weight, args.t_bias),
    )  # fmt: skip
    return out.reshape(args.input.shape)


_GIVEN = "Tensor input, Tensor? weight, Tensor? t_input, Tensor? t_weight, Tensor? t_bias"
_rows, _groups, _channels = _Tangents(_of_rows), _Tangents(_of_groups), _Tangents(_of_channels)

layer_norm_jvp = Composed(
    f"layer_norm_jvp({_GIVEN}, int row_ndim, float eps, bool statistics) -> (Tensor, Tensor, Tensor)",
    _rows.expression,
    layer_cuda.layer_norm_jvp,
    _rows.fake,
    _batched_rows,
    outputs=_OUTPUTS,
)
group_norm_jvp = Composed(
    f"group_norm_jvp({_GIVEN}, int groups, float eps, bool statistics) -> (Tensor, Tensor, Tensor)",
    _groups.expression,
    group_cuda.group_norm_jvp,
    _groups.fake,
    _batched_groups,
    outputs=_OUTPUTS,
)
batch_norm_jvp = Composed(
    f"batch_norm_jvp({_GIVEN}, float eps, bool statistics) -> (Tensor, Tensor, Tensor)",
    _channels.expression,
    batch_cuda.batch_norm_jvp,
    _channels.fake,
    _batched_channels,
    outputs=_OUTPUTS,
)
batch_norm_evaluation_jvp = Composed(
    "batch_norm_evaluation_jvp(Tensor input, Tensor? weight, Tensor running_mean, Tensor running_var, Tensor? t_input,"
    " Tensor? t_weight, Tensor? t_bias, float eps) -> Tensor",
    _evaluation,
    batch_cuda.batch_norm_evaluation_jvp,
    _evaluation_fake,
    _batched_constants,
)
