"""The norms as torch sees them: each op's schema with its kernels, fake, vmap rule and derivatives.

`layer_norm` and `native_layer_norm` differ in one thing, as `group_norm` and `native_group_norm` do: the latter's mean
and rstd are differentiable outputs, so its backward carries their cotangents; the former's are there for its backward
only. The backward op is one for both.

Batch norm is two ops. `batch_norm_training` takes statistics of the batch and is functional: running statistics are
updated by an op of their own, from its last output, or in a plain call by a kernel that does both.
`batch_norm_evaluation` takes statistics that are constants.

The tangents are ops, too, of which CUDA has a kernel and the CPU the expression; the rules of the forward ops call
them. Those of the statistics are None where a call does not ask for them, or where the input has no tangent.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..operator.composed import Composed
from ..operator.expression import Expression
from ..operator.operator import Kernels, Operator, Shortcut, taking
from ..operator.records import Record
from . import batching, rules
from .kernels_cpu import batch_norm as batch_cpu
from .kernels_cpu import group_norm as group_cpu
from .kernels_cpu import layer_norm as layer_cpu
from .kernels_cpu.operands import Outputs
from .kernels_cuda import batch_norm as batch_cuda
from .kernels_cuda import batch_norm_jvp as batch_cuda_jvp
from .kernels_cuda import group_norm as group_cuda
from .kernels_cuda import layer_norm as layer_cuda
from .layout import Channels, Groups, Rows, channels_in, groups_in, rows_in, rows_of
from .rules import Forward, Norm, SavedNorm, channels, groups, rows
from .running import Running, updating

_AUTOCAST = (("cuda", torch.float32),)  # as torch: layer and group norm autocast to float32 on CUDA, not on CPU
_OUTPUTS = ("out", "mean", "rstd")
_GRADIENTS = ("input", "weight", "bias")
#: The operands of a tangent, each of which may be missing, but for the input: that of the argument is zero then.
_MOVED = "Tensor input, Tensor? weight, Tensor? t_input, Tensor? t_weight, Tensor? t_bias"


def _with_batch(args: Record) -> Rows:
    return rows_of(args.row_ndim, args.batch_ndim)


_slices = Norm(_with_batch)

layer_norm_backward = Operator(
    "layer_norm_backward(Tensor grad_out, Tensor? grad_mean, Tensor? grad_rstd, Tensor input,"
    " Tensor mean, Tensor rstd, Tensor? weight, ScalarType? bias_dtype, int row_ndim, float? eps,"
    " int batch_ndim, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
    taking(
        layer_cpu.LayerBackward, layer_cpu.layer_norm_backward, layer_cuda.layer_norm_backward, _slices.fake_gradients
    ),
    batching.one_more_slice,
    Expression(_slices.gradients),
    outputs=_GRADIENTS,
)


layer_norm_jvp = Composed(
    f"layer_norm_jvp({_MOVED}, int row_ndim, float eps, bool statistics) -> (Tensor, Tensor, Tensor)",
    rows.tangents,
    layer_cuda.layer_norm_jvp,
    rows.fake_tangents,
    batching.layer_norm_jvp,
    outputs=_OUTPUTS,
)


def _of_rows(saved: SavedNorm[Rows]) -> tuple[object, ...]:
    # eps goes along for the derivatives of the backward op. Its values are those of mean and rstd, but the
    # expression behind its derivatives is exact only if it need not find eps from the rounded rstd.
    return rules.weight_or_zeros(saved), saved.bias_dtype, saved.layout.row_ndim, saved.eps, 0


_layer = Forward(rows_in, layer_norm_backward, _of_rows, layer_norm_jvp, lambda args: (args.row_ndim,))

layer_norm = Operator(
    "layer_norm(Tensor input, Tensor? weight, Tensor? bias, int row_ndim, float eps) -> (Tensor, Tensor, Tensor)",
    Kernels(layer_cpu.layer_norm, layer_cuda.layer_norm, rows.fake, _AUTOCAST),
    batching.layer_norm,
    _layer.forward_rules(statistics=False),
    outputs=_OUTPUTS,
)
native_layer_norm = Operator(
    "native_layer_norm(Tensor input, Tensor? weight, Tensor? bias, int row_ndim, float eps)"
    " -> (Tensor, Tensor, Tensor)",
    Kernels(layer_cpu.native_layer_norm, layer_cuda.native_layer_norm, rows.fake, _AUTOCAST),
    batching.layer_norm,
    _layer.forward_rules(statistics=True),
    outputs=_OUTPUTS,
)


group_norm_backward = Operator(
    "group_norm_backward(Tensor grad_out, Tensor? grad_mean, Tensor? grad_rstd, Tensor input, Tensor mean, Tensor rstd,"
    " Tensor? weight, ScalarType? bias_dtype, int groups, float? eps, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)",
    taking(
        group_cpu.GroupBackward, group_cpu.group_norm_backward, group_cuda.group_norm_backward, groups.fake_gradients
    ),
    batching.group_norm_backward,
    Expression(groups.gradients),
    outputs=_GRADIENTS,
)


group_norm_jvp = Composed(
    f"group_norm_jvp({_MOVED}, int groups, float eps, bool statistics) -> (Tensor, Tensor, Tensor)",
    groups.tangents,
    group_cuda.group_norm_jvp,
    groups.fake_tangents,
    batching.group_norm,
    outputs=_OUTPUTS,
)


def _of_groups(saved: SavedNorm[Groups]) -> tuple[object, ...]:
    return rules.weight_or_zeros(saved), saved.bias_dtype, saved.layout.groups, saved.eps


_group = Forward(groups_in, group_norm_backward, _of_groups, group_norm_jvp, lambda args: (args.groups,))

group_norm = Operator(
    "group_norm(Tensor input, Tensor? weight, Tensor? bias, int groups, float eps) -> (Tensor, Tensor, Tensor)",
    Kernels(group_cpu.group_norm, group_cuda.group_norm, groups.fake, _AUTOCAST),
    batching.group_norm,
    _group.forward_rules(statistics=False),
    outputs=_OUTPUTS,
)
native_group_norm = Operator(
    "native_group_norm(Tensor input, Tensor? weight, Tensor? bias, int groups, float eps) -> (Tensor, Tensor, Tensor)",
    # torch's native_group_norm does not autocast.
    Kernels(group_cpu.native_group_norm, group_cuda.native_group_norm, groups.fake),
    batching.group_norm,
    _group.forward_rules(statistics=True),
    outputs=_OUTPUTS,
)


batch_norm_backward = Operator(
    "batch_norm_backward(Tensor grad_out, Tensor? grad_mean, Tensor? grad_invstd, Tensor input, Tensor mean,"
    " Tensor invstd, Tensor? weight, ScalarType weight_dtype, ScalarType bias_dtype, float? eps, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)",
    taking(
        batch_cpu.BatchBackward, batch_cpu.batch_norm_backward, batch_cuda.batch_norm_backward, channels.fake_gradients
    ),
    batching.into_channels(1, 0, 0),
    Expression(channels.gradients),
    outputs=_GRADIENTS,
    renamed={"invstd": "rstd", "grad_invstd": "grad_rstd"},  # batch norm's name for what the other norms call rstd
)


batch_norm_jvp = Composed(
    f"batch_norm_jvp({_MOVED}, float eps, bool statistics) -> (Tensor, Tensor, Tensor)",
    channels.tangents,
    batch_cuda_jvp.batch_norm_jvp,
    channels.fake_tangents,
    batching.into_channels(1, 0, 0),
    outputs=_OUTPUTS,
)


def _of_channels(saved: SavedNorm[Channels]) -> tuple[object, ...]:
    assert saved.input is not None
    # aten's backward returns d_weight and d_bias whether or not there are parameters, so their dtypes are
    # always given. Without a parameter nobody asks for its gradient, and the input's dtype serves.
    dtype = saved.input.dtype
    return saved.weight, saved.weight_dtype or dtype, saved.bias_dtype or dtype, saved.eps


_batch = Forward(channels_in, batch_norm_backward, _of_channels, batch_norm_jvp, lambda args: ())


def _training_fake(args: Record) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    out, mean, rstd = channels.fake(args)
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
batch_norm_training_and_update: Shortcut[Tensor, Tensor | None, Tensor | None, float, Running, Outputs] = Shortcut(
    "batch_norm_training",
    (("input", "weight", "bias", "eps", "running"), _OUTPUTS),
    (0, 1, 2),
    Kernels(updating(batch_cpu.batch_norm_training), batch_cuda.batch_norm_training_and_update, channels.fake),
    _batch.forward_rules(statistics=True),
    updating(batch_norm_training),
)


batch_norm_evaluation_backward = Operator(
    "batch_norm_evaluation_backward(Tensor grad_out, Tensor input, Tensor running_mean, Tensor running_var,"
    " Tensor? weight, ScalarType weight_dtype, ScalarType bias_dtype, float eps, bool[3] output_mask)"
    " -> (Tensor, Tensor, Tensor)",
    Kernels(
        batch_cpu.by_constants(batch_cpu.batch_norm_evaluation_backward),
        batch_cpu.by_constants(batch_cuda.batch_norm_evaluation_backward),
        channels.fake_gradients,
    ),
    batching.into_channels(1, 0, 0),
    Expression(channels.gradients),
    outputs=_GRADIENTS,
)
batch_norm_evaluation_jvp = Composed(
    "batch_norm_evaluation_jvp(Tensor input, Tensor? weight, Tensor running_mean, Tensor running_var, Tensor? t_input,"
    " Tensor? t_weight, Tensor? t_bias, float eps) -> Tensor",
    rules.constants_tangent,
    batch_cuda_jvp.batch_norm_evaluation_jvp,
    channels.fake_output,
    batching.into_channels(1),
)
batch_norm_evaluation = Operator(
    "batch_norm_evaluation(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var,"
    " float eps) -> Tensor",
    Kernels(batch_cpu.batch_norm_evaluation, batch_cuda.batch_norm_evaluation, channels.fake_output),
    batching.into_channels(1),
    Forward(
        channels_in,
        batch_norm_evaluation_backward,
        _of_channels,
        batch_norm_evaluation_jvp,
        lambda args: (args.running_mean, args.running_var),
    ).rules_by_constants(),
)
