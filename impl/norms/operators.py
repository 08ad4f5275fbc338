"""The norms as torch sees them: each op's schema with its kernels, fake, vmap rule and derivatives.

`layer_norm` and `native_layer_norm` differ in one thing, as `group_norm` and `native_group_norm` do: the latter's mean
and rstd are differentiable outputs, so its backward carries their cotangents; the former's are there for its backward
only. The backward op is one for both.

Batch norm is two ops. `batch_norm_training` takes statistics of the batch and is functional: running statistics are
updated by an op of their own, from its last output, or in a plain call by a kernel that does both.
`batch_norm_evaluation` takes statistics that are constants.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..operator.operator import Kernels, Operator, Shortcut, taking
from ..operator.records import Record
from . import batching, rules, tangents
from .kernels_cpu import batch_norm as batch_cpu
from .kernels_cpu import group_norm as group_cpu
from .kernels_cpu import layer_norm as layer_cpu
from .kernels_cuda import batch_norm as batch_cuda
from .kernels_cuda import group_norm as group_cuda
from .kernels_cuda import layer_norm as layer_cuda
from .layout import Channels, Groups, Rows, rows_of
from .rules import Backward, Norm, SavedNorm
from .running import Running, Statistics, updating

_AUTOCAST = (("cuda", torch.float32),)  # as torch: layer and group norm autocast to float32 on CUDA, not on CPU
_OUTPUTS = ("out", "mean", "rstd")
_GRADIENTS = ("input", "weight", "bias")

# ------------------------------------------------------------------------------------------------------ layer norm


def _rows(args: Record) -> Rows:
    return rows_of(args.row_ndim)


def _batched_rows(args: Record) -> Rows:
    return rows_of(args.row_ndim, args.batch_ndim)


_rows_backward = Backward(_batched_rows)

layer_norm_backward = Operator(
    "layer_norm_backward(Tensor grad_out, Tensor? grad_mean, Tensor? grad_rstd, Tensor input,"
    " Tensor mean, Tensor rstd, Tensor? weight, ScalarType? bias_dtype, int row_ndim, float? eps,"
    " int batch_ndim, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    taking(layer_cpu.LayerBackward, layer_cpu.layer_norm_backward, layer_cuda.layer_norm_backward, _rows_backward.fake),
    batching.layer_norm_backward,
    _rows_backward.derivatives(),
    outputs=_GRADIENTS,
)


def _of_rows(saved: SavedNorm[Rows]) -> tuple[object, ...]:
    # eps goes along for the derivatives of the backward op. Its values are those of mean and rstd, but the
    # expression behind its derivatives is exact only if it need not find eps from the rounded rstd.
    return rules.weight_or_zeros(saved), saved.bias_dtype, saved.layout.row_ndim, saved.eps, 0


_layer = Norm(_rows, layer_norm_backward, _of_rows, tangents.layer_norm_jvp, lambda args: (args.row_ndim,))

layer_norm = Operator(
    "layer_norm(Tensor input, Tensor? weight, Tensor? bias, int row_ndim, float eps) -> (Tensor, Tensor, Tensor)",
    Kernels(layer_cpu.layer_norm, layer_cuda.layer_norm, _layer.fake, _AUTOCAST),
    batching.layer_norm,
    _layer.forward_rules(statistics=False),
    outputs=_OUTPUTS,
)
native_layer_norm = Operator(
    "native_layer_norm(Tensor input, Tensor? weight, Tensor? bias, int row_ndim, float eps)"
    " -> (Tensor, Tensor, Tensor)",
    Kernels(layer_cpu.native_layer_norm, layer_cuda.native_layer_norm, _layer.fake, _AUTOCAST),
    batching.layer_norm,
    _layer.forward_rules(statistics=True),
    outputs=_OUTPUTS,
)

# ------------------------------------------------------------------------------------------------------ group norm


def _groups(args: Record) -> Groups:
    return Groups(args.groups)


_groups_backward = Backward(_groups)

group_norm_backward = Operator(
    "group_norm_backward(Tensor grad_out, Tensor? grad_mean, Tensor? grad_rstd, Tensor input, Tensor mean, Tensor rstd,"
    " Tensor? weight, ScalarType? bias_dtype, int groups, float? eps, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)",
    taking(
        group_cpu.GroupBackward, group_cpu.group_norm_backward, group_cuda.group_norm_backward, _groups_backward.fake
    ),
    batching.group_norm_backward,
    _groups_backward.derivatives(),
    outputs=_GRADIENTS,
)


def _of_groups(saved: SavedNorm[Groups]) -> tuple[object, ...]:
    return rules.weight_or_zeros(saved), saved.bias_dtype, saved.layout.groups, saved.eps


_group = Norm(_groups, group_norm_backward, _of_groups, tangents.group_norm_jvp, lambda args: (args.groups,))

group_norm = Operator(
    "group_norm(Tensor input, Tensor? weight, Tensor? bias, int groups, float eps) -> (Tensor, Tensor, Tensor)",
    Kernels(group_cpu.group_norm, group_cuda.group_norm, _group.fake, _AUTOCAST),
    batching.group_norm,
    _group.forward_rules(statistics=False),
    outputs=_OUTPUTS,
)
native_group_norm = Operator(
    "native_group_norm(Tensor input, Tensor? weight, Tensor? bias, int groups, float eps) -> (Tensor, Tensor, Tensor)",
    # torch's native_group_norm does not autocast.
    Kernels(group_cpu.native_group_norm, group_cuda.native_group_norm, _group.fake),
    batching.group_norm,
    _group.forward_rules(statistics=True),
    outputs=_OUTPUTS,
)

# ------------------------------------------------------------------------------------------------------ batch norm


def _channels(args: Record) -> Channels:
    return Channels(args.input.shape[1])


_channels_backward = Backward(_channels)

batch_norm_backward = Operator(
    "batch_norm_backward(Tensor grad_out, Tensor? grad_mean, Tensor? grad_invstd, Tensor input, Tensor mean,"
    " Tensor invstd, Tensor? weight, ScalarType weight_dtype, ScalarType bias_dtype, float? eps, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)",
    taking(
        batch_cpu.BatchBackward, batch_cpu.batch_norm_backward, batch_cuda.batch_norm_backward, _channels_backward.fake
    ),
    batching.batch_norm_backward,
    _channels_backward.derivatives(),
    outputs=_GRADIENTS,
    renamed={"invstd": "rstd", "grad_invstd": "grad_rstd"},  # batch norm's name for what the other norms call rstd
)


def _of_channels(saved: SavedNorm[Channels]) -> tuple[object, ...]:
    assert saved.input is not None
    # aten's backward returns d_weight and d_bias whether or not there are parameters, so their dtypes are
    # always given. Without a parameter nobody asks for its gradient, and the input's dtype serves.
    dtype = saved.input.dtype
    return saved.weight, saved.weight_dtype or dtype, saved.bias_dtype or dtype, saved.eps


_batch = Norm(_channels, batch_norm_backward, _of_channels, tangents.batch_norm_jvp, lambda args: ())


def _training_fake(args: Record) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    out, mean, rstd = _batch.fake(args)
    # The moments are mean and unbiased variance, one row each, in the dtype of the statistics.
    return out, mean, rstd, mean.new_empty((2, mean.shape[0]))


# Batch norm has no autocast rule in torch either: it takes a half-precision input beside float32 parameters.
batch_norm_training = Operator(
    "batch_norm_training(Tensor input, Tensor? weight, Tensor? bias, float eps)"
    " -> (Tensor out, Tensor mean, Tensor invstd, Tensor moments)",
    Kernels(batch_cpu.batch_norm_training, batch_cuda.batch_norm_training, _training_fake),
    batching.batch_norm_training,
    _batch.forward_rules(statistics=True, others=("moments",)),
    outputs=(*_OUTPUTS, "moments"),
)


#: (input, weight, bias, eps, running) -> (out, mean, invstd); in a plain call one kernel writes the running statistics.
batch_norm_training_and_update: Shortcut[Tensor, Tensor | None, Tensor | None, float, Running, Statistics] = Shortcut(
    "batch_norm_training",
    (("input", "weight", "bias", "eps", "running"), _OUTPUTS),
    (0, 1, 2),
    Kernels(updating(batch_cpu.batch_norm_training), batch_cuda.batch_norm_training_and_update, _batch.fake),
    _batch.forward_rules(statistics=True),
    updating(batch_norm_training),
)

# ---------------------------------------------------------------------------------- batch norm by running statistics


def _evaluation_fake(args: Record) -> Tensor:
    return _channels(args).empty_like(args.input)


batch_norm_evaluation_backward = Operator(
    "batch_norm_evaluation_backward(Tensor grad_out, Tensor input, Tensor running_mean, Tensor running_var,"
    " Tensor? weight, ScalarType weight_dtype, ScalarType bias_dtype, float eps, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)",
    taking(
        batch_cpu.ConstantsBackward,
        batch_cpu.batch_norm_evaluation_backward,
        batch_cuda.batch_norm_evaluation_backward,
        _channels_backward.fake,
    ),
    batching.batch_norm_evaluation_backward,
    rules.constants_derivatives(_channels),
    outputs=_GRADIENTS,
)
batch_norm_evaluation = Operator(
    "batch_norm_evaluation(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var,"
    " float eps) -> Tensor",
    Kernels(batch_cpu.batch_norm_evaluation, batch_cuda.batch_norm_evaluation, _evaluation_fake),
    batching.batch_norm_evaluation,
    rules.constants_rules(_channels, batch_norm_evaluation_backward, tangents.batch_norm_evaluation_jvp),
)
